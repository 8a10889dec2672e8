"""Exponentials in a loop from an anchor: e^(κ·(z − w)) as 2^(a·z − b), one multiply-add an element.

b is a·w rounded, with a = κ·log₂e. Rounding makes all of a row's terms larger by the same 2^(a·w − b), whatever w is,
so the loop keeps its sums relative to b: they follow it by 2^(b before − b now), and are moved to w itself behind the
loop, by 2^(b − a·w), which one multiply-add gives exactly. To take b for a·w instead would lose a large row's digits.

From 2²⁸ on (``LARGEST``), where that factor would leave the range of f16, a is the next power of two, for which a·w is
exact: numbers of f32 that differ do so by 16/a there, and what is not w is at most 2⁻¹⁶ of it, with either a. Where a·w
could overflow, a is 1.

A term that is 1 without an anchor is another number with one, which a product in f16 rounds and a sum in f32 does not:
a row whose weights are all alike, or all but one nothing, is off by half a unit in the last place of f16. So anchors
are for functions whose products of exponentials end in types as narrow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cleave.dialects.graph import Graph, Value
from cleave.schedule.derivatives import State
from cleave.schedule.region import Region
from cleave.schedule.separability import BASES, difference
from cleave.schedule.tile_program import Ref, TileBuilder, tile_type

LARGEST = 2.0**28
"""What a·w is below, so that 2^(a·w − b) is at most 2⁸."""
JUMP = 64.0
"""Sums never follow an anchor upwards by as much, but where a becomes larger; nothing of them is left then."""
SCALES = (2.0**-100, 2.0**60)
"""Of other factors rounding leaves the range of f32."""
_F32 = frozenset(("f32",))
EMPTY = 2.0**128 - 2.0**104
"""The largest number of f32: −b where w is −inf, so that all sums before vanish beside any, and none is NaN."""
_INFINITE = 2.0**128
"""What no number of f32 reaches."""
_NARROW = ("f16", "bf16", "f8E4M3FN", "f8E5M2")
_MULTIPLIED = (*_NARROW, "tf32")


@dataclass(frozen=True)
class Anchored:
    """base^(factor·(z − w)), of base e or 2 as the name of the op says."""

    z: Value
    w: Value
    factor: float
    base: str

    @property
    def kappa(self) -> float:
        return self.factor * BASES[self.base]

    @property
    def scale(self) -> float:
        """κ·log₂e."""
        return self.kappa / BASES["exp2"]


@dataclass(frozen=True)
class Anchor:
    """2^(``scale``·z + ``shift``) of each row: ``shift`` is −b, and finite where w is −inf."""

    scale: Ref
    shift: Ref


def suit(graph: Graph) -> bool:
    """Whether nothing that is wider than the tensor cores' operands follows from their products of exponentials."""
    exponentials: set[Value] = set()
    products: set[Value] = set()
    for value in graph.topological():
        if value.op in BASES or not exponentials.isdisjoint(value.operands):
            exponentials.add(value)
        own = _is_product(value) and not exponentials.isdisjoint(value.operands)
        if own or not products.isdisjoint(value.operands):
            products.add(value)
    return all(output.dtype in _NARROW for output in graph.outputs if output in products)


def anchored(states: Sequence[State], region: Region, loops: Sequence[str]) -> dict[Value, Anchored]:
    """The exponentials of a loop that are to be taken from anchors: all that have a running maximum, where tiles are
    multiplied by the tensor cores and code between these products counts."""
    if any(state.centres for state in states):
        return {}
    values = {value for state in states for value in region.varying(state.reduction, tuple(loops))}
    reductions = [state.reduction for state in states]
    if not any(map(_is_product, (*values, *reductions))):
        return {}
    found: dict[Value, Anchored] = {}
    for w in dict.fromkeys(w for state in states for w in state.form.exponents):
        of_w = [value for value in values if w in region.upstream[value]]
        found |= _of_maximum(w, states, of_w) if _rounds_alone(of_w, region) else {}
    return found


def _is_product(value: Value) -> bool:
    return value.op == "contract" and all(operand.dtype in _MULTIPLIED for operand in value.operands)


def _rounds_alone(values: Iterable[Value], region: Region) -> bool:
    """Whether of these only exponentials themselves are rounded to narrow types: what is a multiple of one might
    overflow there."""
    narrow = [value for value in values if value.dtype in _NARROW and any(map(_is_exponential, region.upstream[value]))]
    return all(value.op == "cast" and _is_exponential(value.operands[0]) for value in narrow)


def _is_exponential(value: Value) -> bool:
    return value.op in BASES


def _of_maximum(w: Value, states: Iterable[State], values: Iterable[Value]) -> dict[Value, Anchored]:
    """None unless each body has one factor e^(−κ·w), and all have the same."""
    factors = {state.form.exponents[w] for state in states if w in state.form.exponents}
    found: dict[Value, Anchored] = {}
    for value in filter(_is_exponential, values):
        of = difference(value.operands[0])
        if of is None or of.w is not w or of.dtypes | {value.dtype} != _F32:
            return {}
        found[value] = Anchored(of.z, w, of.factor, value.op)
    alike = {(each.factor, each.base) for each in found.values()}
    moderate = all(SCALES[0] <= each.scale <= SCALES[1] for each in found.values())
    return found if moderate and len(alike) == 1 and factors == {each.kappa for each in found.values()} else {}


def multipliers(scale: float) -> list[tuple[float, float]]:
    """(limit, a): a where w is below the limit in size, the least limit first; the last one is infinite."""
    exact, limit = 2.0 ** math.ceil(math.log2(scale)), LARGEST / scale
    if limit >= _INFINITE:
        return [(math.inf, scale)]
    large = [(math.inf, exact)] if exact <= 1 else [(_INFINITE / (2 * exact), exact), (math.inf, 1.0)]
    return [(limit, scale), *large]


def anchor(builder: TileBuilder, w: Ref, of: Anchored) -> Anchor:
    """That of rows whose maximum is ``w``; what depends on its size is chosen last, as exponentials wait for it."""
    ranges, less, size = multipliers(of.scale), builder.compute("neg", w), builder.compute("abs", w)
    scales = [_scale(builder, of), *(_number(builder, a) for _, a in ranges[1:])]
    *shifts, last = (builder.compute("mul", less, a) for a in scales)
    found = Anchor(scales[-1], builder.compute("min", last, _number(builder, EMPTY)))
    for (limit, _), a, shift in reversed(list(zip(ranges[:-1], scales, shifts, strict=False))):
        small = builder.compute("cmp", size, _number(builder, limit), predicate="lt")
        a = builder.compute("select", small, a, found.scale, order=size.names)
        found = Anchor(a, builder.compute("select", small, shift, found.shift))
    return found


def _number(builder: TileBuilder, number: float) -> Ref:
    return builder.fill(number, tile_type([], "f32"))


def _scale(builder: TileBuilder, of: Anchored) -> Ref:
    """κ·log₂e, whose digits are those of the type that it is computed in: f64 when a program is checked."""
    factor = _number(builder, of.factor)
    return (
        factor if of.base == "exp2" else builder.compute("div", factor, builder.compute("log", _number(builder, 2.0)))
    )


def exponential(builder: TileBuilder, z: Ref, at: Anchor, order: Sequence[str], location: str | None) -> Ref:
    return builder.compute("exp2", builder.compute("fma", z, at.scale, at.shift, order=order), location=location)


def follows(builder: TileBuilder, before: Ref, now: Anchor, of: Anchored) -> Ref:
    """The factor of sums relative to an anchor with shift ``before`` that are to be relative to the one of now."""
    by = builder.compute("sub", now.shift, before)
    if len(multipliers(of.scale)) > 2:
        jump = builder.compute("cmp", by, _number(builder, JUMP), predicate="gt")
        by = builder.compute("select", jump, _number(builder, -EMPTY), by, order=by.names)
    return builder.compute("exp2", by)


def settles(builder: TileBuilder, w: Ref, at: Anchor) -> Ref:
    """The factor of sums relative to an anchor that are to be relative to w itself."""
    left = builder.compute("fma", w, at.scale, at.shift)
    return builder.compute("exp2", builder.compute("neg", left))
