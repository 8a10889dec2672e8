"""Named-dimension graphs: a tensor function as plain Python data, with no MLIR.

The search and the scheduler work on these; ``cleave.passes.graph_io`` converts to and from ``func.func``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from cleave.dialects import ops
from cleave.dialects.dims import NO_FACTS, Answer, Dim, Facts, Size, const, parse, sym
from cleave.dialects.size import from_atom
from cleave.dialects.tensor_type import TensorType, number_of, require_same_size
from cleave.errors import CleaveError


@dataclass(frozen=True, eq=False)
class Value:
    """One op's result; equality is identity. ``op`` is ``input`` or a name of ``OPS``."""

    op: str
    operands: tuple[Value, ...]
    type: TensorType
    attrs: Mapping[str, Any] = field(default_factory=dict)
    location: str | None = None

    @property
    def dims(self) -> tuple[Dim, ...]:
        return self.type.dims

    @property
    def dtype(self) -> str:
        return self.type.dtype

    @cached_property
    def names(self) -> tuple[str, ...]:
        return self.type.names

    def size(self, name: str) -> Size:
        return self.type.size(name)

    def __repr__(self) -> str:
        attrs = "".join(f" {key}={value}" for key, value in self.attrs.items())
        return f"<{self.op}{attrs} {self.type}>"


@dataclass(frozen=True, eq=False)
class Graph:
    """A function of tensors. ``extents`` has the symbols whose sizes are static; algebra ignores it."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    facts: Facts = NO_FACTS
    extents: Mapping[str, int] = field(default_factory=dict)

    def topological(self) -> list[Value]:
        """All values that the outputs need, operands first; inputs first of all and all of them."""
        order: dict[Value, None] = dict.fromkeys(self.inputs)
        stack = [(value, False) for value in reversed(self.outputs)]
        while stack:
            value, ready = stack.pop()
            if value in order:
                continue
            if ready:
                order[value] = None
                continue
            stack.append((value, True))
            stack.extend((operand, False) for operand in reversed(value.operands))
        return list(order)

    def users(self) -> dict[Value, list[Value]]:
        """For each value, the values that have it as an operand (once for each time)."""
        found: dict[Value, list[Value]] = {value: [] for value in self.topological()}
        for value in found:
            for operand in value.operands:
                found[operand].append(value)
        return found

    def named(self, name: str) -> Graph:
        return replace(self, name=name)

    def requirements(self) -> Facts:
        """The facts, and that no dim is empty over which a maximum or minimum is taken.

        CleaveError, located, where a static extent makes one empty.
        """
        nonempty: list[str] = []
        for value in self.topological():
            if value.op != "reduce" or value.attrs["kind"] not in ("max", "min"):
                continue
            for name in value.attrs["over"]:
                size = value.operands[0].size(name)
                if not size.symbols <= self.extents.keys():
                    nonempty += [f"1 <= {factor}" for factor in _factors(size)]
                elif size.evaluate(self.extents) == 0:
                    text = f"{value.attrs['kind']} over the empty dimension '{name}' has no value"
                    raise CleaveError(text, value.location)
        return Facts.parse(tuple(dict.fromkeys((*self.facts.texts, *nonempty))))

    def require_one_size_each(self, *, everywhere: bool = False) -> None:
        """CleaveError, located, where one name stands for dims of two sizes: kernels tell dims apart by their names.

        What only views and concats have as an operand is in no kernel, and may have any but if ``everywhere`` is asked.
        """
        facts, sizes, values = self.facts.given(self.extents), dict[str, Size](), self.topological()
        moving = (*ops.VIEWS, "concat", "input")
        computed = [value for value in values if value.op not in moving]
        held = [(each, value) for value in computed for each in (value, *value.operands)]
        held += [(output, output) for output in self.outputs]
        for each, value in ((value, value) for value in values) if everywhere else held:
            for dim in each.dims:
                if (size := sizes.setdefault(dim.name, dim.size)) is dim.size:
                    continue
                try:
                    require_same_size(dim.name, dim.size, size, "another tensor", facts)
                except CleaveError as error:
                    made = value.op != "input"
                    notes = (f"choose another name than '{dim.name}' here",) if made else error.notes
                    raise CleaveError(error.message, value.location, notes) from None

    def require_sizes_of(self, facts: Iterable[str]) -> None:
        """CleaveError for a fact about nothing that the function has."""
        known = {symbol for value in self.topological() for dim in value.dims for symbol in dim.size.symbols}
        for text in facts:
            if not known & _words(text):
                notes = (f"its sizes: {', '.join(sorted(known)) or 'none'}",)
                raise CleaveError(f"the fact '{text}' is about no size of {self.name}", notes=notes)

    def coverage(self) -> tuple[str, ...]:
        """What must hold so that views look at what is there, where the sizes do not say so themselves.

        The parts of a split cover its dim, a slice lies within its dim, a merged dim has as many elements as its parts.
        """
        found: dict[str, None] = {}
        for value in self.topological():
            for less, more in _COVERED[value.op](value) if value.op in _COVERED else ():
                if self.facts.less_equal(less, more) is not Answer.YES:
                    found[f"{less} <= {more}"] = None
        return tuple(found)

    def deduplicated(self, made: dict[Hashable, Value] | None = None) -> Graph:
        """The same graph with equal ops on equal operands made one value.

        ``made``: the values of other graphs, which are taken where they are equal, and to which these are added.
        """
        made = {} if made is None else made
        new: dict[Value, Value] = {}
        for value in self.topological():
            operands = tuple(new[operand] for operand in value.operands)
            key = (value.op, operands, value.type, tuple(sorted((k, str(v)) for k, v in value.attrs.items())))
            same = operands == value.operands
            new[value] = made.setdefault(key, value if same else replace(value, operands=operands))
        outputs = tuple(new[value] for value in self.outputs)
        return Graph(self.name, tuple(new[value] for value in self.inputs), outputs, self.facts, self.extents)

    def with_sizes(self, known: Mapping[str, int]) -> Graph:
        """The graph in which these symbols, which are no dim's own, are numbers."""
        new: dict[Value, Value] = {}
        for value in self.topological():
            operands = tuple(new[operand] for operand in value.operands)
            dims = tuple(Dim(dim.name, dim.size.substitute(known)) for dim in value.dims)
            attrs = {key: _with_sizes(key, text, known) for key, text in value.attrs.items()}
            new[value] = replace(value, operands=operands, type=TensorType(dims, value.dtype), attrs=attrs)
        facts = Facts.parse(text for text in self.facts.given(known).texts if not known.keys() & _words(text))
        inputs, outputs = (tuple(new[value] for value in values) for values in (self.inputs, self.outputs))
        return replace(self, inputs=inputs, outputs=outputs, facts=facts)

    def __str__(self) -> str:
        names = {value: f"%{index}" for index, value in enumerate(self.topological())}
        lines = [f"graph @{self.name}"]
        for value, name in names.items():
            operands = ", ".join(names[operand] for operand in value.operands)
            attrs = "".join(f" {key}={attr}" for key, attr in value.attrs.items())
            lines.append(f"  {name} = {value.op}({operands}){attrs} : {value.type}")
        return "\n".join([*lines, f"  return {', '.join(names[value] for value in self.outputs)}"])


def _factors(size: Size) -> list[Size]:
    """Sizes that are positive if their product ``size`` is: itself, unless it is one term."""
    if len(size.terms) != 1:
        return [size]
    ((monomial, _),) = size.terms
    return [from_atom(atom) for atom in monomial]


def _words(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", text))


def _with_sizes(key: str, attribute: Any, known: Mapping[str, int]) -> Any:
    """An attribute of an op in which symbols are numbers: a size, dims, or anything else, which stays as it is."""
    if key == "offset":
        return str(parse(attribute).substitute(known))
    if isinstance(attribute, list | tuple):
        return [_with_sizes(key, text, known) for text in attribute]  # pyright: ignore[reportUnknownVariableType]
    if key in ("into", "to", "dim") and "=" in attribute:
        name, size = Dim.parse(attribute)
        return str(Dim(name, size.substitute(known)))
    return attribute


def _split_covers(value: Value) -> Iterator[tuple[Size, Size]]:
    parts, part = (Dim.parse(text).size for text in value.attrs["into"])
    yield value.operands[0].size(value.attrs["dim"]), parts * part


def _slice_lies_within(value: Value) -> Iterator[tuple[Size, Size]]:
    first = parse(value.attrs["offset"])
    yield const(0), first
    yield first + Dim.parse(value.attrs["into"]).size, value.operands[0].size(value.attrs["dim"])


def _merge_has_elements(value: Value) -> Iterator[tuple[Size, Size]]:
    product = math.prod((value.operands[0].size(name) for name in value.attrs["dims"]), start=const(1))
    yield value.size(Dim.parse(value.attrs["into"]).name), product


_COVERED = {"split": _split_covers, "slice": _slice_lies_within, "merge": _merge_has_elements}


class GraphBuilder:
    """Builds a graph op by op, inferring each type from the table.

    >>> b = GraphBuilder("matmul")
    >>> x, w = b.input("m k", "f16"), b.input("k n", "f16")
    >>> graph = b.build(b.contract(x, w, over=["k"], dtype="f16"))
    """

    def __init__(self, name: str, facts: Facts | Iterable[str] = (), extents: Mapping[str, int] | None = None) -> None:
        self.name = name
        self.facts = facts if isinstance(facts, Facts) else Facts.parse(tuple(facts))
        self.extents = dict(extents or {})
        self.inputs: list[Value] = []
        self.made: dict[str, Dim] = {}  # the dims that ops gave, each as the last one did
        self._known: tuple[dict[str, int], Facts] = {}, self.facts

    def input(self, dims: str | Sequence[Dim], dtype: str, location: str | None = None) -> Value:
        """A new argument; ``dims`` as in ``"kv m d=64"``: an integer size gives the dim's symbol that extent."""
        parsed = self._parse_dims(dims) if isinstance(dims, str) else tuple(dims)
        value = Value("input", (), TensorType(parsed, dtype), {"index": len(self.inputs)}, location)
        self.inputs.append(value)
        return value

    def _parse_dims(self, text: str) -> tuple[Dim, ...]:
        dims: list[Dim] = []
        for word in text.split():
            name, _, size = word.partition("=")
            if size.isdecimal():
                known = self.extents.setdefault(name, int(size))
                if known != int(size):
                    raise CleaveError(f"the size '{name}' is {known} and {size}")
                word = name
            dims.append(Dim.parse(word))
        return tuple(dims)

    def op(
        self,
        name: str,
        *operands: Value,
        dtype: str | None = None,
        order: Sequence[str] | None = None,
        location: str | None = None,
        **attrs: Any,
    ) -> Value:
        """Append an op; ``dtype`` and ``order`` where the table leaves them free."""
        attrs = {k.rstrip("_"): tuple(v) if isinstance(v, list) else v for k, v in attrs.items()}
        types = [operand.type for operand in operands]
        facts = self._facts()
        result = ops.infer(name, types, attrs, facts)
        dims = result.dims if order is None else tuple(Dim(n, result.size(n)) for n in order)
        result = TensorType(dims, dtype or result.dtype)
        ops.check_result(name, types, attrs, result, facts)
        self.made |= {dim.name: dim for dim in result.dims}
        return Value(name, operands, result, attrs, location)

    def known_dims(self) -> dict[str, Dim]:
        """Of arguments and what was made of them."""
        return self.made | {dim.name: dim for value in self.inputs for dim in value.dims}

    def known_symbols(self) -> set[str]:
        """Of these dims' sizes and of facts."""
        sizes = {symbol for dim in self.known_dims().values() for symbol in dim.size.symbols}
        return sizes | {word for text in self.facts.texts for word in _words(text)}

    def _facts(self) -> Facts:
        """The facts, static extents among them."""
        if self._known[0] != self.extents:
            self._known = dict(self.extents), self.facts.given(self.extents)
        return self._known[1]

    def constant(self, value: float | int | bool, dtype: str, dims: Sequence[Dim] = ()) -> Value:
        """CleaveError for a number that is none of the type."""
        return Value("constant", (), TensorType(tuple(dims), dtype), {"value": number_of(value, dtype)})

    def __getattr__(self, name: str) -> Callable[..., Value]:
        if name.rstrip("_") in ops.OPS:
            return partial(self.op, name.rstrip("_"))
        raise AttributeError(name)

    def build(self, *outputs: Value) -> Graph:
        return one_size_each(Graph(self.name, tuple(self.inputs), outputs, self.facts, dict(self.extents)))


def one_size_each(graph: Graph) -> Graph:
    """The graph with the symbol of a dim's name as its size, where that is known to be equal and is in use.

    ``e=32`` beside a dim ``e`` of that extent is ``e``; ``h`` and ``e`` merged to ``d`` beside a dim ``d`` are ``d``.
    """
    values = graph.topological()
    bare = {dim.name for value in values for dim in value.dims if dim.size is sym(dim.name)}
    if all(dim.size is sym(dim.name) or dim.name not in bare for value in values for dim in value.dims):
        return graph
    return _Sizes(graph, frozenset(bare)).rewritten()


class _Sizes:
    def __init__(self, graph: Graph, bare: frozenset[str]) -> None:
        self.graph, self.bare = graph, bare
        self.facts = graph.facts.given(graph.extents)

    def rewritten(self) -> Graph:
        new: dict[Value, Value] = {}
        for value in self.graph.topological():
            type_ = TensorType(tuple(map(self._dim, value.dims)), value.dtype)
            attrs = {key: self._attr(attr) if key in _DIMS else attr for key, attr in value.attrs.items()}
            operands = tuple(new[operand] for operand in value.operands)
            new[value] = Value(value.op, operands, type_, attrs, value.location)
        inputs, outputs = (tuple(new[value] for value in values) for values in (self.graph.inputs, self.graph.outputs))
        return replace(self.graph, inputs=inputs, outputs=outputs)

    def _dim(self, dim: Dim) -> Dim:
        own = sym(dim.name)
        same = dim.name in self.bare and self.facts.equal(dim.size, own) is Answer.YES
        return Dim(dim.name, own) if same else dim

    def _attr(self, attr: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if isinstance(attr, tuple):
            return tuple(str(self._dim(Dim.parse(text))) if "=" in text else text for text in attr)
        return str(self._dim(Dim.parse(attr))) if "=" in attr else attr


_DIMS = frozenset(("into", "to", "dim"))
