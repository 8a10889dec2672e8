"""Tile programs as MLIR: the host function with its allocations and launches, and one function for each kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.dialects.graph import Value
from cleave.dialects.ops import OPS, VARIADIC
from cleave.schedule.tile_program import Block, Instruction, Kernel, Launch, Ref, TileProgram

_SEGMENTS = "operandSegmentSizes"
_STAGES = "cleave.num_stages"
ALIGNED = "cleave.aligned"
WARP_SPECIALISED = "cleave.warp_specialised"
UNKNOWN = "loc(unknown)"
PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
"""Of ``arith.cmpi``, by their numbers."""


def from_tile_program(program: TileProgram, module: ir.Module) -> ir.Operation:
    """Append the program's functions to ``module``; returns the host function, which has the graph's name.

    An aligned form has a host function of its own, which is private and named by ``cleave.aligned`` on the other.
    """
    with ir.InsertionPoint(module.body), ir.Location.unknown(module.context):
        host = _append(program)
        if program.aligned:
            form = _append(program.aligned)
            form.attributes["sym_visibility"] = ir.StringAttr.get("private")
            host.attributes[ALIGNED] = ir.FlatSymbolRefAttr.get(program.aligned.graph.name)
    return host


def _append(program: TileProgram) -> ir.Operation:
    host = _Host(program).build()
    places = [_place_of(kernel) for kernel in program.kernels]
    known = next(filter(None, places), None)  # what the search makes of an op may have none
    for kernel, place in zip(program.kernels, places, strict=True):
        with cleave.location(place or known):
            _KernelWriter(program.graph.extents).build(kernel)
    return host


def _place_of(kernel: Kernel) -> str | None:
    """Of the last op that it computes and whose place is known: profilers look for the file of the kernel itself."""
    places = [instruction.location for instruction in kernel.body.walk()]
    return next((place for place in reversed(places) if place not in (None, UNKNOWN)), None)


def _function(name: str, arguments: Sequence[ir.Type], results: Sequence[ir.Type]) -> tuple[ir.Operation, ir.Block]:
    type_ = ir.TypeAttr.get(ir.FunctionType.get(list(arguments), list(results)))
    func = ir.Operation.create(
        "func.func", attributes={"sym_name": ir.StringAttr.get(name), "function_type": type_}, regions=1
    )
    return func, ir.Block.create_at_start(func.regions[0], list(arguments))


class _Host:
    def __init__(self, program: TileProgram) -> None:
        self.program, self.graph = program, program.graph
        self.memory: dict[Value, ir.Value] = {}

    def build(self) -> ir.Operation:
        graph = self.graph
        inputs = [self._type(value) for value in graph.inputs]
        func, block = _function(graph.name, inputs, [self._type(value) for value in graph.outputs])
        facts = (*graph.requirements().texts, *graph.coverage())
        if facts:
            func.attributes["cleave.facts"] = cleave.attribute("strings", facts)
        if self.program.choices:
            choices = [f"{name} = {value}" for name, value in self.program.choices.items()]
            func.attributes["cleave.choices"] = cleave.attribute("strings", choices)
        self.memory |= dict(zip(graph.inputs, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            for value in self.program.allocated:
                self.memory[value] = cleave.build("alloc", [], result=self._type(value))
            for value in self.program.counters:
                self.memory[value] = cleave.build("alloc", [], {"contents": "zero"}, result=self._type(value))
            for launch in self.program.launches:
                self._launch(launch)
            ir.Operation.create("func.return", operands=[self._tensor(value) for value in graph.outputs])
        return func

    def _type(self, value: Value) -> ir.Type:
        return cleave.tensor_type(value.type, self.graph.extents)

    def _tensor(self, value: Value) -> ir.Value:
        """The tensor in memory, through views where the value is one."""
        if value not in self.memory:
            operands = [self._tensor(operand) for operand in value.operands]
            self.memory[value] = cleave.build(
                value.op, operands, value.attrs, result=value.type, extents=self.graph.extents
            )
        return self.memory[value]

    def _launch(self, launch: Launch) -> None:
        operands = [self._tensor(value) for value in launch.operands]
        grid = cleave.attribute("strings", [str(size) for size in launch.kernel.grid])
        attributes = {"callee": ir.FlatSymbolRefAttr.get(launch.kernel.name), "cleave.grid": grid}
        if launch.product:
            attributes["cleave.product"] = _integer(launch.product)
        for name in ("overlaps", "cooperative"):
            if getattr(launch, name):
                attributes[f"cleave.{name}"] = ir.UnitAttr.get()
        if launch.unless:
            attributes["cleave.unless"] = ir.FlatSymbolRefAttr.get(launch.unless)
        ir.Operation.create("func.call", operands=operands, attributes=attributes)


class _KernelWriter:
    def __init__(self, extents: Mapping[str, int]) -> None:
        self.extents = extents
        self.values: dict[Ref, ir.Value] = {}

    def build(self, kernel: Kernel) -> None:
        types = [cleave.tensor_type(argument.tile, self.extents) for argument in kernel.arguments]
        func, block = _function(kernel.name, types, [])
        func.attributes["sym_visibility"] = ir.StringAttr.get("private")
        func.attributes["cleave.kernel"] = ir.UnitAttr.get()
        func.attributes["cleave.num_warps"] = _integer(kernel.num_warps)
        func.attributes[_STAGES] = _integer(kernel.num_stages)
        if kernel.warp_specialised:
            func.attributes[WARP_SPECIALISED] = ir.UnitAttr.get()
        if kernel.descriptors:
            func.attributes["cleave.descriptors"] = ir.UnitAttr.get()
        out = ir.DictAttr.get({"cleave.out": ir.UnitAttr.get()})
        func.attributes["arg_attrs"] = ir.ArrayAttr.get(
            [out if argument in kernel.outputs else ir.DictAttr.get({}) for argument in kernel.arguments]
        )
        self.values |= dict(zip(kernel.arguments, block.arguments, strict=True))
        self.stages = kernel.num_stages
        with ir.InsertionPoint(block):
            self._block(kernel.body)
            ir.Operation.create("func.return")

    def _block(self, block: Block) -> None:
        for instruction in block.instructions:
            with cleave.location(instruction.location):
                self._instruction(instruction)

    def _instruction(self, instruction: Instruction) -> None:
        if instruction.op == "scf.if":
            results = self._branches(instruction)
        elif instruction.body:
            results = self._loop(instruction, instruction.body)
        elif instruction.op.startswith("arith."):
            results = self._arith(instruction)
        else:
            results = self._op(instruction)
        self.values |= dict(zip(instruction.results, results, strict=True))

    def _operands(self, refs: Sequence[Ref]) -> list[ir.Value]:
        return [self.values[ref] for ref in refs]

    def _loop(self, instruction: Instruction, body: Block) -> Sequence[ir.Value]:
        index = ir.IndexType.get()
        types = [cleave.tensor_type(ref.tile) for ref in instruction.results]
        stages = instruction.attrs.get("stages")
        attributes = {_STAGES: _integer(min(stages, self.stages))} if stages else {}
        operands = self._operands(instruction.operands)
        loop = ir.Operation.create("scf.for", types, operands, attributes, regions=1)
        block = ir.Block.create_at_start(loop.regions[0], [index, *types])
        self.values |= dict(zip(body.arguments, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            self._block(body)
            ir.Operation.create("scf.yield", operands=self._operands(body.yields))
        return list(loop.results)

    def _branches(self, instruction: Instruction) -> Sequence[ir.Value]:
        branches = ir.Operation.create("scf.if", operands=self._operands(instruction.operands), regions=2)
        for region, body in zip(branches.regions, instruction.bodies, strict=True):
            with ir.InsertionPoint(ir.Block.create_at_start(region, [])):
                self._block(body)
                ir.Operation.create("scf.yield")
        return []

    def _arith(self, instruction: Instruction) -> Sequence[ir.Value]:
        index = ir.IndexType.get()
        if instruction.op == "arith.cmpi":
            i1, i64 = (ir.IntegerType.get_signless(bits) for bits in (1, 64))
            predicate = ir.IntegerAttr.get(i64, PREDICATES.index(instruction.attrs["predicate"]))
            operands = self._operands(instruction.operands)
            return list(ir.Operation.create(instruction.op, [i1], operands, {"predicate": predicate}).results)
        attributes = {"value": ir.IntegerAttr.get(index, instruction.attrs["value"])} if instruction.attrs else {}
        operands = self._operands(instruction.operands)
        return list(ir.Operation.create(instruction.op, [index], operands, attributes).results)

    def _op(self, instruction: Instruction) -> Sequence[ir.Value]:
        spec = OPS[instruction.op]
        types = [
            ir.IndexType.get() if ref.type is None else cleave.tensor_type(ref.type) for ref in instruction.results
        ]
        dtype = instruction.results[0].tile.dtype if instruction.results and instruction.results[0].type else None
        attributes = {
            key: cleave.attribute(spec.all_attrs[key], value, dtype)
            for key, value in instruction.attrs.items()
            if key in spec.all_attrs
        }
        if spec.arity == VARIADIC:
            attributes[_SEGMENTS] = ir.DenseI32ArrayAttr.get(list(instruction.attrs["segments"]))
        operands = self._operands(instruction.operands)
        return list(ir.Operation.create(f"cleave.{instruction.op}", types, operands, attributes).results)


def _integer(number: int) -> ir.IntegerAttr:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)
