"""Ties the axes of tensors together through the ops between them, and names the dims that result."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import prod

from cleave.bindings import ir
from cleave.dialects.tensor_type import DTYPES
from cleave.passes import linalg_dims
from cleave.passes.linalg_body import Unraisable
from cleave.passes.linalg_dims import DimClasses, Names
from cleave.passes.linalg_generic import Generic


def shape_of(value: ir.Value) -> list[int | None]:
    """Static extents of a ranked tensor; None: dynamic. Unraisable for any other type."""
    if not isinstance(value.type, ir.RankedTensorType):
        raise Unraisable(f"a value of type {value.type}")
    type_ = value.type
    if type_.encoding is not None:
        raise Unraisable(f"a tensor with the encoding {type_.encoding}")
    return [None if type_.is_dynamic_dim(i) else type_.get_dim_size(i) for i in range(type_.rank)]


def is_nameable(type_: ir.Type) -> bool:
    """Whether a tensor of the type may get names for its dims."""
    return isinstance(type_, ir.RankedTensorType) and type_.encoding is None and str(type_.element_type) in DTYPES


def groups_of(op: ir.Operation) -> list[list[int]]:
    """The reassociation of a collapse_shape or expand_shape."""
    return [[ir.IntegerAttr(axis).value for axis in ir.ArrayAttr(group)]
            for group in ir.ArrayAttr(op.attributes["reassociation"])]  # fmt: skip


def real_axes(group: Sequence[int], shape: Sequence[int | None]) -> list[int]:
    """The axes of a reassociation group that are more than units; the first where all are units."""
    return [axis for axis in group if shape[axis] != 1] or list(group[:1])


def undone_collapse(op: ir.Operation) -> ir.Value | None:
    """For an expand_shape that undoes a collapse_shape: the tensor before both."""
    source = op.operands[0].owner
    if isinstance(source, ir.Block) or source.name != "tensor.collapse_shape":
        return None
    same = source.attributes["reassociation"] == op.attributes["reassociation"]
    before = source.operands[0]
    return before if same and before.type == op.results[0].type else None


def integer_literal(value: ir.Value) -> int | None:
    """The value of an integer ``arith.constant``."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return None
    attribute = owner.attributes["value"]
    return attribute.value if isinstance(attribute, ir.IntegerAttr) else None


def extent_of(value: ir.Value) -> tuple[ir.Value, int] | None:
    """The tensor and axis whose extent an index or integer is."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return None
    if owner.name == "arith.index_cast":
        return extent_of(owner.operands[0])
    axis = integer_literal(owner.operands[1]) if owner.name == "tensor.dim" else None
    return None if axis is None else (owner.operands[0], axis)


def reshape_groups(op: ir.Operation, same: Callable[[Hashable, Hashable], bool]) -> list[tuple[list[int], list[int]]]:
    """For a ``tensor.reshape``: which axes of the source are which of the result, one of them on one side of each pair.

    ``same`` says whether two axes are known to be one dim. Unraisable where the axes do not fall into such groups.
    """
    source, shape = op.operands
    if isinstance(shape.owner, ir.Block) or shape.owner.name != "tensor.from_elements":
        raise Unraisable("a shape that is computed elsewhere")
    old, new = shape_of(source), shape_of(op.results[0])
    wanted = [extent_of(value) for value in shape.owner.operands]
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) and j < len(new):
        left, right = [i], [j]
        if old[i] is None or new[j] is None:
            extent = wanted[j]
            if old[i] is not None or new[j] is not None or extent is None or not same((source, i), extent):
                raise Unraisable("a shape whose axes cannot be told apart")
        while _product(old, left) != _product(new, right):
            side, extents = (left, old) if _product(old, left) < _product(new, right) else (right, new)
            if side[-1] + 1 == len(extents) or extents[side[-1] + 1] is None:
                raise Unraisable("a shape whose axes cannot be told apart")
            side.append(side[-1] + 1)
        if len(left) > 1 and len(right) > 1:
            raise Unraisable("a shape that mixes several axes")
        groups.append((left, right))
        i, j = left[-1] + 1, right[-1] + 1
    if i < len(old) or j < len(new):
        raise Unraisable("a shape that adds or drops axes")
    return groups


def _product(extents: Sequence[int | None], axes: Sequence[int]) -> int:
    return prod(extents[axis] or 1 for axis in axes)


class Connector:
    """``connect`` each op in order, then ``name`` the classes; ``renames``: (op, operand, axis) that need one."""

    def __init__(self) -> None:
        self.classes = DimClasses()
        self.renames: dict[tuple[int, int, int], Hashable] = {}
        self.generics: dict[int, Generic] = {}
        self.reshapes: dict[int, list[tuple[list[int], list[int]]]] = {}
        self._seen: dict[ir.Value, list[Hashable]] = {}

    def axes(self, value: ir.Value) -> list[Hashable]:
        """The nodes of a tensor's axes."""
        if value not in self._seen:
            shape = shape_of(value)
            self._seen[value] = [(value, axis) for axis in range(len(shape))]
            self.classes.keep_apart(self._seen[value])
            for node, extent in zip(self._seen[value], shape, strict=True):
                self.classes.set_extent(node, extent)
        return self._seen[value]

    def knows(self, value: ir.Value) -> bool:
        return value in self._seen

    def loops(self, number: int) -> list[Hashable]:
        """The nodes of the loops of the generic that is op ``number``."""
        return [(number, loop) for loop in range(len(self.generics[number].reduced))]

    def connect(self, number: int, op: ir.Operation) -> None:
        """Tie what op ``number`` of the function ties. Unraisable where it cannot be one of ours."""
        rule = _RULES.get(op.name)
        if rule is not None:
            rule(self, number, op)

    def connect_generic(self, number: int, op: ir.Operation) -> None:
        generic = self.generics[number] = Generic(op)
        loops = self.loops(number)
        self.classes.keep_apart(loops)
        for result, map_ in zip(op.results, generic.maps[generic.inputs :], strict=True):
            for node, loop in zip(self.axes(result), map_, strict=True):
                if loop is not None:
                    self._unite(loops[loop], node)
        read = [True] * generic.inputs + generic.read_outputs
        for index, (operand, map_) in enumerate(zip(op.operands, generic.maps, strict=True)):
            if not read[index]:
                continue
            for axis, (node, loop) in enumerate(zip(self.axes(operand), map_, strict=True)):
                if loop is not None and not self.classes.unite(loops[loop], node):
                    self.renames[number, index, axis] = loops[loop]
                    self.classes.define_rename(node, loops[loop])

        for op in generic.reads:
            self._connect_read(op, loops)

    def _connect_read(self, op: ir.Operation, loops: Sequence[Hashable]) -> None:
        """The axes that an extract in a body reads at a loop's index have the loop's extent."""
        shape = shape_of(op.operands[0])
        for node, loop, extent in zip(self.axes(op.operands[0]), loops_read(op), shape, strict=True):
            if loop is None or extent == 1:
                continue
            if extent is None or extent != self.classes.extent(loops[loop]):
                raise Unraisable("its body reads a part of a tensor, or one whose extents are not known")
            if not self.classes.unite(loops[loop], node):
                self.classes.define_rename(node, loops[loop])

    def _unite(self, a: Hashable, b: Hashable) -> None:
        if not self.classes.unite(a, b):
            raise Unraisable("it makes one dimension of two")

    def connect_collapse(self, number: int, op: ir.Operation) -> None:
        self._connect_reassociation(op, op.operands[0], op.results[0])

    def connect_expand(self, number: int, op: ir.Operation) -> None:
        before = undone_collapse(op)
        if before is None:
            self._connect_reassociation(op, op.results[0], op.operands[0])
        else:
            self._connect_same(before, op.results[0])

    def _connect_reassociation(self, op: ir.Operation, long: ir.Value, short: ir.Value) -> None:
        parts, wholes = self.axes(long), self.axes(short)
        for group, whole in zip(groups_of(op), wholes, strict=True):
            real = real_axes(group, shape_of(long))
            if len(real) == 1:
                self._unite(parts[real[0]], whole)
            else:
                self.classes.define_product(whole, [parts[axis] for axis in real])

    def connect_reshape(self, number: int, op: ir.Operation) -> None:
        old, new = self.axes(op.operands[0]), self.axes(op.results[0])
        self.reshapes[number] = reshape_groups(op, self._same)
        for left, right in self.reshapes[number]:
            if len(left) == len(right):
                self._unite(old[left[0]], new[right[0]])
            elif len(left) > 1:
                self.classes.define_product(new[right[0]], [old[axis] for axis in left])
            else:
                self.classes.define_product(old[left[0]], [new[axis] for axis in right])

    def connect_cast(self, number: int, op: ir.Operation) -> None:
        self._connect_same(op.operands[0], op.results[0])

    def connect_softmax(self, number: int, op: ir.Operation) -> None:
        if not op.results:
            raise Unraisable("it works on memory, not on tensors")
        self._connect_same(op.operands[0], op.results[0])

    def _connect_same(self, a: ir.Value, b: ir.Value) -> None:
        for one, other in zip(self.axes(a), self.axes(b), strict=True):
            self._unite(one, other)

    def connect_slice(self, number: int, op: ir.Operation) -> None:
        """The axes that a slice does not cut stay what they are."""
        nodes = self.axes(op.operands[0])
        for axis, other in zip(kept_axes(op, op.results[0]), self.axes(op.results[0]), strict=True):
            if self.slice_range(op, axis) is None:
                self._unite(nodes[axis], other)

    def slice_range(self, op: ir.Operation, axis: int) -> tuple[int, int] | None:
        """Offset and size on an axis that an extract_slice cuts; None where it takes all. Unraisable if not known."""
        offset, size, stride = (_slice_part(op, key, axis) for key in ("offsets", "sizes", "strides"))
        literals = isinstance(offset, int) and isinstance(stride, int) and stride == 1
        if literals and offset == 0 and self._is_extent(size, op, axis):
            return None
        if not literals or not isinstance(size, int):
            raise Unraisable("a slice whose offsets and sizes are no literals, or whose stride is not 1")
        return offset, size

    def _is_extent(self, size: ir.Value | int, op: ir.Operation, axis: int) -> bool:
        """Whether a size is that of the sliced axis, as far as is known."""
        if isinstance(size, int):
            return size == shape_of(op.operands[0])[axis]
        counted = extent_of(size)
        return counted is not None and self._same(counted, (op.operands[0], axis))

    def _same(self, one: Hashable, other: Hashable) -> bool:
        return self.classes.find(one) == self.classes.find(other)

    def connect_concat(self, number: int, op: ir.Operation) -> None:
        """The axes beside the joined one are one dim each; of the joined one the size is at least known as a sum."""
        joined, whole = concat_axis(op), self.axes(op.results[0])
        for index, operand in enumerate(op.operands):
            for axis, (node, other) in enumerate(zip(self.axes(operand), whole, strict=True)):
                if axis != joined and not self.classes.unite(other, node):
                    self.renames[number, index, axis] = other
                    self.classes.define_rename(node, other)
        if shape_of(op.results[0])[joined] is None:
            self.classes.define_sum(whole[joined], [self.axes(operand)[joined] for operand in op.operands])

    def name(self, tensors: Sequence[ir.Value]) -> Names:
        """Names by role in contractions first, then by position in ``tensors``, then whatever is left."""
        self.classes.unite_equal_products()
        names = Names(self.classes)
        for number in self.generics:
            self._name_contractions(number, names)
        for factors in list(self.classes.products.values()):
            names.give_factors(factors)
        for value in tensors:
            if is_nameable(value.type):
                names.give_axes(self.axes(value))
        for number in self.generics:
            names.give_axes(self.loops(number))
        for nodes in self._seen.values():
            names.give_axes(nodes)
        names.give_mergers()
        return names

    def _name_contractions(self, number: int, names: Names) -> None:
        generic = self.generics[number]
        for result in range(len(generic.outputs) if generic.reductions else 0):
            try:
                factors = generic.reduction(result).factors
            except Unraisable:
                continue
            if factors is not None:
                a, b = (generic.loops_of(factor) for factor in factors)
                if a != b:
                    self._name_contraction(generic, self.loops(number), a, b, names)

    def _name_contraction(
        self, generic: Generic, loops: Sequence[Hashable], a: frozenset[int], b: frozenset[int], names: Names
    ) -> None:
        order = [loop for loop in generic.output_order if loop not in generic.reductions]
        batch = [loop for loop in order if loop in a and loop in b]
        rows = [loop for loop in order if loop in a and loop not in b]
        columns = [loop for loop in order if loop in b and loop not in a]
        if rows and columns and order.index(rows[-1]) > order.index(columns[-1]):
            rows, columns = columns, rows
        for loop in batch:
            names.give(loops[loop], linalg_dims.BATCH)
        contracted = linalg_dims.BATCHED_CONTRACTED if batch else linalg_dims.CONTRACTED
        names.give_group([loops[loop] for loop in rows], linalg_dims.ROWS)
        names.give_group([loops[loop] for loop in generic.reductions], contracted)
        names.give_group(
            [loops[loop] for loop in columns], linalg_dims.BATCHED_COLUMNS if batch else linalg_dims.COLUMNS
        )


def loops_read(op: ir.Operation) -> list[int | None]:
    """For each axis that an extract in a body reads the loop whose index is its position; None: one from memory."""
    makers = [None if isinstance(index.owner, ir.Block) else index.owner for index in op.operands[1:]]
    return [
        ir.IntegerAttr(maker.attributes["dim"]).value if maker is not None and maker.name == "linalg.index" else None
        for maker in makers
    ]


def concat_axis(op: ir.Operation) -> int:
    """The axis along which a ``tensor.concat`` joins."""
    return ir.IntegerAttr(op.attributes["dim"]).value


def kept_axes(op: ir.Operation, small: ir.Value) -> list[int]:
    """The axes of a slice that the tensor cut out or written has: all but some of which it is one element."""
    sizes: list[int] = list(op.attributes["static_sizes"])  # pyright: ignore
    shape = shape_of(small)
    surplus, kept = len(sizes) - len(shape), list[int]()
    for axis, size in enumerate(sizes):
        if surplus and size == 1 and (len(kept) == len(shape) or shape[len(kept)] != 1):
            surplus -= 1
        else:
            kept.append(axis)
    return kept


def _slice_part(op: ir.Operation, what: str, axis: int) -> ir.Value | int:
    """The offset, size or stride of a slice on an axis: a literal, or the operand that says it."""
    dynamic = ir.ShapedType.get_dynamic_size()
    static: list[int] = list(op.attributes[f"static_{what}"])  # pyright: ignore
    if static[axis] != dynamic:
        return static[axis]
    segments = list(op.attributes["operandSegmentSizes"])  # pyright: ignore
    first = sum(segments[: ("source", "offsets", "sizes", "strides").index(what)])
    return op.operands[first + static[:axis].count(dynamic)]


_RULES: dict[str, Callable[[Connector, int, ir.Operation], None]] = {
    "linalg.generic": Connector.connect_generic,
    "tensor.collapse_shape": Connector.connect_collapse,
    "tensor.expand_shape": Connector.connect_expand,
    "linalg.softmax": Connector.connect_softmax,
    "tensor.reshape": Connector.connect_reshape,
    "tensor.cast": Connector.connect_cast,
    "tensor.extract_slice": Connector.connect_slice,
    "tensor.concat": Connector.connect_concat,
}
