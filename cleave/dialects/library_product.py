"""Which launches a library may make: products of two tensors, in the element types that it multiplies."""

from __future__ import annotations

from collections.abc import Sequence

RESULTS = {"f16": ("f16", "f32"), "bf16": ("bf16", "f32"), "f32": ("f32",), "f64": ("f64",)}
"""By the type of both operands, the types that a product may have: accumulated in f32 (f64), rounded once."""
MAX_ALGORITHM = 1024
"""The largest number of an algorithm: a library is asked for that many."""


def product_problem(dtypes: Sequence[str], outputs: Sequence[int]) -> str:
    """What hinders a launch from being made by a library; empty if nothing does.

    ``dtypes``: of all its operands, of which it writes those with the numbers ``outputs``.
    """
    if (len(dtypes), len(outputs)) != (3, 1):
        return "has two operands and a result"
    (result,) = outputs
    factors = {dtype for number, dtype in enumerate(dtypes) if number != result}
    if len(factors) > 1 or dtypes[result] not in RESULTS.get(min(factors), ()):
        return f"no library makes of {' and '.join(sorted(factors))} in {dtypes[result]}"
    return ""
