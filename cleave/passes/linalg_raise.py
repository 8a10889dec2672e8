"""Emits graph ops for the ops of one function that can be raised, beside them, and then removes those."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.dialects.dims import Dim, Size, const
from cleave.errors import CleaveError
from cleave.passes.emitter import Emitter
from cleave.passes.linalg_body import SCALAR_OPS, Unraisable
from cleave.passes.linalg_body_raise import BodyRaiser
from cleave.passes.linalg_connect import (
    Connector,
    concat_axis,
    groups_of,
    is_nameable,
    kept_axes,
    real_axes,
    shape_of,
    undone_collapse,
)
from cleave.passes.linalg_dims import Names, named_dims, static_extents
from cleave.passes.linalg_extracts import Tie, tie

BORDER = "builtin.unrealized_conversion_cast"
#: Ops without effects that may go when nothing uses them.
_PURE_DIALECTS = ("arith.", "math.", "tensor.", "linalg.", "builtin.unrealized_conversion_cast", "affine.apply")


def tensor_args(op: ir.Operation) -> bool:
    """Whether the op reads or makes tensors."""
    return any(isinstance(value.type, ir.ShapedType) for value in (*op.operands, *op.results))


#: Ops that say nothing by themselves: they go when nothing uses them.
_NEUTRAL = ("tensor.empty", "tensor.dim", "tensor.from_elements", "func.return")
_RESHAPES = ("tensor.collapse_shape", "tensor.expand_shape", "tensor.cast")


def is_unwritten(value: ir.Value) -> bool:
    """Whether the tensor is fresh memory, perhaps reshaped."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return False
    return owner.name == "tensor.empty" or (owner.name in _RESHAPES and is_unwritten(owner.operands[0]))


class Raiser:
    """One attempt at a function. ``refused`` has the reasons why ops, by number, stay as they are."""

    def __init__(self, func: ir.Operation, refused: Mapping[int, str], ties: Sequence[Tie] = ()) -> None:
        self.func, self.refused = func, dict(refused)
        self.block = func.regions[0].blocks[0]
        self.ops = [view.operation for view in self.block.operations]
        self.connector = Connector()
        tie(self.connector, self.block, ties)
        self.encoded: dict[ir.Value, ir.Value] = {}  # results of raised ops
        self._entered: dict[ir.Value, ir.Value] = {}  # what comes from ops that stay, and arguments
        self.names: Names
        self.emitter: Emitter

    def attempt(self) -> None:
        """Emit what can be raised; what turns out that it cannot is added to ``refused``."""
        for number, op in enumerate(self.ops):
            self._guarded(number, partial(self.connector.connect, number, op))
        returned = self.ops[-1].operands
        self.names = self.connector.name([*self.block.arguments, *returned])
        dims = named_dims(self.names)
        self.emitter = Emitter(dims, static_extents(self.names, dims))
        for number, op in enumerate(self.ops):
            self._guarded(number, partial(self._raise, number, op))

    def _guarded(self, number: int, step: Callable[[], None]) -> None:
        if number in self.refused:
            return
        try:
            step()
        except Unraisable as reason:
            self.refused[number] = str(reason)
        except CleaveError as error:
            self.refused[number] = error.message

    def _raise(self, number: int, op: ir.Operation) -> None:
        rule = _RULES.get(op.name)
        if op.name in _RESHAPES and is_unwritten(op.operands[0]):
            return
        if rule is not None:
            self.emitter.before(op)
            rule(self, number, op)
        elif tensor_args(op) and op.name not in _NEUTRAL:
            raise Unraisable(_REASONS.get(op.name, "no tensor op of ours says what it does"))
        elif op.regions or op.name.startswith(("cf.", "func.call")):
            raise Unraisable("it is no computation on tensors")

    # --- values ------------------------------------------------------------------------------------------------------

    def dim_names(self, value: ir.Value) -> list[str]:
        return [self.names.name(node) for node in self.connector.axes(value)]

    def tensor(self, value: ir.Value) -> ir.Value:
        """The tensor as a value of ours. It may lack dims along which it is constant."""
        if value in self.encoded:
            return self.encoded[value]
        if is_unwritten(value):
            raise Unraisable("it reads a tensor that nothing has written")
        if value not in self._entered:
            self._entered[value] = self._border_in(value, self.dim_names(value))
        return self._entered[value]

    def _border_in(self, value: ir.Value, names: Sequence[str]) -> ir.Value:
        type_ = self._named_type(value.type, names)
        return ir.Operation.create(BORDER, [type_], [value], ip=self.emitter.point, loc=self.emitter.location).results[
            0
        ]

    def _named_type(self, plain: ir.Type, names: Sequence[str]) -> ir.Type:
        """A plain tensor type with names for its dims."""
        type_ = ir.RankedTensorType(plain)
        cleave.dtype_of(type_.element_type)
        return ir.RankedTensorType.get(type_.shape, type_.element_type,
                                       cleave.dims_attr([self.emitter.dims[name] for name in names]))  # fmt: skip

    def scalar(self, value: ir.Value) -> ir.Value:
        """A scalar from outside a body as a tensor of rank 0."""
        owner = value.owner
        if not isinstance(owner, ir.Block):
            if owner.name == "tensor.dim":
                counted = self._extent(owner.operation)
                if counted is not None:
                    return counted
            if owner.name in SCALAR_OPS:
                return SCALAR_OPS[owner.name](self.emitter, owner.operation, [self.scalar(o) for o in owner.operands])
        type_ = ir.RankedTensorType.get([], value.type)
        point, location = self.emitter.point, self.emitter.location
        held = ir.Operation.create("tensor.from_elements", [type_], [value], ip=point, loc=location)
        return self._border_in(held.results[0], [])

    def _extent(self, op: ir.Operation) -> ir.Value | None:
        """The extent of an axis: as many ones as it has elements."""
        tensor, position = op.operands
        index = position.owner
        if isinstance(index, ir.Block) or index.name != "arith.constant" or not self.connector.knows(tensor):
            return None
        name = self.dim_names(tensor)[ir.IntegerAttr(index.attributes["value"]).value]
        ones = self.emitter.constant(1, "i64", [name])
        return self.emitter.cast(self.emitter.emit("reduce", ones, kind="sum", over=[name]), "index")

    def without(self, value: ir.Value, names: Sequence[str]) -> ir.Value:
        """``value`` without dims of extent 1."""
        present = [name for name in names if name in self.emitter.names(value)]
        if not present:
            return value
        return self.emitter.emit("reduce", value, kind="max", over=present)  # a sum would make +0.0 of -0.0

    def renamed(self, value: ir.Value, pairs: Mapping[str, str]) -> ir.Value:
        """``value`` with several dims renamed at once."""
        pairs = {old: new for old, new in pairs.items() if old in self.emitter.names(value)}
        clash = any(new in self.emitter.names(value) for new in pairs.values())
        steps = list(pairs.items())
        if clash:
            between = {old: f"{new}_{old}" for old, new in pairs.items()}
            for old, middle in between.items():
                self.emitter.dims[middle] = Dim(middle, self.emitter.dims[old].size)
            steps = [*between.items(), *((between[old], new) for old, new in pairs.items())]
        for old, new in steps:
            if self.emitter.dims[old].size is not self.emitter.dims[new].size:
                raise Unraisable(f"dimension '{old}' would have to be '{new}', whose size is another")
            value = self.emitter.emit("rename", value, from_=old, to=str(self.emitter.dims[new]))
        return value

    # --- ops ---------------------------------------------------------------------------------------------------------

    def raise_constant(self, number: int, op: ir.Operation) -> None:
        if isinstance(op.results[0].type, ir.ShapedType):
            self.encoded[op.results[0]] = SCALAR_OPS["arith.constant"](self.emitter, op, [])

    def raise_generic(self, number: int, op: ir.Operation) -> None:
        generic = self.connector.generics[number]
        loops = [self.names.name(node) for node in self.connector.loops(number)]
        body = BodyRaiser(self, number, generic, loops)
        self.emitter.before(op, [loops[loop] for loop in generic.output_order])
        for result, value in enumerate(op.results):
            if any(True for _ in value.uses):
                self.encoded[value] = body.result(result)

    def raise_collapse(self, number: int, op: ir.Operation) -> None:
        value, shape = self.tensor(op.operands[0]), shape_of(op.operands[0])
        names, wholes = self.dim_names(op.operands[0]), self.dim_names(op.results[0])
        if not wholes:
            value = self.without(value, names)
        for group, whole in zip(groups_of(op), wholes, strict=True):
            real = [names[axis] for axis in real_axes(group, shape)]
            value = self.without(value, [names[axis] for axis in group if names[axis] not in real])
            if len(real) > 1 and any(name in self.emitter.names(value) for name in real):
                size = self.emitter.dims[whole].size
                value = self.emitter.emit("merge", self.emitter.spread(value, real), dims=real, into=f"{whole}={size}")
        self.encoded[op.results[0]] = value

    def raise_expand(self, number: int, op: ir.Operation) -> None:
        before = undone_collapse(op)
        if before is not None:
            self.encoded[op.results[0]] = self.tensor(before)
            return
        value, shape = self.tensor(op.operands[0]), shape_of(op.results[0])
        wholes, names = self.dim_names(op.operands[0]), self.dim_names(op.results[0])
        for group, whole in zip(groups_of(op), wholes, strict=True):
            real = [names[axis] for axis in real_axes(group, shape)]
            if len(real) > 1 and whole in self.emitter.names(value):
                value = self._split(value, whole, real)
        self.encoded[op.results[0]] = value

    def _split(self, value: ir.Value, whole: str, parts: Sequence[str]) -> ir.Value:
        """Cut off the first part until two are left; what remains in between is the product of the others."""
        dims = self.emitter.dims
        while len(parts) > 2:
            first, *parts = parts
            rest, size = "_".join(parts), dims[parts[0]].size
            for part in parts[1:]:
                size = size * dims[part].size
            dims[rest] = Dim(rest, size)
            value = self.emitter.emit("split", value, dim=whole, into=[str(dims[first]), str(dims[rest])])
            whole = rest
        return self.emitter.emit("split", value, dim=whole, into=[str(dims[part]) for part in parts])

    def raise_reshape(self, number: int, op: ir.Operation) -> None:
        value, names, results = (
            self.tensor(op.operands[0]),
            self.dim_names(op.operands[0]),
            self.dim_names(op.results[0]),
        )
        for left, right in self.connector.reshapes[number]:
            parts, wholes = [names[axis] for axis in left], [results[axis] for axis in right]
            if len(parts) > 1 and any(name in self.emitter.names(value) for name in parts):
                into = f"{wholes[0]}={self.emitter.dims[wholes[0]].size}"
                value = self.emitter.emit("merge", self.emitter.spread(value, parts), dims=parts, into=into)
            elif len(wholes) > 1 and parts[0] in self.emitter.names(value):
                value = self._split(value, parts[0], wholes)
        self.encoded[op.results[0]] = value

    def raise_softmax(self, number: int, op: ir.Operation) -> None:
        value = self.emitter.laid_out(self.tensor(op.operands[0]), self.dim_names(op.operands[0]))
        over = [self.dim_names(op.operands[0])[ir.IntegerAttr(op.attributes["dimension"]).value]]
        shifted = self.emitter.emit("sub", value, self.emitter.emit("reduce", value, kind="max", over=over))
        power = self.emitter.emit("exp", shifted)
        total = self.emitter.emit("reduce", power, kind="sum", over=over)
        self.encoded[op.results[0]] = self.emitter.emit("div", power, total)

    def raise_cast(self, number: int, op: ir.Operation) -> None:
        self.encoded[op.results[0]] = self.tensor(op.operands[0])

    def raise_slice(self, number: int, op: ir.Operation) -> None:
        value = self.tensor(op.operands[0])
        results = dict(zip(kept_axes(op, op.results[0]), self.dim_names(op.results[0]), strict=True))
        for axis, old in enumerate(self.dim_names(op.operands[0])):
            if old not in self.emitter.names(value):
                continue
            range_, new = self.connector.slice_range(op, axis), results.get(axis)
            if range_ is not None:
                into = new or self.new_dim(f"{old}_1", const(1))
                value = self.emitter.emit(
                    "slice", value, dim=old, into=str(self.emitter.dims[into]), offset=str(range_[0])
                )
                old = into
            if new is None:
                value = self.without(value, [old])
        self.encoded[op.results[0]] = value

    def raise_concat(self, number: int, op: ir.Operation) -> None:
        joined, names = concat_axis(op), self.dim_names(op.results[0])
        whole = names[joined]
        value, name = self._part(number, op, 0, whole)
        for index in range(1, len(op.operands)):
            last = index + 1 == len(op.operands)
            other, second = self._part(number, op, index, whole, taken=name)
            into = whole if last else self.new_dim(f"{name}_{second}", self._size(name) + self._size(second))
            value = self.emitter.emit("concat", value, other, dims=[name, second], into=str(self.emitter.dims[into]))
            name = into
        self.encoded[op.results[0]] = value

    def _part(self, number: int, op: ir.Operation, index: int, whole: str, taken: str = "") -> tuple[ir.Value, str]:
        """An operand of a concat with the dims that the result has beside the joined one, and what that is called."""
        joined, operand = concat_axis(op), op.operands[index]
        names = self.dim_names(operand)
        value = self.emitter.laid_out(self.tensor(operand), names)
        pairs = {
            names[axis]: self.names.name(self.connector.renames[number, index, axis])
            for axis in range(len(names))
            if (number, index, axis) in self.connector.renames
        }
        name = names[joined]
        if name in (whole, taken) or name in pairs.values():
            pairs[name] = self.new_dim(f"{name}_{index}", self._size(name))
        return self.renamed(value, pairs), pairs.get(name, name)

    def _size(self, name: str) -> Size:
        return self.emitter.dims[name].size

    def new_dim(self, name: str, size: Size) -> str:
        """A dim of its own, called ``name`` if that is free."""
        names = (name, *(f"{name}_{number}" for number in range(len(self.emitter.dims) + 1)))
        free = next(each for each in names if each not in self.emitter.dims)
        self.emitter.dims[free] = Dim(free, size)
        return free

    # --- removal -----------------------------------------------------------------------------------------------------

    def replace(self) -> bool:
        """Remove the ops that were raised. True where nothing but ops of ours is left: the signature has our types."""
        for op in reversed(self.ops[:-1]):
            for value in op.results:
                used = any(True for _ in value.uses)
                if used and value in self.encoded and not self._stays(value):
                    value.replace_all_uses_with(self._border_out(op, value))
            if op.name.startswith(_PURE_DIALECTS) and not any(True for value in op.results for _ in value.uses):
                op.erase()
        self._remove_unused()
        return self._only_ours()

    def _stays(self, value: ir.Value) -> bool:
        """Whether a raised tensor is better left to its op: a constant that ops use which stay themselves."""
        returned = any(use.owner.name == "func.return" for use in value.uses)
        return not returned and self.emitter.literal(self.encoded[value]) is not None

    def has_raised(self) -> bool:
        """Whether any op of ours is left after ``replace``."""
        return any(view.operation.name.startswith("cleave.") for view in self.block.operations)

    def _remove_unused(self) -> None:
        for view in reversed(list(self.block.operations)):
            op = view.operation
            ours = op.name.startswith("cleave.") or op.name == BORDER or op.name == "tensor.from_elements"
            if ours and not any(True for value in op.results for _ in value.uses):
                op.erase()

    def _border_out(self, op: ir.Operation, value: ir.Value) -> ir.Value:
        """The raised tensor in its plain type, for those that stay."""
        self.emitter.before(op)
        self.emitter.forget()
        encoded = self.emitter.laid_out(self.encoded[value], self.dim_names(value))
        return ir.Operation.create(
            BORDER, [value.type], [encoded], ip=self.emitter.point, loc=self.emitter.location
        ).results[0]

    def _only_ours(self) -> bool:
        *ops, last = [view.operation for view in self.block.operations]
        if any(not op.name.startswith("cleave.") and op.name != BORDER for op in ops):
            return False
        return all(is_nameable(value.type) for value in (*self.block.arguments, *last.operands))

    def encode_signature(self) -> None:
        """Give arguments and results our types, and remove the casts at the border."""
        inputs: list[ir.Type] = []
        for argument in self.block.arguments:
            uses = [use.owner for use in argument.uses if use.owner.name == BORDER]
            names = self.dim_names(argument)
            type_ = self._named_type(argument.type, names)
            argument.set_type(type_)
            inputs.append(type_)
            for cast in uses:
                cast.operation.results[0].replace_all_uses_with(argument)
                cast.operation.erase()
        last = list(self.block.operations)[-1].operation
        for index, value in enumerate(list(last.operands)):
            if not isinstance(value.owner, ir.Block) and value.owner.name == BORDER:
                last.operands[index] = value.owner.operands[0]
        self._remove_unused()
        results = [value.type for value in last.operands]
        self.func.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))


_REASONS = {
    "tensor.insert_slice": "it cuts several axes, leaves elements unwritten, or its extents are no literals",
    "tensor.pad": "what it pads with is no constant, or its extents are no literals",
}
_RULES = {
    "arith.constant": Raiser.raise_constant,
    "linalg.generic": Raiser.raise_generic,
    "tensor.collapse_shape": Raiser.raise_collapse,
    "tensor.expand_shape": Raiser.raise_expand,
    "linalg.softmax": Raiser.raise_softmax,
    "tensor.reshape": Raiser.raise_reshape,
    "tensor.cast": Raiser.raise_cast,
    "tensor.extract_slice": Raiser.raise_slice,
    "tensor.concat": Raiser.raise_concat,
}
