"""Run a launch plan on NumPy arrays, its kernels by the TTIR interpreter."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from cleave.errors import CleaveError
from cleave.runtime.bind_sizes import Sizes, bind_form
from cleave.runtime.descriptors import DESCRIPTOR, DescriptorSpec, is_empty, refusal
from cleave.runtime.launch_plan import Alloc, Launch, LaunchPlan, TensorSpec, View
from cleave.runtime.layout import Layout, check_extents, grid_of, number_argument, shape_of, view_offset, viewed
from cleave.runtime.ttir_interpreter import Buffer, Programs, TensorDescriptor, launched
from cleave.runtime.ttir_ir import Module
from cleave.runtime.ttir_numbers import BOOL, DTYPES
from cleave.runtime.ttir_text import parse_ttir

Array = np.ndarray[Any, Any]
RESIDENT = 3
"""How many blocks of a persistent launch run at once: so few that each goes through several tiles."""
EARLY = 256
"""How many programs of a launch that may overlap with the one before it are started ahead of that."""


@dataclass(frozen=True, eq=False)
class Tensor:
    """``memory`` is flat and begins with the tensor's first element; ``owner`` is the array that it belongs to."""

    memory: Array
    layout: Layout
    owner: Array

    @staticmethod
    def of(array: Array) -> Tensor:
        """A C-contiguous array; booleans lie in memory as bytes."""
        flat = array.reshape(-1)
        return Tensor(flat.view(np.int8) if flat.dtype == BOOL else flat, Layout.row_major(array.shape), array)


def execute(
    plan: LaunchPlan,
    kernels: Mapping[str, str],
    inputs: Sequence[Array],
    sizes: Mapping[str, int] | None = None,
    *,
    cooperative: bool = True,
    seed: int = 0,
) -> list[Array]:
    """Run the function on arrays of any strides, which are not changed; ``kernels`` has the TTIR text of each kernel.

    ``sizes`` gives symbols that no argument binds their values. New memory is poisoned, so what no kernel wrote shows.
    Of launches that may overlap the last one starts first, as far as it gets without waiting. ``cooperative`` false:
    as on a GPU that has no room for the blocks of any cooperative launch. ``seed``: of the order in which the
    partitions of a block run.

    Raises ``CleaveError`` for arguments that do not fit the plan or each other (see ``bind_form``), for a grid or an
    extent beyond the hardware's limits, for memory that is not to be had, and for what the interpreter refuses.
    """
    try:
        arrays = check_inputs(plan, inputs)
        form, bound = bind_form(plan, [array.shape for array in arrays], sizes)
        return _run(form, kernels, arrays, bound, cooperative, seed)
    except CleaveError as error:
        raise (error.at(plan.location) if plan.location else error) from None


def _run(
    plan: LaunchPlan,
    kernels: Mapping[str, str],
    arrays: Sequence[Array],
    sizes: Sizes,
    cooperative: bool,
    seed: int,
) -> list[Array]:
    tensors: dict[str, Tensor] = {}
    for spec, array in zip(plan.arguments, arrays, strict=True):
        tensors[spec.name] = Tensor.of(array)
    chain: list[_Running] = []
    for step in plan.steps:
        if isinstance(step, Alloc):
            tensors[step.tensor.name] = Tensor.of(_allocate(step, sizes))
        elif isinstance(step, View):
            tensors[step.tensor.name] = _view(step, tensors[step.source], sizes)
        elif _is_made(step, cooperative):
            running = _launch(step, kernels, tensors, sizes, seed)
            if not (step.overlaps and chain):
                _finish(chain)
                chain = []
            chain += [running] if running else []
    _finish(chain)
    return _results(plan, tensors, arrays)


def _is_made(launch: Launch, cooperative: bool) -> bool:
    return not launch.unless if cooperative else not launch.cooperative


def _results(plan: LaunchPlan, tensors: Mapping[str, Tensor], inputs: Sequence[Array]) -> list[Array]:
    """The arrays to return, none of them an input's memory or another one's."""
    taken = {id(array) for array in inputs}
    found: list[Array] = []
    for name in plan.results:
        tensor = tensors[name]
        count = tensor.layout.count
        if count > tensor.memory.size:
            raise CleaveError(f"result {name} is a split that does not divide: it has no array of its own")
        if not tensor.layout.is_row_major:
            raise CleaveError(f"result {name} is a part of another tensor: it has no array of its own")
        array = tensor.memory[:count].view(tensor.owner.dtype).reshape(tensor.layout.shape)
        found.append(array.copy() if id(tensor.owner) in taken else array)
        taken.add(id(tensor.owner))
    return found


# --- arguments -------------------------------------------------------------------------------------------------------


def check_inputs(plan: LaunchPlan, inputs: Sequence[Array]) -> list[Array]:
    """The inputs, C-contiguous and read-only. CleaveError for a wrong number of them, a wrong rank or element type."""
    if len(inputs) != len(plan.arguments):
        raise CleaveError(f"{plan.function} takes {len(plan.arguments)} arguments, not {len(inputs)}")
    return [_input(spec, np.asarray(array)) for spec, array in zip(plan.arguments, inputs, strict=True)]


def _input(spec: TensorSpec, array: Array) -> Array:
    wanted = numpy_dtype(spec)
    if array.dtype != wanted and array.dtype.newbyteorder("=") != wanted:
        raise CleaveError(f"{spec.name} has elements of {array.dtype}; the function takes {spec.dtype}")
    if array.ndim != len(spec.dims):
        dims = ", ".join(spec.dims)
        raise CleaveError(f"{spec.name} has rank {array.ndim}; the function takes rank {len(spec.dims)}: [{dims}]")
    check_extents(spec, array.shape)  # before anything of that size is copied
    contiguous = array.view() if array.flags.c_contiguous and array.dtype == wanted else array.astype(wanted, order="C")
    contiguous.flags.writeable = False
    return contiguous


def numpy_dtype(spec: TensorSpec) -> np.dtype[Any]:
    """The dtype of the tensor's elements."""
    if spec.dtype not in DTYPES:
        raise CleaveError(f"{spec.name}: {spec.dtype} is no element type of tensors in memory")
    return DTYPES[spec.dtype]


# --- memory ----------------------------------------------------------------------------------------------------------


def _allocate(step: Alloc, sizes: Sizes) -> Array:
    spec = step.tensor
    shape, dtype = shape_of(spec, sizes), numpy_dtype(spec)
    try:
        return np.zeros(shape, dtype) if step.zeroed else Buffer.poisoned(shape, dtype).array
    except (MemoryError, ValueError):
        size = math.prod(shape) * dtype.itemsize
        raise CleaveError(f"no memory for {spec.name} of shape {shape}: {size} bytes") from None


def _view(view: View, source: Tensor, sizes: Sizes) -> Tensor:
    offset = view_offset(view, source.layout, sizes)
    return Tensor(source.memory[offset:], viewed(view, source.layout, sizes), source.owner)


# --- launches --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Running:
    """A launch whose programs are yet to be run."""

    kernel: str
    programs: Programs

    def run(self, step: Callable[[Programs], None]) -> None:
        try:
            step(self.programs)
        except CleaveError as error:
            raise CleaveError(error.message, error.location, (*error.notes, f"in kernel {self.kernel}")) from None


def _finish(chain: Sequence[_Running]) -> None:
    """Run launches of which each may start before the one in front of it is complete."""
    for running in reversed(chain[1:]):
        running.run(lambda programs: programs.start(EARLY))
    for running in chain:
        running.run(Programs.finish)


def _launch(
    launch: Launch, kernels: Mapping[str, str], tensors: Mapping[str, Tensor], sizes: Sizes, seed: int
) -> _Running | None:
    """None for an empty grid."""
    if launch.kernel not in kernels:
        raise CleaveError(f"there is no kernel '{launch.kernel}'", notes=(f"kernels: {', '.join(kernels) or 'none'}",))
    grid = grid_of(launch, sizes)
    if 0 in grid:
        return None
    if launch.persistent:
        grid = (min(math.prod(grid), RESIDENT),)
    operands = [tensors[name] for name in launch.operands]
    layouts = [operand.layout for operand in operands]
    arguments = [_argument(text, operands, layouts, sizes) for text in launch.arguments]
    try:
        programs = launched(_parsed(kernels[launch.kernel], launch.kernel), grid, arguments, seed=seed)
        return _Running(launch.kernel, programs)
    except CleaveError as error:
        raise CleaveError(error.message, error.location, (*error.notes, f"in kernel {launch.kernel}")) from None


@lru_cache(maxsize=64)
def _parsed(text: str, name: str) -> Module:
    return parse_ttir(text, f"<{name}>")


def _argument(
    text: str, operands: Sequence[Tensor], layouts: Sequence[Layout], sizes: Sizes
) -> Buffer | TensorDescriptor | int:
    """The value of one kernel argument from its description (see ``Launch``)."""
    if text.startswith("in:"):
        return Buffer(operands[int(text.removeprefix("in:"))].memory)
    if text.startswith(DESCRIPTOR):
        spec = DescriptorSpec.parse(text)
        return _described(spec, operands[spec.operand])
    return number_argument(text, layouts, sizes)


def _described(spec: DescriptorSpec, tensor: Tensor) -> TensorDescriptor:
    """CleaveError for a tensor that the hardware could not describe; arrays count as aligned as GPU memory is."""
    layout, width = spec.described(tensor.layout), tensor.memory.itemsize
    address = tensor.memory.ctypes.data - tensor.owner.ctypes.data
    problem = None if is_empty(layout) else refusal(layout, address, width)
    if problem:
        raise CleaveError(f"operand {spec.operand} {problem}, and the kernel takes a descriptor of it")
    return TensorDescriptor(tensor.memory, spec.extents, False, layout.shape, layout.strides)
