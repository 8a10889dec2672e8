"""Run a launch plan on a GPU: its kernels as cubins, launched through the CUDA driver alone.

Tensors are anything with ``data_ptr``, ``shape``, ``stride`` and ``dtype`` (PyTorch's), or with
``__cuda_array_interface__``.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cleave.errors import CleaveError
from cleave.runtime.bind_sizes import Sizes, bind_sizes
from cleave.runtime.cuda_driver import Driver, ParamBlock, shared_driver
from cleave.runtime.launch_plan import Alloc, Launch, LaunchPlan, TensorSpec, View
from cleave.runtime.layout import BYTES, Layout, grid_of, number_argument, shape_of, view_offset, viewed

Allocator = Callable[[tuple[int, ...], str], Any]
"""New memory on the GPU: shape and dtype in, a row-major tensor out."""

_ALIGNMENT = 16  # bytes
_WARP = 32
_PARAMETERS = {"in": ctypes.c_uint64, "size": ctypes.c_int32, "stride": ctypes.c_int64}
_SCRATCH = 2  # pointers that Triton appends to the parameters, for global memory and for the profiler
_TORCH = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "float8_e4m3fn": "f8E4M3FN",
    "float8_e5m2": "f8E5M2", "bool": "i1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
}  # fmt: skip
_TYPESTR = {
    "f2": "f16", "f4": "f32", "f8": "f64", "b1": "i1", "i1": "i8", "i2": "i16", "i4": "i32", "i8": "i64",
}  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel. ``shared`` is in bytes; ``num_warps`` and ``num_ctas`` are what it was compiled for.

    ``scratch`` is how many bytes of global memory each block needs: kernels that need any cannot be launched yet.
    """

    name: str
    cubin: bytes
    shared: int
    num_warps: int
    num_ctas: int = 1
    scratch: int = 0


@dataclass(frozen=True)
class Tensor:
    """Memory on the GPU; ``owner`` is the object that it came in, ``offset`` (in elements) where it starts there."""

    address: int
    layout: Layout
    owner: Any
    offset: int = 0


@dataclass(frozen=True)
class _Prepared:
    kernel: Kernel
    grid: tuple[int, ...]
    params: ParamBlock


class Program:
    """A function that runs on the GPU; usable from several threads and on several GPUs.

    Raises CleaveError if ``kernels`` lacks one that the plan launches, or it fits the launch not.
    """

    def __init__(self, plan: LaunchPlan, kernels: Mapping[str, Kernel], driver: Driver | None = None) -> None:
        self.plan, self.kernels = plan, dict(kernels)
        self.driver = driver or shared_driver()
        self._functions: dict[tuple[int, str], int] = {}
        self._lock = threading.Lock()
        for launch in plan.launches:
            _check_kernel(launch, self.kernels)

    def __call__(
        self, inputs: Sequence[Any], allocate: Allocator, stream: int = 0, sizes: Mapping[str, int] | None = None
    ) -> list[Any]:
        """The results for ``inputs``, computed on ``stream`` (a CUstream) of the current GPU; does not wait for them.

        ``allocate`` gives results and workspace, which must stay unused by others until the stream has passed here;
        a result that is an argument, or a view of one, is the argument's memory. ``sizes`` gives symbols that no
        argument binds their values.

        Raises CleaveError, before any launch, for arguments that do not fit the plan or each other, that are not on the
        current GPU, not row-major where the kernels need that, or not aligned to 16 bytes.
        """
        try:
            self.driver.context()
            tensors = check_inputs(self.plan, inputs, self.driver)
            bound = bind_sizes(self.plan, [tensor.layout.shape for tensor in tensors], sizes)
            launches, results = self._prepare(tensors, bound, allocate)
            for launch in launches:
                self._launch(launch, stream)
            return results
        except CleaveError as error:
            raise (error.at(self.plan.location) if self.plan.location else error) from None

    def _prepare(
        self, inputs: Sequence[Tensor], sizes: Sizes, allocate: Allocator
    ) -> tuple[list[_Prepared], list[Any]]:
        """Everything before the first launch."""
        tensors: dict[str, Tensor] = {}
        for spec, tensor in zip(self.plan.arguments, inputs, strict=True):
            shape_of(spec, sizes)  # for its limits
            tensors[spec.name] = tensor
        launches: list[_Prepared] = []
        for step in self.plan.steps:
            if isinstance(step, Alloc):
                tensors[step.tensor.name] = _allocated(step.tensor, sizes, allocate)
            elif isinstance(step, View):
                tensors[step.tensor.name] = _view(step, tensors[step.source], sizes)
            else:
                grid = grid_of(step, sizes)
                if 0 not in grid:
                    launches.append(_Prepared(self.kernels[step.kernel], grid, _params(step, tensors, sizes)))
        return launches, [_result(name, tensors[name]) for name in self.plan.results]

    def _launch(self, launch: _Prepared, stream: int) -> None:
        kernel = launch.kernel
        grid = (launch.grid[0] * kernel.num_ctas, *launch.grid[1:])
        function, threads = self._function(kernel), _WARP * kernel.num_warps
        self.driver.launch(kernel.name, function, grid, threads, kernel.shared, stream, launch.params)

    def load(self) -> None:
        """Load all kernels into the current context, which the first call would do otherwise."""
        for kernel in self.kernels.values():
            self._function(kernel)

    def _function(self, kernel: Kernel) -> int:
        key = (self.driver.context(), kernel.name)
        found = self._functions.get(key)
        if found is None:
            with self._lock:
                if key not in self._functions:
                    self._functions[key] = self._loaded(kernel)
                found = self._functions[key]
        return found

    def _loaded(self, kernel: Kernel) -> int:
        """Load a kernel and compare its parameters with the plan's arguments."""
        function = self.driver.load(kernel.cubin, kernel.name, kernel.shared)
        sizes = self.driver.parameter_sizes(function)
        for launch in self.plan.launches:
            wanted = [ctypes.sizeof(_PARAMETERS[text.partition(":")[0]]) for text in launch.arguments]
            wanted += [ctypes.sizeof(ctypes.c_uint64)] * _SCRATCH
            if launch.kernel == kernel.name and sizes not in (None, wanted):
                text = f"kernel {kernel.name} takes parameters of {sizes} bytes; the plan gives it {wanted}"
                raise CleaveError(text, notes=("plan and cubin are from different compilations",))
        return function


def _check_kernel(launch: Launch, kernels: Mapping[str, Kernel]) -> None:
    kernel = kernels.get(launch.kernel)
    if kernel is None:
        raise CleaveError(f"there is no kernel '{launch.kernel}'", notes=(f"kernels: {', '.join(kernels) or 'none'}",))
    if kernel.scratch:
        text = f"kernel {kernel.name} needs {kernel.scratch} bytes of scratch memory"
        raise CleaveError(f"{text}, which is not supported")
    for text in launch.arguments:
        if text.partition(":")[0] not in _PARAMETERS:
            raise CleaveError(f"an argument of kernel {kernel.name} is described by '{text}', which is not known")


# --- tensors ---------------------------------------------------------------------------------------------------------


def check_inputs(plan: LaunchPlan, inputs: Sequence[Any], driver: Driver) -> list[Tensor]:
    """The inputs as tensors. CleaveError for a wrong number, rank, element type, GPU or alignment, naming the input."""
    if len(inputs) != len(plan.arguments):
        raise CleaveError(f"{plan.function} takes {len(plan.arguments)} arguments, not {len(inputs)}")
    device = driver.current_device()
    return [_input(spec, value, driver, device) for spec, value in zip(plan.arguments, inputs, strict=True)]


def _input(spec: TensorSpec, value: Any, driver: Driver, device: int) -> Tensor:
    tensor, dtype = as_tensor(spec.name, value)
    if dtype != spec.dtype:
        raise CleaveError(f"{spec.name} has elements of {dtype}; the function takes {spec.dtype}")
    if len(tensor.layout.shape) != len(spec.dims):
        dims = ", ".join(spec.dims)
        rank = len(tensor.layout.shape)
        raise CleaveError(f"{spec.name} has rank {rank}; the function takes rank {len(spec.dims)}: [{dims}]")
    if tensor.layout.count == 0:
        return tensor
    found = driver.device_of(tensor.address)
    if found != device:
        where = "is not in a GPU's memory" if found is None else f"is on GPU {found}"
        raise CleaveError(f"{spec.name} {where}; the current GPU is {device}")
    _check_alignment(spec.name, tensor)
    return tensor


def _check_alignment(name: str, tensor: Tensor) -> None:
    if tensor.address % _ALIGNMENT:
        text = f"{name} starts at an address that is no multiple of {_ALIGNMENT} bytes"
        raise CleaveError(text, notes=("a copy of the tensor is aligned",))


def as_tensor(name: str, value: Any) -> tuple[Tensor, str]:
    """An object's memory and its dtype, as the dialect spells it. CleaveError if it is no tensor on a GPU."""
    if hasattr(value, "data_ptr"):
        shape, strides = tuple(map(int, value.shape)), tuple(map(int, value.stride()))
        dtype = str(value.dtype).rpartition(".")[2]
        return Tensor(int(value.data_ptr()), Layout(shape, strides), value), _TORCH.get(dtype, dtype)
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is None:
        raise CleaveError(f"{name} is a {type(value).__name__}, which is no tensor on a GPU")
    text = str(interface["typestr"])
    shape, strides = tuple(map(int, interface["shape"])), interface.get("strides")
    layout = Layout.row_major(shape)
    if strides is not None:
        layout = Layout(shape, tuple(_in_elements(name, int(stride), text) for stride in strides))
    return Tensor(int(interface["data"][0] or 0), layout, value), _TYPESTR.get(text[1:], text)


def _in_elements(name: str, stride: int, typestr: str) -> int:
    size = int(typestr[2:])
    if stride % size:
        raise CleaveError(f"{name} has a stride of {stride} bytes, which are not whole elements of {size}")
    return stride // size


def _allocated(spec: TensorSpec, sizes: Sizes, allocate: Allocator) -> Tensor:
    shape = shape_of(spec, sizes)
    tensor, dtype = as_tensor(spec.name, allocate(shape, spec.dtype))
    if dtype != spec.dtype or tensor.layout.shape != shape or not tensor.layout.is_row_major:
        raise CleaveError(f"the allocator gave {dtype}{list(tensor.layout.shape)} for {spec} of shape {list(shape)}")
    _check_alignment(spec.name, tensor)
    return tensor


def _view(view: View, source: Tensor, sizes: Sizes) -> Tensor:
    offset = view_offset(view, source.layout, sizes)
    address = source.address + offset * BYTES[view.tensor.dtype]
    return Tensor(address, viewed(view, source.layout, sizes), source.owner, source.offset + offset)


def _result(name: str, tensor: Tensor) -> Any:
    """The object to return; of a view, its part of the owner in the view's shape."""
    owner, layout = tensor.owner, tensor.layout
    own, _ = as_tensor(name, owner)
    if own.layout.shape == layout.shape and not tensor.offset:
        return owner
    if tensor.offset + layout.count > own.layout.count:
        raise CleaveError(f"result {name} is a split that does not divide: it has no array of its own")
    if not layout.is_row_major:
        raise CleaveError(f"result {name} is a part of another tensor: it has no array of its own")
    return owner.reshape(-1)[tensor.offset : tensor.offset + layout.count].reshape(layout.shape)


# --- parameters ------------------------------------------------------------------------------------------------------


def _params(launch: Launch, tensors: Mapping[str, Tensor], sizes: Sizes) -> ParamBlock:
    operands = [tensors[name] for name in launch.operands]
    _check_strides(launch, operands)
    layouts = [tensor.layout for tensor in operands]
    values: list[Any] = []
    for text in launch.arguments:
        kind, _, rest = text.partition(":")
        number = operands[int(rest)].address if kind == "in" else number_argument(text, layouts, sizes)
        if kind == "size" and not 0 <= number < 2**31:
            raise CleaveError(f"size {rest} of kernel {launch.kernel} is {number}; sizes are 0 to {2**31 - 1}")
        values.append(_PARAMETERS[kind](number))
    return ParamBlock([*values, *(ctypes.c_uint64(0) for _ in range(_SCRATCH))])


def _check_strides(launch: Launch, operands: Sequence[Tensor]) -> None:
    """CleaveError for an operand that is not row-major where the kernel is not told its strides."""
    told = {int(text.split(":")[1]) for text in launch.arguments if text.startswith("stride:")}
    for index, (name, tensor) in enumerate(zip(launch.operands, operands, strict=True)):
        own, _ = as_tensor(name, tensor.owner)
        if index not in told and not own.layout.is_row_major:
            shape, strides = list(own.layout.shape), list(own.layout.strides)
            text = f"{name} of shape {shape} has the strides {strides}; the function takes row-major tensors"
            raise CleaveError(text, notes=("make a contiguous copy of it",))
