"""Whether a candidate's results are those of a program that is trusted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-3, "float64": 1e-9}
"""Of ‖out − ref‖ / ‖ref‖ between two programs for the same function, by the type of the results: what finds a race or a
wrong index. How accurate a program is, is the search's to judge."""


def like(wanted: Any) -> Callable[[Sequence[Any]], str]:
    """A check against these results, one tensor of PyTorch's or a tuple of them."""
    references = list(wanted) if isinstance(wanted, tuple) else [wanted]

    def check(results: Sequence[Any]) -> str:
        problems = (_difference(*pair) for pair in zip(results, references, strict=True))
        return next(filter(None, problems), "")

    return check


def _difference(result: Any, reference: Any) -> str:
    if result.shape != reference.shape:
        return f"shape {list(result.shape)}, {list(reference.shape)} is wanted"
    if not result.is_floating_point():
        return "" if bool((result == reference).all()) else "integers differ"
    nan = result.isnan() != reference.isnan()
    if bool(nan.any()):
        return f"{int(nan.sum())} elements are NaN in one of the two"
    out, ref = result.double().nan_to_num(), reference.double().nan_to_num()
    error = float((out - ref).norm() / ref.norm().clamp_min(1e-30))
    allowed = TOLERANCE.get(str(result.dtype).rpartition(".")[2], 1e-1)
    return "" if error <= allowed else f"error {error:.1e}, {allowed:.1e} is allowed"
