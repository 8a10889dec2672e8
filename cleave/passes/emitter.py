"""Emits graph ops into a function: infers types, reuses equal ops, folds casts of literals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cleave.bindings import ir
from cleave.dialects import cleave, ops
from cleave.dialects.dims import NO_FACTS, Dim
from cleave.dialects.tensor_type import DTYPES, TensorType, is_float
from cleave.errors import CleaveError


class Emitter:
    """Builds ops at ``before``; ``dims`` has the dim of each name, ``extents`` the symbols that are static."""

    def __init__(self, dims: dict[str, Dim], extents: Mapping[str, int]) -> None:
        self.dims, self.extents = dims, extents
        self.order: Sequence[str] = ()
        self.keep_order = True
        self.location: ir.Location | None = None
        self.point: ir.InsertionPoint | None = None
        self._facts = NO_FACTS.given(extents)
        self._known: dict[Any, ir.Value] = {}

    def before(self, op: ir.Operation, order: Sequence[str] = ()) -> None:
        """From now on emit before ``op``, at its location, with dims in the order of ``order`` where that is free."""
        self.location, self.point, self.order = op.location, ir.InsertionPoint(op), order

    def forget(self) -> None:
        """Reuse nothing emitted so far: the next place may come before it."""
        self._known.clear()

    def names(self, value: ir.Value) -> tuple[str, ...]:
        return cleave.tensor_type_of(value).names

    def dtype(self, value: ir.Value) -> str:
        return cleave.tensor_type_of(value).dtype

    def emit(self, name: str, *operands: ir.Value, dtype: str | None = None, order: Sequence[str] | None = None,
             **attrs: Any) -> ir.Value:  # fmt: skip
        """``cleave.<name>`` on the operands; ``dtype`` and ``order`` where the table leaves them free."""
        attrs = {key.rstrip("_"): value for key, value in attrs.items()}
        if name == "split" and (whole := self._merged(operands[0], attrs)) is not None:
            return whole
        inferred = ops.infer(name, [cleave.tensor_type_of(operand) for operand in operands], attrs, self._facts)
        names = inferred.names
        if ops.OPS[name].free_order:
            names = tuple(self._arranged(names, operands) if order is None else order)
        return self._build(name, operands, attrs, names, dtype or inferred.dtype)

    def _merged(self, value: ir.Value, split: Mapping[str, Any]) -> ir.Value | None:
        """What a split would get back, if ``value`` was just merged from the same dims."""
        owner = value.owner
        if isinstance(owner, ir.Block) or owner.name != "cleave.merge":
            return None
        attrs = cleave.plain_attrs(owner.operation, ops.OPS["merge"])
        names = tuple(Dim.parse(text).name for text in split["into"])
        same = Dim.parse(attrs["into"]).name == split["dim"] and tuple(attrs["dims"]) == names
        return owner.operands[0] if same else None

    def constant(self, value: float | int | bool, dtype: str, names: Sequence[str] = ()) -> ir.Value:
        return self._build("constant", (), {"value": value}, names, dtype)

    def _arranged(self, names: Sequence[str], operands: Sequence[ir.Value]) -> Sequence[str]:
        """The order of ``names``: that of an operand that has them all, if one may keep it; else the order set."""
        if self.keep_order:
            for operand in operands:
                if set(self.names(operand)) == set(names):
                    return self.names(operand)
        return sorted(names, key=self._rank)

    def _rank(self, name: str) -> int:
        return self.order.index(name) if name in self.order else len(self.order)

    def _build(
        self, name: str, operands: Sequence[ir.Value], attrs: Mapping[str, Any], names: Sequence[str], dtype: str
    ) -> ir.Value:
        if dtype not in DTYPES:
            raise CleaveError(f"element type {dtype} is not supported")
        key = (name, tuple(operands), repr(sorted(attrs.items())), tuple(names), dtype)
        if key not in self._known:
            type_ = TensorType(tuple(self.dims[n] for n in names), dtype)
            self._known[key] = cleave.build(name, operands, attrs, result=type_, extents=self.extents,
                                            loc=self.location, ip=self.point)  # fmt: skip
        return self._known[key]

    def literal(self, value: ir.Value) -> float | int | bool | None:
        """The value of a splat constant; None for anything else."""
        owner = value.owner
        if isinstance(owner, ir.Block) or owner.name != "cleave.constant":
            return None
        return cleave.plain_attrs(owner.operation, ops.OPS["constant"])["value"]

    def cast(self, value: ir.Value, dtype: str) -> ir.Value:
        """Conversion to ``dtype``; that of a literal is done here, that of an index counts in ``dtype`` at once."""
        source = self.dtype(value)
        if source == dtype:
            return value
        literal = self.literal(value)
        if literal is not None and (is_float(dtype) or not is_float(source)) and dtype != "i1":
            return self.constant(literal, dtype, self.names(value))
        owner = value.owner
        if not isinstance(owner, ir.Block) and source == "index" and dtype in ("i32", "i64"):
            if owner.name == "cleave.index":
                return self.emit("index", dim=str(self.dims[self.names(value)[0]]), dtype=dtype)
            if owner.name == "cleave.cast" and self.dtype(owner.operands[0]) == dtype:
                return owner.operands[0]
        return self.emit("cast", value, dtype=dtype)

    def counted(self, value: ir.Value) -> ir.Value:
        """An integer of a type that tensors in memory have, in place of an index."""
        if self.dtype(value) != "index":
            return value
        owner = value.owner
        source = None if isinstance(owner, ir.Block) or owner.name != "cleave.cast" else owner.operands[0]
        return source if source is not None and self.dtype(source) in ("i32", "i64") else self.cast(value, "i64")

    def spread(self, value: ir.Value, names: Sequence[str]) -> ir.Value:
        """``value`` with all of ``names`` among its dims."""
        missing = [name for name in names if name not in self.names(value)]
        if not missing:
            return value
        dtype = self.dtype(value)
        one: float | int | bool = True if dtype == "i1" else 1.0 if is_float(dtype) else 1
        return self.emit("mul", value, self.constant(one, dtype, missing))

    def laid_out(self, value: ir.Value, names: Sequence[str]) -> ir.Value:
        """``value`` with just ``names`` as its dims, in this order in memory."""
        if set(self.names(value)) == set(names) and self.names(value) != tuple(names):
            return self.emit("cast", value, dtype=self.dtype(value), order=names)
        if self.names(value) == tuple(names):
            return value
        spread_literal = self.literal(value)
        if spread_literal is not None:
            return self.constant(spread_literal, self.dtype(value), names)
        outer, self.order = self.order, names
        spread = self.spread(value, names)
        self.order = outer
        return spread
