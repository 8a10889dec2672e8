"""Values under the names that an item gives their dims: renamed, cut in two, put together, repeated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from cleave.dialects.dims import Dim, Size
from cleave.dialects.graph import GraphBuilder, Value
from cleave.dialects.tensor_type import TensorType
from cleave.errors import CleaveError
from cleave.search.terms import Item, Pair, Piece


@dataclass(frozen=True)
class Views:
    """Makes views in one program. ``sizes``: of all names."""

    builder: GraphBuilder
    sizes: Mapping[str, Size]

    def of_items(self, value: Value, dims: tuple[Dim, ...], items: tuple[Item, ...]) -> Value:
        """Views of the declared dims under the names of the items."""
        steps: list[tuple[str, Item]] = []
        for dim, item in zip(dims, items, strict=True):
            if item != dim.name:
                value, source = self._out_of_the_way(value, dim, item, {other.name for other in dims})
                steps.append((source, item))
        pieces: dict[str, Piece] = {}
        for source, item in steps:
            if isinstance(item, Piece):
                pieces[source] = item
            elif isinstance(item, Pair):
                into = [str(Dim(item.outer, item.outer_size)), str(Dim(item.inner, item.inner_size))]
                value = self.builder.split(value, dim=source, into=into)
            else:
                value = self.builder.rename(value, **{"from": source, "to": str(Dim(item, self.sizes[item]))})
        return self._put_together(value, pieces)

    def _out_of_the_way(self, value: Value, dim: Dim, item: Item, taken: set[str]) -> tuple[Value, str]:
        """The value and the name of the dim in it: another one where a dim of the value has the item's name."""
        names = {item.outer, item.inner} if isinstance(item, Pair) else {getattr(item, "name", item)}
        if not names & (taken - {dim.name}):
            return value, dim.name
        name = f"{dim.name}_was"
        return self.builder.rename(value, **{"from": dim.name, "to": str(Dim(name, dim.size))}), name

    def _put_together(self, value: Value, pieces: Mapping[str, Piece]) -> Value:
        """Dims that are pieces of merged ones, merged. CleaveError if there are two of the same piece."""
        for merged in dict.fromkeys(item.name for item in pieces.values()):
            halves = {item.is_outer: (name, item) for name, item in pieces.items() if item.name == merged}
            if len(halves) != sum(item.name == merged for item in pieces.values()):
                raise CleaveError(f"a dimension of '{merged}' is used twice in one view")
            value = self._merged(value, merged, halves)
        return value

    def _merged(self, value: Value, merged: str, halves: Mapping[bool, tuple[str, Piece]]) -> Value:
        """A view under a merged dimension, repeated along the half that the value does not have."""
        names: list[str] = []
        _, any_piece = next(iter(halves.values()))
        for is_outer, word in ((True, "outer"), (False, "inner")):
            if is_outer in halves:
                names.append(halves[is_outer][0])
                continue
            names.append(f"{merged}_{word}")
            missing = Dim(names[-1], any_piece.outer_size if is_outer else any_piece.inner_size)
            value = self._along(value, (missing,))
        return self.builder.merge(value, dims=names, into=str(Dim(merged, self.sizes[merged])))

    def of_dims(self, value: Value, names: tuple[str, ...]) -> Value:
        """The value with just these dims, in this order, as an opaque op saw it."""
        value = self.repeated(value, names)
        if value.names == names:
            return value
        return Value("cast", (value,), TensorType(tuple(Dim(name, value.size(name)) for name in names), value.dtype))

    def repeated(self, value: Value, names: tuple[str, ...]) -> Value:
        """The value, repeated along those of the dims that it does not depend on."""
        return self._along(value, tuple(Dim(name, self.sizes[name]) for name in names if name not in value.names))

    def _along(self, value: Value, dims: tuple[Dim, ...]) -> Value:
        if not dims:
            return value
        nothing = self.builder.constant(False if value.dtype == "i1" else 0, value.dtype, dims)
        return self.builder.op("max" if value.dtype == "i1" else "add", value, nothing)


def extent(builder: GraphBuilder, size: Size, dtype: str) -> Value:
    """The size as a number: a sum of ones."""
    # Along a dim of its own, of one name in all programs, for they are lifted into the same terms.
    dim = Dim(re.sub(r"\W+", "_", f"ones_{size}"), size)
    return builder.reduce(builder.constant(1.0, dtype, (dim,)), kind="sum", over=[dim.name])
