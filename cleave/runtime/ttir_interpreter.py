"""Run a TTIR kernel on NumPy arrays: each program of the grid in turn, each operation on whole tiles.

A function is compiled once into closures over numbered slots (one list of values per program); the rules for the
operations are in ``ttir_rules`` (values), ``ttir_memory_rules`` (memory, grid) and ``ttir_control`` (regions, calls).
What a GPU leaves open is decided here: programs and lanes run in order, uninitialised elements are NaN or a pattern.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from cleave.errors import CleaveError
from cleave.runtime.ttir_compile import compiled
from cleave.runtime.ttir_ir import DescriptorType, Function, Module, PointerType, ScalarType, Type
from cleave.runtime.ttir_memory import Buffer, Memory, TensorDescriptor, make_descriptor
from cleave.runtime.ttir_numbers import BOOL, FLOATS, DType, dtype_of, scalar
from cleave.runtime.ttir_programs import Programs

__all__ = ["Buffer", "Programs", "TensorDescriptor", "launched", "run_kernel"]

Argument = Buffer | TensorDescriptor | int | float | bool | None


def run_kernel(
    kernel: Module | Function,
    grid: Sequence[int],
    args: Sequence[Argument],
    programs: Iterable[tuple[int, int, int]] | None = None,
) -> None:
    """Run every program of ``grid`` (or only ``programs``, as (x, y, z)) one after the other, x fastest.

    A program that has to wait for others pauses until they have come as far.

    ``kernel``: a function, or a module with one public function. ``args``: one per parameter: a ``Buffer`` (or None)
    for a pointer, a ``TensorDescriptor`` for a descriptor, Python numbers for scalars. Buffers are written in place.

    Raises ``CleaveError``, with the operation, its line and the program, for arguments that do not fit, operations that
    are not known, memory accesses outside a buffer or misaligned, integer division by zero, failed assertions, and
    programs that wait for one another in vain.
    """
    launched(kernel, grid, args, programs).finish()


def launched(
    kernel: Module | Function,
    grid: Sequence[int],
    args: Sequence[Argument],
    programs: Iterable[tuple[int, int, int]] | None = None,
    *,
    seed: int = 0,
) -> Programs:
    """The programs of ``run_kernel``, none of which has run yet.

    ``seed``: of the order in which the partitions of a block of TTGIR run.
    """
    function = kernel if isinstance(kernel, Function) else _entry(kernel)
    extents = _grid(grid)
    memory = Memory()
    values = _arguments(function, args, memory)
    places = _all_programs(extents) if programs is None else _inside(programs, extents)
    with np.errstate(all="ignore"):
        return Programs(compiled(function), memory, extents, iter(places), values, seed)


def _inside(programs: Iterable[tuple[int, int, int]], grid: tuple[int, int, int]) -> Iterable[tuple[int, int, int]]:
    for program in programs:
        if not all(0 <= p < n for p, n in zip(program, grid, strict=True)):
            raise CleaveError(f"program {program} is outside the grid {grid}")
        yield program


def _entry(module: Module) -> Function:
    public = [function for function in module.functions.values() if function.is_public]
    if len(public) != 1:
        raise CleaveError(f"a module with one public function is expected, this one has {len(public)}")
    return public[0]


def _grid(grid: Sequence[int]) -> tuple[int, int, int]:
    if not 1 <= len(grid) <= 3 or any(n < 0 for n in grid):
        raise CleaveError(f"a grid has one to three extents, none negative; got {tuple(grid)}")
    x, y, z = (*(int(n) for n in grid), *([1] * (3 - len(grid))))
    return x, y, z


def _all_programs(grid: tuple[int, int, int]) -> Iterable[tuple[int, int, int]]:
    return ((x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0]))


def _arguments(function: Function, args: Sequence[Argument], memory: Memory) -> list[Any]:
    types = function.type.inputs
    if len(args) != len(types):
        raise CleaveError(f"@{function.name} takes {len(types)} arguments, got {len(args)}")
    return [_argument(i, type_, arg, memory) for i, (type_, arg) in enumerate(zip(types, args, strict=True))]


def _argument(number: int, type_: Type, arg: Argument, memory: Memory) -> Any:
    if isinstance(type_, PointerType):
        return _pointer(number, type_, arg, memory)
    if isinstance(type_, DescriptorType):
        return _descriptor(number, type_, arg, memory)
    if isinstance(type_, ScalarType):
        return _scalar(number, type_, arg)
    raise CleaveError(f"argument {number}: kernels with parameters of type {type_} cannot be run")


def _pointer(number: int, type_: PointerType, arg: Argument, memory: Memory) -> Any:
    if arg is None:
        return np.int64(0)
    if not isinstance(arg, Buffer):
        raise CleaveError(f"argument {number}: {type_} takes a Buffer, not {arg!r}")
    if not arg.array.flags.c_contiguous:
        raise CleaveError(f"argument {number}: the buffer's array is not contiguous")
    _check_elements(number, arg.array.dtype, type_.pointee)
    return np.int64(memory.add(arg.array, number))


def _check_elements(number: int, dtype: DType, type_: Type) -> None:
    """Signless integers may be given signed or unsigned, i1 as bytes."""
    wanted = dtype_of(type_)
    same = dtype == wanted or (wanted not in FLOATS and dtype.kind in "biu" and dtype.itemsize == wanted.itemsize)
    if not same:
        raise CleaveError(f"argument {number}: elements of {dtype}, but the kernel takes {type_}")


def _descriptor(number: int, type_: DescriptorType, arg: Argument, memory: Memory) -> Any:
    if not isinstance(arg, TensorDescriptor):
        raise CleaveError(f"argument {number}: {type_} takes a TensorDescriptor, not {arg!r}")
    array, block = arg.array, type_.block
    if tuple(arg.block) != block.shape:
        raise CleaveError(f"argument {number}: a descriptor of blocks {tuple(arg.block)}, but the kernel takes {type_}")
    _check_elements(number, array.dtype, block.element)
    if any(stride % array.itemsize or stride < 0 for stride in array.strides):
        raise CleaveError(f"argument {number}: strides of {array.strides} bytes are not whole elements")
    strides = arg.strides or [stride // array.itemsize for stride in array.strides]
    base = memory.add(array, number)
    try:
        return make_descriptor(base, arg.shape or array.shape, strides, block.shape, dtype_of(block), arg.nan_padding)
    except CleaveError as error:
        raise CleaveError(f"argument {number}: {error.message}") from error


def _scalar(number: int, type_: ScalarType, arg: Argument) -> Any:
    dtype = dtype_of(type_)
    if not isinstance(arg, int | float | np.integer | np.floating | np.bool_):
        raise CleaveError(f"argument {number}: {type_} takes a number, not {arg!r}")
    if dtype in FLOATS:
        return scalar(float(arg), dtype)
    if isinstance(arg, float | np.floating):
        raise CleaveError(f"argument {number}: {type_} takes an integer, not {arg!r}")
    bits = 1 if dtype == BOOL else 8 * dtype.itemsize
    if not -(1 << (bits - 1)) <= int(arg) < (1 << bits):
        raise CleaveError(f"argument {number}: {arg} does not fit {type_}")
    return scalar(int(arg), dtype)
