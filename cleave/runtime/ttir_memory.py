"""The memory of an interpreted kernel: buffers behind bounds-checked byte addresses.

Every argument that points to memory gets a slot of 2^44 bytes of address space with its first element in the middle,
so that an address says which argument it came from and how far out of bounds it is.
"""
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from cleave.errors import CleaveError
from cleave.runtime.ttir_numbers import Array, DType, poison, unsigned

_SLOT_BITS = 44


@dataclass(frozen=True, eq=False)
class Buffer:
    """A pointer argument: the address of the first element of a C-contiguous array."""

    array: np.ndarray

    @classmethod
    def poisoned(cls, shape: int | tuple[int, ...], dtype: object) -> Buffer:
        """New memory full of NaN (floats) or a pattern (integers), so that what was never written can be told."""
        dtype_ = np.dtype(dtype)  # type: ignore[call-overload]
        return cls(
            np.full(shape, poison(dtype_) if dtype_.kind != "u" else dtype_.type(int("a5" * dtype_.itemsize, 16)))
        )


@dataclass(frozen=True, eq=False)
class TensorDescriptor:
    """A host tensor descriptor (TMA): ``array`` is read and written in blocks of shape ``block``.

    Extents and strides (in elements) come from the array unless they are given, in which case it is the memory from
    element 0 on; what lies outside the extents reads as zero, or NaN with ``nan_padding``.
    """

    array: np.ndarray
    block: tuple[int, ...]
    nan_padding: bool = False
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None


@dataclass(frozen=True, eq=False)
class Descriptor:
    """A descriptor inside the interpreter: byte address, extents in elements, strides in bytes."""

    base: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block: tuple[int, ...]
    dtype: DType
    nan_padding: bool


@dataclass(eq=False)
class _Slot:
    argument: int
    base: int
    bytes: np.ndarray
    writable: bool
    views: dict[DType, np.ndarray] = field(default_factory=dict[DType, np.ndarray])

    def view(self, dtype: DType) -> np.ndarray:
        view = self.views.get(dtype)
        if view is None:
            whole = self.bytes.size // dtype.itemsize * dtype.itemsize
            view = self.views[dtype] = self.bytes[:whole].view(dtype)
        return view


class Memory:
    """Address space of one launch. All methods raise ``CleaveError`` for an access outside a buffer or misaligned."""

    def __init__(self) -> None:
        self._slots: dict[int, _Slot] = {}

    def add(self, array: np.ndarray, argument: int) -> int:
        """Map the memory from the array's first to its last byte; return the address of its first element."""
        raw = np.empty(0, np.uint8)
        if array.size:
            last = sum((n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True))
            count = last // array.itemsize + 1
            plain = array.view(unsigned(array.dtype))  # NumPy cannot restride every type of ml_dtypes.
            raw = np.lib.stride_tricks.as_strided(plain, (count,), (array.itemsize,)).view(np.uint8)
        number = argument + 1
        base = (number << _SLOT_BITS) + (1 << (_SLOT_BITS - 1))
        self._slots[number] = _Slot(argument, base, raw, array.flags.writeable)
        return base

    # Scattered access, for pointers

    def load(self, address: Array, dtype: DType, mask: Array | None, other: Array | None) -> Array:
        """Elements at ``address``; where ``mask`` is false ``other`` (poison if None), and memory is not touched."""
        if mask is None or mask.all():
            slot, index = self._locate(address, dtype, write=False)
            return slot.view(unsigned(dtype))[index].view(dtype) if dtype != np.bool_ else slot.view(dtype)[index]
        result = np.array(np.broadcast_to(poison(dtype) if other is None else other, np.shape(address)))
        if mask.any():
            slot, index = self._locate(address[mask], dtype, write=False)
            result[mask] = slot.view(dtype)[index]
        return result[()]

    def store(self, address: Array, value: Array, mask: Array | None) -> None:
        if mask is not None and not mask.all():
            if not mask.any():
                return
            address, value = address[mask], value[mask]
        slot, index = self._locate(address, value.dtype, write=True)
        slot.view(value.dtype)[index] = value

    def update(
        self,
        address: Array,
        operands: Sequence[Array],
        mask: Array | None,
        function: Callable[..., Array],
        dtype: DType,
    ) -> Array:
        """Atomically replace each element x by ``function(x, *operands)``, lane after lane; return the old elements."""
        result = np.full(np.shape(address), poison(dtype))
        lanes = np.ones(result.shape, np.bool_) if mask is None else np.asarray(mask)
        if lanes.any():
            slot, index = self._locate(np.asarray(address)[lanes], dtype, write=True)
            values = [np.asarray(operand)[lanes] for operand in operands]
            result[lanes] = self._update(slot.view(dtype), index, values, function)
        return result[()]

    def _update(
        self, view: np.ndarray, index: np.ndarray, values: list[np.ndarray], function: Callable[..., Array]
    ) -> np.ndarray:
        if np.unique(index).size == index.size:
            old = view[index]
            view[index] = function(old, *values)
            return old
        old = np.empty(index.size, view.dtype)
        for lane, at in enumerate(index.tolist()):
            old[lane] = view[at]
            view[at] = function(view[at], *(value[lane] for value in values))
        return old

    def _locate(self, address: Array, dtype: DType, write: bool) -> tuple[_Slot, Array]:
        """The slot that all the addresses are in, and their element indices there."""
        size = dtype.itemsize
        if not address.size:
            raise CleaveError("an access of no elements")
        slot = self._slot(int(address.flat[0] if isinstance(address, np.ndarray) else address))
        offset = address - slot.base
        bits = np.bitwise_or.reduce(offset, axis=None)  # Negative if any is; its low bits hold every misalignment.
        if bits < 0 or bits & (size - 1) or offset.max() > slot.bytes.size - size:
            self._report(slot, np.asarray(offset), size)
        if write and not slot.writable:
            raise CleaveError(f"argument {slot.argument}: a write to a read-only array")
        return slot, offset >> (size.bit_length() - 1)

    def _slot(self, address: int) -> _Slot:
        slot = self._slots.get(address >> _SLOT_BITS)
        if slot is None:
            raise CleaveError(f"address {address:#x} comes from no argument's buffer")
        return slot

    def _report(self, slot: _Slot, offset: np.ndarray, size: int) -> None:
        outside = offset[(offset < 0) | (offset > slot.bytes.size - size)]
        if not outside.size:
            worst = int(offset[offset % size != 0].flat[0])
            raise CleaveError(
                f"argument {slot.argument}: byte offset {worst} is misaligned for elements of {size} bytes"
            )
        raise self._outside(slot, int(outside.flat[0]), size)

    def _outside(self, slot: _Slot, offset: int, size: int) -> CleaveError:
        number = f"offset {offset // size}" if offset % size == 0 else f"byte offset {offset}"
        if self._slots.get((slot.base + offset) >> _SLOT_BITS) is not slot:
            number = f"a pointer mixed from several buffers: {number}"
        return CleaveError(
            f"argument {slot.argument}: {number} is outside the buffer of {slot.bytes.size // size} elements"
        )

    # Block access, for descriptors

    def load_block(self, descriptor: Descriptor, start: Sequence[int]) -> np.ndarray:
        fill = poison(descriptor.dtype) if descriptor.nan_padding else descriptor.dtype.type(0)
        block = np.full(descriptor.block, fill, descriptor.dtype)
        window = self._window(descriptor, start, write=False)
        if window is not None:
            memory, inside = window
            block[inside] = memory
        return block

    def update_block(
        self, descriptor: Descriptor, start: Sequence[int], block: np.ndarray, function: Callable[..., Array] | None
    ) -> None:
        """Store ``block``, or ``function(old, block)``; elements outside the tensor are dropped."""
        window = self._window(descriptor, start, write=True)
        if window is not None:
            memory, inside = window
            memory[...] = block[inside] if function is None else function(memory, block[inside])

    def _window(
        self, descriptor: Descriptor, start: Sequence[int], write: bool
    ) -> tuple[np.ndarray, tuple[slice, ...]] | None:
        """The part of a block that lies in the tensor: a view of memory, and where it is in the block."""
        low = [max(0, s) for s in start]
        high = [min(n, s + b) for n, s, b in zip(descriptor.shape, start, descriptor.block, strict=True)]
        extents = [h - lo for lo, h in zip(low, high, strict=True)]
        if min(extents, default=1) <= 0:
            return None
        size = descriptor.dtype.itemsize
        slot = self._slot(descriptor.base)
        first = descriptor.base - slot.base + sum(lo * s for lo, s in zip(low, descriptor.strides, strict=True))
        last = first + sum((n - 1) * s for n, s in zip(extents, descriptor.strides, strict=True))
        for offset in (first, last):
            if offset < 0 or offset + size > slot.bytes.size:
                raise self._outside(slot, offset, size)
        if write and not slot.writable:
            raise CleaveError(f"argument {slot.argument}: a write to a read-only array")
        memory = np.ndarray(tuple(extents), descriptor.dtype, slot.bytes, first, descriptor.strides)  # type: ignore[arg-type]
        inside = tuple(slice(lo - s, h - s) for lo, h, s in zip(low, high, start, strict=True))
        return memory, inside


def make_descriptor(
    base: int, shape: Sequence[int], strides: Sequence[int], block: tuple[int, ...], dtype: DType, nan_padding: bool
) -> Descriptor:
    """A descriptor with strides in elements, under the rules of the tensor memory accelerator.

    Raises ``CleaveError`` where the hardware would misbehave without a word: the base and the outer strides must be
    multiples of 16 bytes, the last stride 1, the inner extent of a block at least 16 bytes, the rank 1 to 5.
    """
    size = dtype.itemsize
    if not 1 <= len(block) <= 5 or len(shape) != len(block) or len(strides) != len(block):
        raise CleaveError(
            f"a descriptor of rank {len(shape)} with {len(strides)} strides and blocks of rank {len(block)}"
        )
    if strides[-1] != 1:
        raise CleaveError(f"a descriptor's last stride must be 1, got {strides[-1]}")
    if base % 16:
        raise CleaveError("a descriptor's base must be aligned to 16 bytes")
    if any(stride * size % 16 or stride < 0 for stride in strides[:-1]):
        raise CleaveError(f"a descriptor's outer strides must be multiples of 16 bytes, got {list(strides)} x {size}")
    if block[-1] * size < 16:
        raise CleaveError(f"the last extent of a descriptor's block must be 16 bytes or more, got {block[-1] * size}")
    if any(n < 0 for n in shape):
        raise CleaveError(f"a descriptor with extents {list(shape)}")
    return Descriptor(base, tuple(shape), tuple(s * size for s in strides), block, dtype, nan_padding)
