"""For all tests."""

from __future__ import annotations

import gc

gc.set_threshold(10_000, 20, 20)  # looking for garbage more often takes a tenth of the time
