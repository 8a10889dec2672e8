"""The values of size symbols at a call: bound from the shapes of the arguments, and checked against the facts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from cleave.dialects.dims import Dim, Facts, Size, const, parse, sym
from cleave.dialects.given_sizes import GIVEN, TYPE, check_static
from cleave.errors import CleaveError
from cleave.runtime.launch_plan import LaunchPlan

_RELATION = re.compile(r"(<=|>=|==|=|<|>)")
_HOLDS = {
    "<=": int.__le__, ">=": int.__ge__, "=": int.__eq__, "==": int.__eq__, "<": int.__lt__, ">": int.__gt__,
}  # fmt: skip
CHOICE = "the schedule's choice"


@lru_cache(maxsize=1 << 10)
def _facts(texts: tuple[str, ...]) -> Facts:
    """Read once: each call with new shapes needs them, and what was simplified under them."""
    return Facts.parse(texts)


class Sizes:
    """Symbols with their values, and for each the tensor that gave it."""

    def __init__(self, facts: Sequence[str] = ()) -> None:
        self.facts = _facts(tuple(facts))
        self.values: dict[str, int] = {}
        self.origin: dict[str, str] = {}

    def add(self, values: Mapping[str, int], origin: str) -> None:
        for symbol, value in values.items():
            self.values[symbol], self.origin[symbol] = value, origin

    def evaluate(self, size: Size | str) -> int:
        """The size's value. CleaveError where a symbol of it has none."""
        size = parse(size) if isinstance(size, str) else size
        if not size.symbols <= self.values.keys():
            size = self.facts.simplify(size)
        for symbol in sorted(size.symbols - self.values.keys()):
            raise CleaveError(f"no argument gives size '{symbol}' a value", notes=("give it one in sizes",))
        return size.evaluate(self.values)

    def explain(self, size: Size) -> str:
        """``n = 12 (in0), s = 3 (in1)`` for the symbols of a size."""
        known = sorted(self.facts.simplify(size).symbols & self.values.keys())
        return ", ".join(f"{symbol} = {self.values[symbol]} ({self.origin[symbol]})" for symbol in known)


def bind_sizes(plan: LaunchPlan, shapes: Sequence[Sequence[int]], given: Mapping[str, int] | None = None) -> Sizes:
    """Bind every symbol that the shapes of the plan's arguments determine, others by ``given`` or the plan's choices.

    CleaveError where extents disagree with static ones or with each other, naming the dim, the tensors and the values,
    and where a fact of the function does not hold.
    """
    sizes = Sizes(plan.facts)
    sizes.add(plan.extents, TYPE)
    check_static(given or {}, plan.extents)
    sizes.add(given or {}, GIVEN)
    pending: list[tuple[str, Dim, int]] = []
    for tensor, shape in zip(plan.arguments, shapes, strict=True):
        for axis, (text, static, extent) in enumerate(zip(tensor.dims, tensor.extents, shape, strict=True)):
            dim = Dim.parse(text)
            if static is not None and static != extent:
                where = f"dimension '{dim.name}' of {tensor.name} (axis {axis})"
                raise CleaveError(f"{where} is {extent}; the function is compiled for {static}")
            pending.append((tensor.name, dim, extent))
    bind_extents(sizes, pending)
    for choice in plan.choices:
        symbol, _, value = (part.strip() for part in choice.partition("="))
        if symbol not in sizes.values:
            sizes.add({symbol: sizes.evaluate(value)}, CHOICE)
    _check_facts(plan, sizes)
    return sizes


def bind_form(
    plan: LaunchPlan, shapes: Sequence[Sequence[int]], given: Mapping[str, int] | None = None
) -> tuple[LaunchPlan, Sizes]:
    """The aligned form of the plan where its facts hold of these shapes, otherwise the plan; and its sizes.

    CleaveError as from ``bind_sizes``, for the plan itself.
    """
    sizes = bind_sizes(plan, shapes, given)
    if plan.aligned is None:
        return plan, sizes
    try:
        return plan.aligned, bind_sizes(plan.aligned, shapes, given)
    except CleaveError:
        return plan, sizes


def bind_extents(sizes: Sizes, pending: list[tuple[str, Dim, int]]) -> None:
    """Bind what (tensor, dim, extent) say: bare symbols first, since messages speak of them, then what needs those."""
    pending = sorted(pending, key=lambda entry: str(entry[1].size) != entry[1].name)
    while pending:
        left = [entry for entry in pending if not _bind(sizes, *entry)]
        if len(left) == len(pending):
            return  # What needs these sizes says so.
        pending = left


def _bind(sizes: Sizes, tensor: str, dim: Dim, extent: int) -> bool:
    """Check one extent, or learn a symbol from it; False where that needs more symbols."""
    size = sizes.facts.simplify(dim.size)
    unknown = sorted(size.symbols - sizes.values.keys())
    if not unknown:
        if size.evaluate(sizes.values) != extent:
            raise _disagreement(sizes, tensor, dim, extent)
        return True
    if len(unknown) > 1:
        return False
    value = extent if size is sym(unknown[0]) else _solve(size, unknown[0], extent, sizes.values)
    if value is None:
        return False
    if value < 0:
        why = _not_reached(sizes, dim, size, unknown[0])
        raise CleaveError(f"dimension '{dim.name}' of {tensor} is {extent}, {why}")
    sizes.add({unknown[0]: value}, tensor)
    return True


def _not_reached(sizes: Sizes, dim: Dim, size: Size, symbol: str) -> str:
    """Why no value of a symbol gives what a dim's size is to be."""
    start, step, two = (size.evaluate({**sizes.values, symbol: value}) for value in range(3))
    if start or two != 2 * step:
        return f"but {size} is that for no '{symbol}'"
    fact = f"{dim.name} = {size}" if size is dim.size else f"fact {dim.size} = {size}"
    return f"which is not a multiple of {step} ({fact})"


def _disagreement(sizes: Sizes, tensor: str, dim: Dim, extent: int) -> CleaveError:
    value = sizes.evaluate(dim.size)
    if str(dim.size) == dim.name and dim.name in sizes.origin:
        return CleaveError(f"dimension '{dim.name}' is {value} in {sizes.origin[dim.name]} and {extent} in {tensor}")
    given = sizes.explain(dim.size)
    because = f", with {given}" if given else ""
    return CleaveError(f"dimension '{dim.name}' of {tensor} is {extent}, but its size {dim.size} is {value}{because}")


def _solve(size: Size, symbol: str, extent: int, values: Mapping[str, int]) -> int | None:
    """The one value of ``symbol`` for which ``size`` is ``extent``; -1 if there is none, None if it is not determined.

    Only sizes that grow with the symbol are solved, which covers what people write: c*x + k, x*y with y known.
    """

    def at(candidate: int) -> int:
        return size.evaluate({**values, symbol: candidate})

    try:
        if not at(1) < at(2) < at(1000):
            return None
        low, high = 0, 1
        while at(high) < extent:
            low, high = high, 2 * high
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if at(middle) < extent else (low, middle)
        return low if at(low) == extent else -1
    except CleaveError:  # The symbol divides something.
        return None


def _check_facts(plan: LaunchPlan, sizes: Sizes) -> None:
    for fact in plan.facts:
        for relation in _relations(fact):
            _check_relation(plan, sizes, fact, relation)


@lru_cache(maxsize=1 << 10)
def _relations(fact: str) -> tuple[tuple[Size, str, Size], ...]:
    """``1 <= s <= n`` is two."""
    parts = _RELATION.split(fact)
    triples = zip(parts[::2], parts[1::2], parts[2::2], strict=False)
    return tuple((parse(left), sign, parse(right)) for left, sign, right in triples)


def _check_not_empty(plan: LaunchPlan, sizes: Sizes, fact: str, empty: Size) -> None:
    """CleaveError with the argument and the dim of which a broken fact says that it has elements, if one of them is."""
    for name, dim in [(tensor.name, Dim.parse(text)) for tensor in plan.arguments for text in tensor.dims]:
        if required := _required(sizes, fact, empty, dim.size):
            text = f"dimension '{dim.name}' is empty in {name}, and the function requires {required}"
            raise CleaveError(text, notes=("a maximum or minimum over no elements has no value",))


def _check_relation(plan: LaunchPlan, sizes: Sizes, fact: str, relation: tuple[Size, str, Size]) -> None:
    left, sign, right = relation
    symbols = sizes.facts.simplify(left).symbols | sizes.facts.simplify(right).symbols
    if not symbols <= sizes.values.keys():
        return  # About sizes that no argument has.
    values = sizes.evaluate(left), sizes.evaluate(right)
    if _HOLDS[sign](*values):
        return
    if 0 in values and 1 in values:
        _check_not_empty(plan, sizes, fact, right if values[1] == 0 else left)
    given = sizes.explain(left - right) or f"{left} = {values[0]}"
    raise CleaveError(f"the function requires {fact}, which does not hold for {given}")


def _required(sizes: Sizes, fact: str, empty: Size, size: Size) -> str:
    """What a fact, which does not hold as ``empty`` is 0, requires of a dim's size; nothing if that is not its cause.

    Parts of a dim are empty because the dim is: ``1 <= ceildiv(n, 16*s)`` requires ``1 <= n``.
    """
    empty, size = sizes.facts.simplify(empty), sizes.facts.simplify(size)
    if size is empty:
        return fact
    names = [name for name in size.symbols if size is sym(name) and sizes.values.get(name) == 0]
    return f"1 <= {size}" if names and empty.substitute(dict.fromkeys(names, 0)) is const(0) else ""
