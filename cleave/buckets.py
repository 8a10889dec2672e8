"""Which sizes are scheduled alike, and what a user may give as sizes to schedule for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from cleave.dialects.dims import Facts, sym
from cleave.dialects.given_sizes import LARGEST_EXTENT, hold
from cleave.errors import CleaveError

SMALLEST_BUCKET, RATIO = 16, 4
"""Sizes up to the first are scheduled alike, and further ones by powers of the second."""


def bucket(size: int) -> int:
    """The size that stands for ``size`` when a schedule is chosen: 16, 64, 256, …, the nearest one above."""
    found = SMALLEST_BUCKET
    while found < size:
        found *= RATIO
    return found


def buckets(sizes: Mapping[str, int], facts: Facts) -> dict[str, int]:
    """Those that stand for these sizes: no larger than facts let them be."""
    return {name: min(bucket(size), _most(facts, name)) for name, size in sizes.items()}


def _most(facts: Facts, name: str) -> int:
    most = facts.bounds(sym(name))[1]
    return LARGEST_EXTENT if most is None else most


def checked_sizes(sizes: Any) -> tuple[dict[str, int], ...]:
    """A list of sizes as it was given; CleaveError for anything else."""
    from cleave.runtime.call import check_sizes

    if not isinstance(sizes, Sequence) or not all(isinstance(each, Mapping) for each in cast(Sequence[Any], sizes)):
        raise CleaveError(f"sizes={sizes!r}: a list of dictionaries", notes=('as in sizes=[{"m": 16}, {"m": 4096}]',))
    for each in sizes:
        check_sizes(each)
    return tuple(dict(each) for each in sizes)


def agreeing(
    sizes: Sequence[Mapping[str, int]], extents: Mapping[str, int], facts: Sequence[str]
) -> tuple[dict[str, int], ...]:
    """Those that neither static extents nor facts contradict."""
    static = (each for each in sizes if all(extents.get(name, n) == n for name, n in each.items()))
    return tuple(dict(each) for each in static if hold(facts, {**extents, **each}))
