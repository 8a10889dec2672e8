"""What was proved and tested about one alternative, as data that prints as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Fingerprint:
    """Equality of the outputs over a pair of prime fields at random points; no ``samples`` where it does not apply."""

    p: int
    q: int
    seed: int
    samples: int
    sizes: dict[str, int]
    error_bound: float
    note: str = ""


@dataclass(frozen=True)
class FloatCheck:
    """Relative errors against f64 of the source and of the alternative, in their declared types, worst of the draws."""

    sizes: dict[str, int]
    draws: tuple[str, ...]
    f64_difference: float
    source_error: float
    error: float
    note: str = ""


@dataclass(frozen=True)
class Certificate:
    """``normal_form`` is the text that both programs reduce to, for all sizes; ``facts`` are those used."""

    normal_form: tuple[str, ...]
    facts: tuple[str, ...] = ()
    fingerprint: Fingerprint | None = None
    floats: FloatCheck | None = None
    notes: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, sort_keys=True)
