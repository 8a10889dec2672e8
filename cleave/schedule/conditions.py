"""What a condition of type i1 says of the index along a dim: limits, of comparisons and of what is made of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cleave.dialects.dims import Size, const
from cleave.dialects.graph import Value
from cleave.schedule.affine import Affine, affine, sign


@dataclass(frozen=True)
class Limit:
    """The index along a dim is at most one of ``ends`` (``upper``), or at least one of them."""

    upper: bool
    ends: tuple[Affine, ...]

    @property
    def names(self) -> frozenset[str]:
        """The dims that the ends depend on."""
        return frozenset[str]().union(*(end.names for end in self.ends))


@dataclass(frozen=True)
class Condition:
    """``limits`` hold where a condition has its outcome; if it is ``exact``, it has the outcome wherever they hold."""

    limits: tuple[Limit, ...]
    exact: bool

    @property
    def growth(self) -> Iterator[tuple[str, bool]]:
        """The dims along which limits move, and whether these leave more and more."""
        for limit in self.limits:
            for end in limit.ends:
                for name, coefficient in end.coefficients.items():
                    yield name, (sign(coefficient) > 0) is limit.upper


def condition(value: Value, truth: bool, name: str) -> Condition | None:
    """What ``value`` says of the index along dim ``name`` where it is ``truth``; None: nothing that is known."""
    if value.op == "cmp":
        limits = _limits_of_comparison(value, truth, name)
        return Condition(limits, exact=True) if limits else None
    if not is_combined(value):
        return None
    parts = [condition(operand, truth, name) for operand in value.operands]
    known = [part for part in parts if part]
    if is_disjunction(value, truth):
        return _either(*known) if len(known) == len(parts) else None
    exact = len(known) == len(parts) and all(part.exact for part in known)
    return Condition(tuple(limit for part in known for limit in part.limits), exact) if known else None


def is_combined(value: Value) -> bool:
    """Whether a value is made of two conditions."""
    return value.dtype == "i1" and value.op in ("mul", "min", "max")


def is_disjunction(value: Value, truth: bool) -> bool:
    """Whether one of two conditions with the outcome ``truth`` suffices for the combined one to have it."""
    return is_combined(value) and (value.op == "max") == truth


def _either(a: Condition, b: Condition) -> Condition | None:
    """Where one of two conditions holds: the hull of both ranges."""
    pairs = [(one, two) for one, two in itertools.product(a.limits, b.limits) if one.upper == two.upper]
    limits = tuple(Limit(one.upper, (*one.ends, *two.ends)) for one, two in pairs)
    alike = len({limit.upper for limit in (*a.limits, *b.limits)}) == 1
    return Condition(limits, alike and a.exact and b.exact) if limits else None


def _limits_of_comparison(comparison: Value, truth: bool, name: str) -> tuple[Limit, ...]:
    a, b = map(affine, comparison.operands)
    if a is None or b is None:
        return ()
    predicate = comparison.attrs["predicate"] if truth else _OPPOSITE[comparison.attrs["predicate"]]
    one = Affine({}, const(1), 1, 1)
    forms = {"le": [a + -b], "lt": [a + -b + one], "ge": [b + -a], "gt": [b + -a + one], "eq": [a + -b, b + -a]}
    found = [_limit(form, name) for form in forms.get(predicate, [])]
    return tuple(limit for limit in found if limit)


_OPPOSITE = {"le": "gt", "lt": "ge", "ge": "lt", "gt": "le", "eq": "ne", "ne": "eq"}


def _limit(form: Affine, name: str) -> Limit | None:
    """The limit that says form ≤ 0; the dim's coefficient must be 1 or −1, the others of known sign."""
    own = form.coefficients.get(name, const(0)).value
    others = {n: c for n, c in form.coefficients.items() if n != name}
    rest = Affine(others, form.constant, form.low, form.high, form.data)
    if own not in (1, -1) or name in rest.names or any(sign(c) == 0 for c in _coefficients(rest)):
        return None
    return Limit(True, (-rest,)) if own == 1 else Limit(False, (rest,))


def _coefficients(form: Affine) -> Sequence[Size]:
    return (*form.coefficients.values(), *form.data.values())
