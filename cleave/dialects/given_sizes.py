"""Sizes as users give them: how large an extent may be, and that they agree with a function's type and its facts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from cleave.dialects.facts import Facts
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


def check_given(
    given: Mapping[str, int], extents: Mapping[str, int], facts: Facts, location: object | None = None
) -> None:
    """CleaveError as of ``check_static``, and for sizes that facts refuse: which facts, and of which sizes."""
    check_static(given, extents, location)
    known = {**extents, **given}
    if hold(facts.texts, known):
        return
    texts = _conflicting(facts.texts, lambda part: hold(part, known))
    names = _conflicting(known, lambda part: hold(texts, {name: known[name] for name in part}))
    values = ", ".join(f"{name} = {known[name]} ({GIVEN if name in given else TYPE})" for name in names)
    raise CleaveError(f"the function requires {' and '.join(texts)}, which does not hold for {values}", location)


def admitted(sizes: Mapping[str, int], extents: Mapping[str, int], facts: Facts) -> dict[str, int]:
    """The sizes without those that facts refuse beside the ones before them."""
    if hold(facts.texts, {**extents, **sizes}):
        return dict(sizes)
    found: dict[str, int] = {}
    for name, size in sizes.items():
        if hold(facts.texts, {**extents, **found, name: size}):
            found[name] = size
    return found


def hold(texts: Collection[str], values: Mapping[str, int]) -> bool:
    """Whether facts are not seen to contradict these values."""
    try:
        Facts.parse(texts).given(values)
    except CleaveError:
        return False
    return True


def _conflicting(items: Collection[str], can_hold: Callable[[Collection[str]], bool]) -> list[str]:
    """Some that cannot hold together, though they can without any one of them."""
    found = list(items)
    for item in items:
        rest = [each for each in found if each != item]
        if not can_hold(rest):
            found = rest
    return found
