"""Tensors that others made, as their memory: shapes, strides, addresses.

They are anything with ``data_ptr``, ``shape``, ``stride`` and ``dtype`` (PyTorch's), or with
``__cuda_array_interface__``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cleave.errors import CleaveError, a_kind_of
from cleave.runtime.cuda_driver import Driver
from cleave.runtime.launch_plan import LaunchPlan, TensorSpec
from cleave.runtime.layout import Layout

ALIGNMENT = 16  # bytes
_TORCH = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "float8_e4m3fn": "f8E4M3FN",
    "float8_e5m2": "f8E5M2", "bool": "i1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
}  # fmt: skip
TORCH_DTYPES = {ours: theirs for theirs, ours in _TORCH.items()}
"""PyTorch's name of an element type of the dialect."""
_TYPESTR = {
    "f2": "f16", "f4": "f32", "f8": "f64", "b1": "i1", "i1": "i8", "i2": "i16", "i4": "i32", "i8": "i64",
}  # fmt: skip


def signature(name: str, value: Any) -> Any:
    """All but the address, to be compared and hashed. CleaveError if ``value`` is no tensor on a GPU."""
    if hasattr(value, "data_ptr"):
        return value.dtype, value.shape, value.stride()
    interface = _interface(name, value)
    return interface["typestr"], interface["shape"], interface.get("strides")


def layout_of(name: str, value: Any) -> tuple[Layout, str]:
    """Shape and strides, and the dtype as the dialect spells it."""
    if hasattr(value, "data_ptr"):
        shape, strides = tuple(map(int, value.shape)), tuple(map(int, value.stride()))
        dtype = str(value.dtype).rpartition(".")[2]
        return Layout(shape, strides), _TORCH.get(dtype, dtype)
    interface = _interface(name, value)
    text, shape, strides = str(interface["typestr"]), tuple(map(int, interface["shape"])), interface.get("strides")
    layout = Layout.row_major(shape)
    if strides is not None:
        layout = Layout(shape, tuple(_in_elements(name, int(stride), text) for stride in strides))
    return layout, _TYPESTR.get(text[1:], text)


def shape_of(value: Any) -> tuple[int, ...]:
    """Of a tensor anywhere."""
    return tuple(map(int, value.shape if hasattr(value, "shape") else _interface("a tensor", value)["shape"]))


def _interface(name: str, value: Any) -> Any:
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is None:
        raise CleaveError(f"{name} is {a_kind_of(value)}, which is no tensor on a GPU")
    return interface


def _in_elements(name: str, stride: int, typestr: str) -> int:
    size = int(typestr[2:])
    if stride % size:
        raise CleaveError(f"{name} has a stride of {stride} bytes, which are not whole elements of {size}")
    return stride // size


def address_of(value: Any, name: str = "a tensor") -> int:
    """Where the first element is."""
    return int(value.data_ptr() if hasattr(value, "data_ptr") else _interface(name, value)["data"][0] or 0)


def aligned_address(name: str, value: Any) -> int:
    """Where the first element is. CleaveError where kernels could not load several elements at once from there."""
    address = address_of(value, name)
    if address % ALIGNMENT:
        text = f"{name} starts at an address that is no multiple of {ALIGNMENT} bytes"
        raise CleaveError(text, notes=("a copy of the tensor is aligned",))
    return address


# --- the inputs of a call --------------------------------------------------------------------------------------------


def check_count(plan: LaunchPlan, inputs: Sequence[Any]) -> None:
    if len(inputs) != len(plan.arguments):
        names = [spec.name for spec in plan.arguments]
        missing = ", ".join(f"'{name}'" for name in names[len(inputs) :])
        text = f"{plan.function} takes {len(names)} arguments, not {len(inputs)}"
        text += f": {missing} missing" if missing else ""
        raise CleaveError(text, notes=(f"arguments: {', '.join(names) or 'none'}",))


def input_layouts(plan: LaunchPlan, inputs: Sequence[Any]) -> list[Layout]:
    """CleaveError for a wrong rank or element type, naming the input."""
    return [_input_layout(spec, value) for spec, value in zip(plan.arguments, inputs, strict=True)]


def _input_layout(spec: TensorSpec, value: Any) -> Layout:
    layout, dtype = layout_of(spec.name, value)
    if dtype != spec.dtype:
        raise CleaveError(f"{spec.name} has elements of {dtype}; the function takes {spec.dtype}")
    rank = len(layout.shape)
    if rank != len(spec.dims):
        dims = ", ".join(spec.dims)
        raise CleaveError(f"{spec.name} has rank {rank}; the function takes rank {len(spec.dims)}: [{dims}]")
    return layout


def input_addresses(plan: LaunchPlan, inputs: Sequence[Any], driver: Driver) -> list[int]:
    """CleaveError, naming the input, for one that is not aligned or not on the current GPU (unless it is empty)."""
    device = driver.current_device()
    found: list[int] = []
    for spec, value in zip(plan.arguments, inputs, strict=True):
        address = aligned_address(spec.name, value)
        if address:
            check_device(spec.name, driver.device_of(address), device)
        elif layout_of(spec.name, value)[0].count:
            check_device(spec.name, None, device)
        found.append(address)
    return found


def check_device(name: str, found: int | None, current: int) -> None:
    """CleaveError unless memory was found on the current GPU."""
    if found != current:
        where = "is not in a GPU's memory" if found is None else f"is on GPU {found}"
        raise CleaveError(f"{name} {where}; the current GPU is {current}")
