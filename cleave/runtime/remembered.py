"""Calls with PyTorch's tensors, remembered: what a first call checked and chose, the next ones with the same shapes,
strides, types and sizes need not.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from cleave.runtime.cuda_tensors import ALIGNMENT, TORCH_DTYPES
from cleave.runtime.layout import BYTES, Layout

if TYPE_CHECKING:
    from cleave.runtime.cuda import Program
    from cleave.runtime.cuda_launch import Ready

_LIMIT = 1024
_APART = 256
"""Bytes: of this the pieces of a workspace are multiples."""


@dataclass(frozen=True)
class _Torch:
    """What a call needs of PyTorch: the functions that the code of its own compiler calls, where it has them.

    ``empty`` takes a shape, strides and a type, and allocates on the current GPU.
    """

    module: Any
    current_device: Callable[[], int]
    current_stream: Callable[[int], int]
    empty: Callable[[tuple[int, ...], tuple[int, ...], Any], Any]

    @staticmethod
    def of(torch: Any) -> _Torch:
        def stream(index: int) -> int:
            return torch.cuda.current_stream(index).cuda_stream

        def empty(shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> Any:
            return torch.empty(shape, dtype=dtype, device="cuda")

        return _Torch(
            torch,
            _within(torch, "_C._cuda_getDevice") or torch.cuda.current_device,
            _within(torch, "_C._cuda_getCurrentRawStream") or stream,
            _within(torch, "_C._dynamo.guards._empty_strided_cuda") or empty,
        )


def _within(module: Any, path: str) -> Any:
    """What is at a path of attributes; None where one is missing."""
    return reduce(lambda found, name: getattr(found, name, None), path.split("."), module)


@dataclass(frozen=True)
class _Known:
    """What to launch on GPU number ``index``.

    ``new``: (root, shape, strides, PyTorch's type) of new tensors. Other new memory is allocated together, in
    ``workspace`` bytes, of which ``pieces`` has (root, offset). ``only``: the root that is the one result.
    """

    torch: _Torch
    program: Program
    ready: Ready
    index: int
    new: tuple[tuple[int, tuple[int, ...], tuple[int, ...], Any], ...]
    pieces: tuple[tuple[int, int], ...]
    workspace: int
    only: int | None

    @staticmethod
    def of(torch: Any, program: Program, ready: Ready, first: Any) -> _Known:
        """For inputs of which the first is a tensor on the GPU."""
        bound = ready.bound
        ours, counters = {place.root for place in bound.results}, {root for root, _ in bound.zeroed}
        new: list[tuple[int, tuple[int, ...], tuple[int, ...], Any]] = []
        pieces: list[tuple[int, int]] = []
        workspace = 0
        for root, (spec, shape) in enumerate(bound.allocated, len(program.plan.arguments)):
            if root in ours:
                new.append((root, shape, Layout.row_major(shape).strides, getattr(torch, TORCH_DTYPES[spec.dtype])))
            elif root not in counters:
                pieces.append((root, workspace))
                workspace += -(-math.prod(shape) * BYTES[spec.dtype] // _APART) * _APART
        only = bound.results[0].root if len(bound.results) == 1 and bound.results[0].whole else None
        quick, index = _Torch.of(torch), first.get_device()
        return _Known(quick, program, ready, index, tuple(new), tuple(pieces), workspace, only)

    def __call__(self, tensors: Sequence[Any], addresses: list[int], stream: int | None) -> Any:
        """One result or a tuple of them, computed on ``stream`` or the current one of the current GPU."""
        ready, count, empty = self.ready, len(self.ready.bound.allocated), self.torch.empty
        owners = [*tensors, *(None,) * count]
        addresses += (0,) * count
        for root, shape, strides, dtype in self.new:
            made = owners[root] = empty(shape, strides, dtype)
            addresses[root] = made.data_ptr()
        if self.workspace:
            workspace = empty((self.workspace,), (1,), self.torch.module.uint8)
            start = workspace.data_ptr()
            for root, offset in self.pieces:
                owners[root], addresses[root] = workspace, start + offset
        where = self.torch.current_stream(self.index) if stream is None else stream
        if ready.bound.zeroed:
            self.program.count(ready, addresses, owners, where, self._allocate)
        self.program.run(ready, addresses, where)
        if self.only is not None:
            return owners[self.only]
        results = tuple(place.of(owners[place.root]) for place in ready.bound.results)
        return results[0] if len(results) == 1 else results

    def _allocate(self, shape: tuple[int, ...], dtype: str) -> Any:
        kind = getattr(self.torch.module, TORCH_DTYPES[dtype])
        return self.torch.empty(shape, Layout.row_major(shape).strides, kind)


class Remembered:
    """The calls of one function; usable from several threads."""

    def __init__(self) -> None:
        self._known: dict[Any, _Known] = {}

    def call(self, tensors: Sequence[Any], sizes: Mapping[str, int] | None, stream: int | None) -> Any:
        """One result or a tuple of them, computed on ``stream`` or the current one; None for a call not known."""
        found = self._known.get(_key(tensors, sizes))
        if found is None:
            return None
        addresses = [tensor.data_ptr() for tensor in tensors]
        if reduce(operator.or_, addresses) % ALIGNMENT:
            return None
        if found.torch.current_device() == found.index:
            return found(tensors, addresses, stream)
        with found.torch.module.cuda.device(found.index):
            return found(tensors, addresses, stream)

    def keep(self, tensors: Sequence[Any], sizes: Mapping[str, int] | None, program: Program, ready: Ready) -> None:
        """Remember that ``program``, on the current GPU, takes such tensors, with what is ready for them."""
        if len(self._known) >= _LIMIT:
            self._known.clear()
        self._known[_key(tensors, sizes)] = _Known.of(sys.modules["torch"], program, ready, tensors[0])


def _key(tensors: Sequence[Any], sizes: Mapping[str, int] | None) -> Any:
    """None, which no call is kept under, for what is no tensor of PyTorch."""
    try:
        layouts = [(tensor.shape, tensor.stride(), tensor.dtype, tensor.get_device()) for tensor in tensors]
    except (AttributeError, TypeError):
        return None
    return (*layouts, *sizes.items()) if sizes else tuple(layouts)
