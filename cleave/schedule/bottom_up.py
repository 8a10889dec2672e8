"""Memoised results for all that a key depends on, dependencies first: chains of ops are longer than Python's stack."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


def bottom_up(
    memo: dict[Key, Result], key: Key, needs: Callable[[Key], Sequence[Key]], make: Callable[[Key], Result]
) -> Result:
    """``make(key)`` from ``memo``, where the results for what it ``needs`` are before ``make`` is called."""
    stack = [(key, False)]
    while stack:
        each, ready = stack.pop()
        if each in memo:
            continue
        if ready:
            memo[each] = make(each)
        else:
            stack.append((each, True))
            stack.extend((need, False) for need in reversed(needs(each)))
    return memo[key]
