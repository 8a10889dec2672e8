"""Sizes as users give them: how large an extent may be, and that they agree with those in a function's type."""

from __future__ import annotations

from collections.abc import Mapping

from cleave.errors import CleaveError

LARGEST_EXTENT = 2**31 - 2**20
"""So that an extent plus a tile fits in 32 bits; kernels are compiled for extents up to it."""
TYPE, GIVEN = "the function's type", "the given sizes"


def too_large(name: str, size: int | str) -> CleaveError:
    """For a size above ``LARGEST_EXTENT``."""
    return CleaveError(f"size '{name}' is {size}; an extent is at least 0 and at most {LARGEST_EXTENT}")


def check_static(given: Mapping[str, int], extents: Mapping[str, int], location: object | None = None) -> None:
    """CleaveError for a given size that is another one in the function's type."""
    for name, size in given.items():
        static = extents.get(name, size)
        if static != size:
            raise CleaveError(f"dimension '{name}' is {static} in {TYPE} and {size} in {GIVEN}", location)
