"""What graphs have in common that compute the same of different tensors, as the layers of a network do."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from cleave.dialects.graph import Value
from cleave.schedule.region import Region
from cleave.schedule.rename import topological, viewed


def structure_of(outputs: Sequence[Value], memory: frozenset[Value]) -> tuple[Hashable, list[Value]]:
    """How ``outputs`` are computed from inputs and the values of ``memory``, whichever these are; and all values, in an
    order in which those of the same structure correspond."""
    computed = topological(outputs, memory)
    read = dict.fromkeys(v for each in computed for v in each.operands if v in memory)
    order = list(dict.fromkeys((*read, *(v for v in outputs if v in memory), *computed)))
    numbers = {value: number for number, value in enumerate(order)}
    rows = [value.type if value in memory or value.op == "input" else _row(value, numbers) for value in order]
    return (tuple(rows), tuple(numbers[output] for output in outputs)), order


def _row(value: Value, numbers: Mapping[Value, int]) -> Hashable:
    attrs = tuple(sorted((name, str(attribute)) for name, attribute in value.attrs.items()))
    return value.op, tuple(numbers[operand] for operand in value.operands), value.type, attrs


def structure_of_region(region: Region) -> Hashable:
    """What regions have in common whose kernels are the same but for places in the source."""
    computed, _ = structure_of((*region.results, *region.reads), frozenset(map(viewed, region.reads)))
    return computed, tuple(output.type for output in region.outputs), tuple(sorted(region.parts.items()))
