"""The accuracy that docs/semantics.md promises, in numbers: an optimised result against the source's own error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cleave.dialects.tensor_type import is_float
from cleave.reference.numerics import Array, storage

FACTOR = 2.0
"""How much larger than the source program's own error the optimised program's may be."""

_EPSILON = {"f16": 2.0**-10, "bf16": 2.0**-7, "f8E4M3FN": 2.0**-3, "f8E5M2": 2.0**-2, "f32": 2.0**-23, "f64": 2.0**-52}
_ACCUMULATORS = ("f32", "f64")


@dataclass(frozen=True)
class Accuracy:
    """‖out − ref‖ / ‖ref‖ of both programs, over the elements that are finite in all three; ‖ref‖ = 0 counts as 1.

    ``problem`` says why the contract is broken; None: it holds. Where it is broken by infinities or NaN and no element
    is finite in all three, both are NaN.
    """

    optimised: float
    unoptimised: float
    limit: float
    problem: str | None

    @property
    def holds(self) -> bool:
        return self.problem is None

    @property
    def says_little(self) -> bool:
        """Whether it holds of zeros, too, as the source as it is written is off by half of its result or more."""
        return self.holds and self.limit >= 1


def floor(dtype: str) -> float:
    """The error that is always allowed, for sources that happen to be exact.

    One unit in the last place for types that results are rounded to; four for f32 and f64, in which sums are
    accumulated, so that their order shows. None for integers.
    """
    return _EPSILON.get(dtype, 0.0) * (4 if dtype in _ACCUMULATORS else 1)


def compare(reference: Array, unoptimised: Array, optimised: Array, dtype: str) -> Accuracy:
    """Judge one result. ``reference``: the source in f64; ``unoptimised``: the source in its declared types."""
    if not reference.shape == unoptimised.shape == optimised.shape:
        text = f"its shape is {optimised.shape}, the source program's is {reference.shape}"
        return Accuracy(np.inf, 0.0, 0.0, text)
    ref, plain, out = (np.asarray(x).astype(np.float64) for x in (reference, unoptimised, optimised))
    finite = np.isfinite(ref) & np.isfinite(plain) & np.isfinite(out)
    errors = [_relative(x[finite], ref[finite]) for x in (out, plain)]
    limit = max(FACTOR * errors[1], floor(dtype))
    problem = _specials(ref, plain, out)
    if problem is not None and not finite.any():
        errors = [np.nan, np.nan]
    if problem is None and not errors[0] <= limit:
        problem = f"its error is {errors[0]:.3g}, more than {limit:.3g}"
    return Accuracy(errors[0], errors[1], limit, problem)


def _relative(x: Array, ref: Array) -> float:
    with np.errstate(over="ignore"):
        scale = float(np.max(np.abs(ref), initial=0.0)) or 1.0
        norm = float(np.linalg.norm(ref / scale)) or 1.0
        return float(np.linalg.norm((x - ref) / scale)) / norm


def _specials(ref: Array, plain: Array, out: Array) -> str | None:
    """What is wrong with infinities and NaN: they must be the source's, as it is written or over the reals.

    Where the source as written is finite, so must the result be.
    """
    classes = [_classes(x) for x in (ref, plain, out)]
    allowed = (classes[2] == classes[1]) | ((classes[1] != 0) & (classes[2] == classes[0]))
    if allowed.all():
        return None
    place = tuple(int(i) for i in np.argwhere(~allowed)[0])
    count = int((~allowed).sum())
    more = f" (and {count - 1} more)" if count > 1 else ""
    return f"element {list(place)} is {out[place]}, the source program's is {plain[place]}{more}"


def _classes(x: Array) -> Array:
    """0: finite, 1: +inf, 2: -inf, 3: NaN."""
    return np.where(np.isnan(x), 3, np.where(np.isposinf(x), 1, np.where(np.isneginf(x), 2, 0)))


def same_bits(a: Array, b: Array, dtype: str) -> bool:
    """Whether two results are equal to the bit; any NaN equals any other."""
    kind = storage(dtype)
    x, y = np.asarray(a, kind), np.asarray(b, kind)
    if x.shape != y.shape:
        return False
    if not is_float(dtype):
        return bool(np.array_equal(x, y))
    nan = np.isnan(x.astype(np.float64)) & np.isnan(y.astype(np.float64))
    word = f"u{kind.itemsize}"
    return bool(np.all(nan | (np.ascontiguousarray(x).view(word) == np.ascontiguousarray(y).view(word))))
