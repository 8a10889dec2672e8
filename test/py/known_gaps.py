"""The kinds of semantics-cases that a path does not reach yet, with the reason. A gap that closes fails its test.

Keys are (case, sizes, path), "*" standing for all.
"""

from __future__ import annotations

KNOWN_GAPS: dict[tuple[str, str, str], str] = {}


def gap(case: str, sizes: str, path: str) -> str | None:
    """Why the case is not right yet; None if it is."""
    keys = [(case, s, p) for s in (sizes, "*") for p in (path, "*")]
    return next((KNOWN_GAPS[key] for key in keys if key in KNOWN_GAPS), None)
