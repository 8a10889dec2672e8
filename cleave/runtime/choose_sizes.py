"""Values for sizes that nobody gives: for a run on random arrays, and for choices such as a split count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cleave.dialects.dims import Dim, Facts, Size, parse
from cleave.dialects.given_sizes import GIVEN, TYPE, check_given
from cleave.errors import CleaveError
from cleave.runtime.bind_sizes import Sizes, bind_extents
from cleave.runtime.launch_plan import Launch, LaunchPlan, TensorSpec

#: No two alike and none that a tile divides, so that a mistake with either shows. For few and for many symbols.
FEW = (70, 45, 37, 51)
MANY = (3, 7, 5, 9, 6, 11, 2, 13)
#: How many parts a split has.
PARTS = 3


def choose_sizes(
    tensors: Sequence[TensorSpec], facts: Sequence[str], extents: Mapping[str, int], given: Mapping[str, int]
) -> Sizes:
    """A value for every symbol of the tensors' dims: those given, and defaults within the facts' bounds for the others.

    ``origin`` of the result says which were chosen. CleaveError for a name that is no size of the tensors, and for
    values against the facts or the static ``extents``.
    """
    sizes = Sizes(facts)
    sizes.add(extents, TYPE)
    dims = [Dim.parse(text) for tensor in tensors for text in tensor.dims]
    used = {symbol for dim in dims for symbol in (dim.size.symbols | sizes.facts.simplify(dim.size).symbols)}
    for name in given:
        if name not in used | extents.keys():
            known = ", ".join(sorted(used)) or "none"
            raise CleaveError(f"the function has no size '{name}'", notes=(f"its sizes: {known}",))
    check_given(given, extents, sizes.facts)
    bind_extents(sizes, [(GIVEN, Dim(name, parse(name)), value) for name, value in given.items()])
    free = sorted({s for dim in dims for s in sizes.facts.simplify(dim.size).symbols} - sizes.values.keys())
    defaults = FEW if len(free) <= len(FEW) else MANY
    for index, symbol in enumerate(free):
        value = _within(sizes.facts.given(sizes.values), symbol, defaults[index % len(defaults)])
        sizes.add({symbol: value}, "chosen")
    return sizes


def choose_free(plan: LaunchPlan, given: Mapping[str, int]) -> dict[str, int]:
    """Values for the symbols of the plan that neither an argument nor a choice of the plan binds; others if given."""
    facts = Facts.parse(plan.facts)
    bound = {
        s for tensor in plan.arguments for text in tensor.dims for s in facts.simplify(Dim.parse(text).size).symbols
    }
    free = {s for size in _sizes(plan) for s in facts.simplify(size).symbols} - bound - plan.extents.keys()
    chosen = {choice.partition("=")[0].strip() for choice in plan.choices} - given.keys()
    return {symbol: given.get(symbol, _within(facts, symbol, PARTS)) for symbol in sorted(free - chosen)}


def symbols_of(plan: LaunchPlan) -> set[str]:
    """The symbols of all sizes of a plan."""
    arguments = [Dim.parse(text).size for tensor in plan.arguments for text in tensor.dims]
    return {symbol for size in (*arguments, *_sizes(plan)) for symbol in size.symbols} | plan.extents.keys()


def _within(facts: Facts, symbol: str, value: int) -> int:
    low, high = facts.bounds(parse(symbol))
    return min(max(value, low or 0), value if high is None else high)


def _sizes(plan: LaunchPlan) -> list[Size]:
    """Every size that the steps of the plan need."""
    found: list[Size] = []
    for step in plan.steps:
        if isinstance(step, Launch):
            found += map(parse, step.grid)
            found += [parse(text.partition(":")[2]) for text in step.arguments if text.startswith("size:")]
        else:
            pairs = zip(step.tensor.dims, step.tensor.extents, strict=True)
            found += [Dim.parse(dim).size for dim, extent in pairs if extent is None]
    return found
