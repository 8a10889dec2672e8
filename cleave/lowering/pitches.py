"""A function whose arguments are parts of larger tensors: it takes those, and slices them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from cleave.dialects.dims import Dim, Facts, parse
from cleave.dialects.graph import Graph, Value
from cleave.dialects.tensor_type import TensorType
from cleave.lowering.source import entry_graph, graph_text
from cleave.runtime.pitched import Layouts, Pitched
from cleave.schedule.rename import viewed


def with_pitches(text: str, name: str, layouts: Layouts) -> str | None:
    """The function alone, whose arguments of these numbers are the row-major tensors around what they were.

    A dim that is padded there has a size of its own, a symbol. None where a result is (a view of) such an argument:
    it has no memory of its own then.
    """
    graph, empty_rows = entry_graph(text, name)
    changed = {graph.inputs[number] for number, _ in layouts}
    if any(viewed(output) in changed for output in graph.outputs):
        return None
    rewriter = _Rewriter(graph)
    for number, layout in layouts:
        rewriter.widen(number, layout)
    return graph_text(rewriter.graph(), empty_rows=empty_rows)


@dataclass
class _Rewriter:
    source: Graph
    new: dict[Value, Value] = field(default_factory=dict[Value, Value])
    inputs: dict[Value, Value] = field(default_factory=dict[Value, Value])
    facts: list[str] = field(default_factory=list[str])

    def widen(self, number: int, layout: Pitched) -> None:
        """Put the part of a wider input in the place of input ``number``."""
        old = self.source.inputs[number]
        dims = [old.dims[axis] for axis in layout.order]
        wide = [
            self._pitch(dim, number) if is_padded else dim for dim, is_padded in zip(dims, layout.padded, strict=True)
        ]
        value = self.inputs[old] = replace(old, type=TensorType(tuple(wide), old.dtype))
        for index, (dim, around) in enumerate(zip(dims, wide, strict=True)):
            if dim is around:
                continue
            kept = tuple(dims[: index + 1]) + tuple(wide[index + 1 :])
            attrs = {"dim": around.name, "into": str(dim), "offset": "0"}
            value = Value("slice", (value,), TensorType(kept, old.dtype), attrs, old.location)
            self.facts.append(f"{dim.size} <= {around.size}")
        if value.names != old.names:
            value = Value("cast", (value,), old.type, {}, old.location)  # which fixes the order of the dims
        self.new[old] = value

    def _pitch(self, dim: Dim, number: int) -> Dim:
        source = self.source
        taken = {symbol for value in source.topological() for d in value.dims for symbol in (d.name, *d.size.symbols)}
        taken |= {word for text in source.facts.texts for word in re.findall(r"\w+", text)}
        name = f"{dim.name}_pitch{number}"
        while name in taken:
            name += "_"
        return Dim(name, parse(name))

    def graph(self) -> Graph:
        for value in self.source.topological():
            if value not in self.new:
                operands = tuple(self.new[operand] for operand in value.operands)
                self.new[value] = value if operands == value.operands else replace(value, operands=operands)
        source = self.source
        return replace(
            source,
            inputs=tuple(self.inputs.get(value, value) for value in source.inputs),
            outputs=tuple(self.new[value] for value in source.outputs),
            facts=Facts.parse((*source.facts.texts, *self.facts)),
        )
