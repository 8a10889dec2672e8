"""Plain products: kernels of one contraction of two tensors in memory and nothing else, found by structure.

Such a launch may be made by a library (docs/semantics.md has what is required of its numbers). A product of parts that
may end early is none: a library would read past the end.
"""

from __future__ import annotations

from cleave.dialects.graph import Value
from cleave.dialects.library_product import RESULTS
from cleave.dialects.rounding import widens
from cleave.schedule.region import Region, region_of
from cleave.schedule.tile_program import Launch, TileProgram


def is_product(region: Region) -> bool:
    """Whether a kernel for the region computes one plain product of two tensors."""
    value = _contraction(region)
    if value is None or region.parts:
        return False
    sides = [_unwidened(operand, region) for operand in value.operands]
    dtypes = {side.dtype for side in sides}
    if len(dtypes) != 1 or region.outputs[0].dtype not in RESULTS.get(dtypes.pop(), ()):
        return False
    first, second = (set(side.names) for side in sides)
    over, kept = set(value.attrs["over"]), set(value.names)
    in_memory = all(side in region.memory for side in sides) and len(set(region.reads)) == 2
    return in_memory and bool(over) and over == (first & second) - kept and first | second == over | kept


def _contraction(region: Region) -> Value | None:
    """The contraction of which the region's one result is the value, rounded once; None if it is none."""
    if len(region.results) != 1:
        return None
    value = region.results[0]
    if value.op == "cast" and value.operands[0].dtype in ("f32", "f64"):
        value = value.operands[0]
    return value if value.op == "contract" else None


def _unwidened(value: Value, region: Region) -> Value:
    """The value in memory before casts that change none of its numbers."""
    while value not in region.memory and value.op == "cast" and widens(value.operands[0].dtype, value.dtype):
        value = value.operands[0]
    return value


def products(program: TileProgram) -> tuple[bool, ...]:
    """Which of the launches, of which none has been joined with another, are plain products."""
    boundary = frozenset(program.allocated)
    return tuple(is_product(region_of(written(launch), boundary, program.graph.extents)) for launch in program.launches)


def written(launch: Launch) -> tuple[Value, ...]:
    """What the launch's kernel writes, in its order."""
    held = dict(zip(launch.kernel.arguments, launch.operands, strict=True))
    return tuple(held[argument] for argument in launch.kernel.outputs)
