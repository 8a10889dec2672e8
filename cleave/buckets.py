"""Which sizes are scheduled alike, and what a user may give as sizes to schedule for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from cleave.errors import CleaveError

SMALLEST_BUCKET, RATIO = 16, 4
"""Sizes up to the first are scheduled alike, and further ones by powers of the second."""


def bucket(size: int) -> int:
    """The size that stands for ``size`` when a schedule is chosen: 16, 64, 256, …, the nearest one above."""
    found = SMALLEST_BUCKET
    while found < size:
        found *= RATIO
    return found


def checked_sizes(sizes: Any) -> tuple[dict[str, int], ...]:
    """A list of sizes as it was given; CleaveError for anything else."""
    from cleave.runtime.call import check_sizes

    if not isinstance(sizes, Sequence) or not all(isinstance(each, Mapping) for each in cast(Sequence[Any], sizes)):
        raise CleaveError(f"sizes={sizes!r}: a list of dictionaries", notes=('as in sizes=[{"m": 16}, {"m": 4096}]',))
    for each in sizes:
        check_sizes(each)
    return tuple(dict(each) for each in sizes)


def agreeing(sizes: Sequence[Mapping[str, int]], extents: Mapping[str, int]) -> tuple[dict[str, int], ...]:
    """Those that static extents do not contradict."""
    return tuple(dict(each) for each in sizes if all(extents.get(name, n) == n for name, n in each.items()))
