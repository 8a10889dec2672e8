"""What one kernel computes: the outputs, the tensors in memory it reads, and everything in between."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from cleave.dialects.dims import Dim, Size
from cleave.dialects.graph import Value
from cleave.dialects.ops import OPS, REDUCTIONS
from cleave.dialects.rounding import transparent
from cleave.errors import CleaveError
from cleave.schedule.derivatives import State, state_of
from cleave.schedule.reindex import is_of_equal_elements
from cleave.schedule.rename import Part, Renamer, is_in_memory, is_memory_view, renamed, topological, viewed
from cleave.schedule.separability import Body


@dataclass(frozen=True, eq=False)
class Region:
    """``results[i]`` is ``outputs[i]`` with its reduced dims renamed apart from the output dims; ``reads`` is memory:
    inputs in their order, then what other kernels write.

    ``parts`` has the inner dims of splits.
    """

    outputs: tuple[Value, ...]
    results: tuple[Value, ...]
    reads: tuple[Value, ...]
    extents: Mapping[str, int]
    parts: Mapping[str, Part]

    @cached_property
    def static_dims(self) -> frozenset[str]:
        """The dims whose sizes are known when compiling."""
        return frozenset(
            dim.name for value in self.upstream for dim in value.dims if dim.size.symbols <= self.extents.keys()
        )

    @cached_property
    def sizes(self) -> Mapping[str, Size]:
        """The size of each dim."""
        return {dim.name: dim.size for value in self.upstream for dim in value.dims}

    def static_size(self, name: str) -> int | None:
        """The size of a dim if it is known when compiling; None for parts of a split, of which the last is shorter."""
        return None if name in self.parts else self._static_sizes.get(name)

    @cached_property
    def _static_sizes(self) -> dict[str, int]:
        known = {name: size for name, size in self.sizes.items() if size.symbols <= self.extents.keys()}
        return {name: size.evaluate(self.extents) for name, size in known.items()}

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """Those of the sizes of all its dims."""
        sizes = {dim.size for value in (*self.upstream, *self.outputs) for dim in value.dims}
        sizes |= {part.whole for part in self.parts.values()}
        return tuple(sorted({symbol for size in sizes for symbol in size.symbols}))

    @cached_property
    def widest(self) -> tuple[frozenset[str], ...]:
        """The sets of dims that a value has and no other value has beside others."""
        found = {frozenset(value.names) for value in self.upstream}
        return tuple(names for names in found if not any(names < other for other in found))

    @cached_property
    def memory(self) -> frozenset[Value]:
        return frozenset(self.reads)

    @cached_property
    def loaded(self) -> tuple[Value, ...]:
        """The tensors in memory that are read as a whole, not only gathered from."""
        direct = {operand for v in self.values for operand in (v.operands[1:] if v.op == "gather" else v.operands)}
        return tuple(value for value in self.reads if value in direct or value in self.results)

    @cached_property
    def values(self) -> tuple[Value, ...]:
        """The values computed, operands first."""
        return tuple(topological(self.results, self.memory))

    @cached_property
    def position(self) -> dict[Value, int]:
        return {value: index for index, value in enumerate(self.values)}

    @cached_property
    def reductions(self) -> tuple[Value, ...]:
        """Those that may need a loop."""
        return tuple(value for value in self.values if value.op in REDUCTIONS and not is_of_equal_elements(value))

    @cached_property
    def positioned(self) -> frozenset[str]:
        """The dims of which code asks where a tile is, beside where it ends: positions are values, or elements are
        gathered, or a tensor has two roles, and two of its tiles may be the same."""
        dims = {name for value in self.values for name in value.names}
        tensors = [renamed(value) for value in (*self.reads, *self.outputs)]
        if len(set(tensors)) < len(tensors) or any(value.op == "gather" for value in self.values):
            return frozenset(dims)
        return frozenset(name for value in self.values if value.op == "index" for name in value.names)

    @cached_property
    def parallel(self) -> tuple[str, ...]:
        """The dims of the outputs."""
        return tuple(dict.fromkeys(name for value in self.outputs for name in value.names))

    @cached_property
    def upstream(self) -> dict[Value, frozenset[Value]]:
        """For each value, everything it depends on, memory included, without itself."""
        found: dict[Value, frozenset[Value]] = {value: frozenset() for value in self.reads}
        for value in self.values:
            found[value] = frozenset(value.operands).union(*(found[operand] for operand in value.operands))
        return found

    @cached_property
    def transparent(self) -> frozenset[Value]:
        """The values whose rounding algebra may move."""
        return transparent(self.values, self.results)

    def state(self, reduction: Value, running: frozenset[Value], loop: str) -> State | None:
        """What a loop with these running values carries for a reduction; None if its body does not separate."""
        key = (reduction, running, loop)
        if key not in self._states:
            body = Body(running, loop, self.upstream, self.transparent)
            self._states[key] = state_of(reduction, body, self.upstream)
        return self._states[key]

    @cached_property
    def _states(self) -> dict[tuple[Value, frozenset[Value], str], State | None]:
        return {}

    @cached_property
    def groups(self) -> dict[Hashable, bool]:
        """Which reductions may share a loop, as far as it has been asked (see ``Grouping``)."""
        return {}

    def varying(self, value: Value, dims: tuple[str, ...]) -> frozenset[Value]:
        """What ``value`` depends on and has one of ``dims``."""
        if (value, dims) not in self._varying:
            self._varying[value, dims] = frozenset(v for v in self.upstream[value] if set(v.names) & set(dims))
        return self._varying[value, dims]

    @cached_property
    def _varying(self) -> dict[tuple[Value, tuple[str, ...]], frozenset[Value]]:
        return {}

    def depends(self, value: Value, on: Iterable[Value]) -> bool:
        upstream = self.upstream[value]
        return any(other is value or other in upstream for other in on)


def region_of(outputs: tuple[Value, ...], boundary: frozenset[Value], extents: Mapping[str, int]) -> Region:
    """The region that computes ``outputs`` from inputs and the other values of ``boundary``.

    CleaveError, located, at an op that no kernel can hold.
    """
    stop = boundary - frozenset(outputs)
    taken = {name for value in _reachable(outputs, stop) for name in (*value.names, *value.attrs.get("over", ()))}
    renamer = Renamer(stop, taken, _parts(outputs, stop, extents))
    parallel = frozenset(name for value in outputs for name in value.names)
    results = tuple(renamer.rename_apart(value, parallel) for value in outputs)
    memory: list[Value] = []
    for value in _reachable(results, stop):
        if is_in_memory(value, stop):
            memory.append(value)
        elif OPS[value.op].stage == "graph" and value.op != "gather":
            raise CleaveError(f"cleave.{value.op} of a computed value cannot be scheduled yet", value.location)
    used = {name for value in _reachable(results, stop) for name in (*value.names, *value.attrs.get("over", ()))}
    parts = {inner: part for inner, part in renamer.parts.items() if inner in used and part.outer in used}
    return Region(outputs, results, tuple(sorted(memory, key=_input_number)), extents, parts)


def _input_number(value: Value) -> float:
    return viewed(value).attrs.get("index", math.inf)


def _parts(outputs: tuple[Value, ...], stop: frozenset[Value], extents: Mapping[str, int]) -> dict[str, Part]:
    """The inner dims of splits. CleaveError for one inside parts under two names, of which the last one is shorter."""
    found: dict[str, Part] = {}
    values = _reachable(outputs, stop)
    for inner, parts in _splits(outputs).items():
        met = [part for part in parts if any({inner, part.outer} <= set(value.names) for value in values)]
        found[inner] = (met or parts)[0]
        for part in met[1:]:
            sizes = {dim.name: dim.size for value in values for dim in value.dims}
            if not part.divides(sizes[part.outer] * sizes[inner], extents):
                text = f"'{inner}' inside the parts '{met[0].outer}' and '{part.outer}' cannot be scheduled yet"
                raise CleaveError(text, values[0].location)
    return found


def _splits(outputs: tuple[Value, ...]) -> dict[str, list[Part]]:
    """For each inner dim of a split, under all its names, the outer one under all of its.

    A dim that is split alike more than once is one dim, however its size is written.
    """
    found: dict[str, list[Part]] = {}
    split: set[tuple[str, str, str]] = set()
    for value in topological(outputs, frozenset()):
        if value.op == "split":
            dim = value.attrs["dim"]
            outer, inner = (Dim.parse(text).name for text in value.attrs["into"])
            if (dim, outer, inner) not in split:
                found.setdefault(inner, []).append(Part(outer, value.operands[0].size(dim)))
            split.add((dim, outer, inner))
        elif value.op == "rename":
            old, new = value.attrs["from"], Dim.parse(value.attrs["to"]).name
            found[new] = [*found.get(new, []), *found.get(old, [])]
            for inner in value.names:
                parts = found.get(inner, [])
                parts += [Part(new, part.whole) for part in parts if part.outer == old]
    return {inner: list(dict.fromkeys(parts)) for inner, parts in found.items() if parts}


def _reachable(outputs: tuple[Value, ...], stop: frozenset[Value]) -> list[Value]:
    found: dict[Value, None] = {}
    stack = list(outputs)
    while stack:
        value = stack.pop()
        if value not in found:
            found[value] = None
            if value not in stop and not is_memory_view(value):
                stack.extend(value.operands)
    return list(found)
