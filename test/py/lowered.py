"""Run a module that went through cleave-lower-to-triton: a small host, and the TTIR interpreter for the kernels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import ml_dtypes
import numpy as np

from cleave.bindings import context, ir
from cleave.dialects import cleave
from cleave.dialects.dims import parse
from cleave.lowering.emit import KernelModule, kernel_modules
from cleave.lowering.lower_to_triton import LowerToTriton
from cleave.runtime.descriptors import DescriptorSpec
from cleave.runtime.ttir_interpreter import Buffer, TensorDescriptor, run_kernel
from cleave.runtime.ttir_text import parse_ttir

NUMPY = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "i1": np.bool_,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
}


def lower(text: str) -> ir.Module:
    """Parse, lower, verify."""
    ctx = context(allow_unregistered=True)
    with ctx:
        module = ir.Module.parse(text)
        LowerToTriton().apply(ctx, module)
        assert module.operation.verify()
        return module


def run_lowered(
    module: ir.Module, function: str, inputs: Sequence[np.ndarray], sizes: Mapping[str, int] | None = None
) -> list[np.ndarray]:
    """The results of the host function, its kernels interpreted."""
    with module.context:
        kernels = {kernel.name: kernel for kernel in kernel_modules(module)}
        functions = [op.operation for op in module.body.operations if op.operation.name == "func.func"]
        host = next(f for f in functions if cleave.plain("string", f.attributes["sym_name"]) == function)
        return _Host(kernels, host, inputs, dict(sizes or {})).run()


class _Host:
    def __init__(
        self,
        kernels: Mapping[str, KernelModule],
        host: ir.Operation,
        inputs: Sequence[np.ndarray],
        sizes: dict[str, int],
    ) -> None:
        self.kernels, self.block, self.sizes = kernels, host.regions[0].blocks[0], sizes
        self.memory: dict[ir.Value, np.ndarray] = {}  # flat
        for argument, array in zip(self.block.arguments, inputs, strict=True):
            for dim, n in zip(cleave.tensor_type_of(argument).dims, array.shape, strict=True):
                if dim.size.value is None and str(dim.size) in dim.size.symbols:
                    self.sizes[str(dim.size)] = n
            self.memory[argument] = self._to_memory(array)

    @staticmethod
    def _to_memory(array: np.ndarray) -> np.ndarray:
        flat = np.ascontiguousarray(array).reshape(-1)
        return flat.view(np.int8) if flat.dtype == np.bool_ else flat

    def shape(self, value: ir.Value) -> tuple[int, ...]:
        type_, extents = cleave.decode(value.type)
        return tuple(
            dim.size.evaluate(self.sizes) if n is None else n for dim, n in zip(type_.dims, extents, strict=True)
        )

    def run(self) -> list[np.ndarray]:
        for op in self.block.operations:
            name = op.operation.name
            if name == "cleave.alloc":
                dtype = np.dtype(NUMPY[cleave.tensor_type_of(op.results[0]).dtype])
                count = math.prod(self.shape(op.results[0]))
                self.memory[op.results[0]] = Buffer.poisoned(count, np.int8 if dtype == np.bool_ else dtype).array
            elif name in ("cleave.rename", "cleave.split", "cleave.merge"):
                self.memory[op.results[0]] = self.memory[op.operands[0]]
            elif name == "cleave.slice":
                shape, names = self.shape(op.operands[0]), cleave.tensor_type_of(op.operands[0]).names
                axis = names.index(cleave.plain("string", op.attributes["dim"]))
                offset = parse(cleave.plain("string", op.attributes["offset"])).evaluate(self.sizes)
                self.memory[op.results[0]] = self.memory[op.operands[0]][offset * math.prod(shape[axis + 1 :]) :]
            elif name == "func.call":
                self._launch(op.operation)
            elif name == "func.return":
                return [self._from_memory(operand) for operand in op.operands]
            else:
                raise AssertionError(f"{name} on the host")
        raise AssertionError("no return")

    def _from_memory(self, value: ir.Value) -> np.ndarray:
        dtype = np.dtype(NUMPY[cleave.tensor_type_of(value).dtype])
        flat = self.memory[value]
        return (flat.view(np.bool_) if dtype == np.bool_ else flat).reshape(self.shape(value))

    def _launch(self, op: ir.Operation) -> None:
        kernel = self.kernels[ir.FlatSymbolRefAttr(op.attributes["callee"]).value]
        grid = [parse(text).evaluate(self.sizes) for text in cleave.plain("strings", op.attributes["cleave.grid"])]
        if 0 in grid:
            return
        arguments = [self._argument(op, text) for text in kernel.arguments]
        run_kernel(parse_ttir(kernel.text), grid, arguments)

    def _argument(self, op: ir.Operation, text: str) -> Buffer | TensorDescriptor | int:
        kind, rest = text.split(":", 1)
        if kind == "desc":
            return self._described(op, DescriptorSpec.parse(text))
        if kind == "in":
            return Buffer(self.memory[op.operands[int(rest)]])
        if kind == "size":
            return parse(rest).evaluate(self.sizes)
        operand, axis = map(int, rest.split(":"))
        return math.prod(self.shape(op.operands[operand])[axis + 1 :])

    def _described(self, op: ir.Operation, spec: DescriptorSpec) -> TensorDescriptor:
        """Of a row-major tensor."""
        operand = op.operands[spec.operand]
        shape = self.shape(operand)
        strides = [math.prod(shape[axis + 1 :]) for axis in spec.axes]
        extents = tuple(shape[axis] for axis in spec.axes)
        return TensorDescriptor(self.memory[operand], spec.extents, False, extents, tuple(strides))
