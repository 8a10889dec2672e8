"""Calls with PyTorch's tensors, remembered: what a first call checked and chose, the next ones with the same shapes,
strides, types and sizes need not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from cleave.runtime.cuda_tensors import ALIGNMENT, TORCH_DTYPES
from cleave.runtime.layout import Layout
from cleave.runtime.workspaces import Workspace, Workspaces, workspaces_of

if TYPE_CHECKING:
    from cleave.runtime.cuda import Program
    from cleave.runtime.cuda_launch import Ready

_LIMIT = 1024


@dataclass(frozen=True)
class _Torch:
    """What a call needs of PyTorch: the functions that the code of its own compiler calls, where it has them.

    ``empty`` takes a shape, strides and a type, and allocates on the current GPU. ``may_capture`` says whether the
    current stream captures a graph, or PyTorch cannot tell. ``guards`` takes tensors, and says of others whether they
    are of the same types, shapes, strides and places; None where PyTorch has none.
    """

    module: Any
    current_device: Callable[[], int]
    current_stream: Callable[[int], int]
    empty: Callable[[tuple[int, ...], tuple[int, ...], Any], Any]
    may_capture: Callable[[], bool]
    guards: Any

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
            _within(torch, "_C._cuda_isCurrentStreamCapturing") or (lambda: True),
            _within(torch, "_C._dynamo.guards.TensorGuards"),
        )

    def alike(self, tensors: Sequence[Any]) -> Callable[..., bool]:
        """Whether others are like these, in one call; never where PyTorch cannot tell."""
        try:
            found = self.guards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
            return found if found(*tensors) and not found(*map(repr, range(len(tensors)))) else _never
        except (TypeError, RuntimeError):  # a PyTorch that has none, or other ones
            return _never


def _never(*tensors: Any) -> bool:
    return False


def _within(module: Any, path: str) -> Any:
    """What is at a path of attributes; None where one is missing."""
    return reduce(lambda found, name: getattr(found, name, None), path.split("."), module)


@dataclass(frozen=True)
class _Known:
    """What to launch on GPU number ``index`` for ``count`` tensors that are ``alike`` those it was made for.

    The roots of what is ``ready`` are the tensors, the ``new`` ones (shape, strides, PyTorch's type), ``workspace``
    bytes unless that is None, and ``counters`` many counters of ``counted`` bytes at most. ``whole``: the one result is
    the first of the new ones.
    """

    torch: _Torch
    program: Program
    ready: Ready
    index: int
    count: int
    alike: Callable[..., bool]
    new: tuple[tuple[tuple[int, ...], tuple[int, ...], Any], ...]
    workspace: int | None
    workspaces: Workspaces
    counters: int
    counted: int
    whole: bool

    @staticmethod
    def of(torch: Any, program: Program, ready: Ready, tensors: Sequence[Any]) -> _Known:
        """For inputs of which the first is a tensor on the GPU."""
        quick, count = _Torch.of(torch), len(tensors)
        bound = ready.bound.pooled(count)
        results = len({place.root for place in bound.results if place.root >= count})
        new = tuple(
            (shape, Layout.row_major(shape).strides, getattr(torch, TORCH_DTYPES[spec.dtype]))
            for spec, shape in bound.allocated[:results]
        )
        counters, counted = len(bound.zeroed), max((size for _, size in bound.zeroed), default=0)
        workspace = next((size for _, (size,) in bound.allocated[results : len(bound.allocated) - counters]), None)
        whole = [(place.root, place.whole) for place in bound.results] == [(count, True)]
        index, alike = tensors[0].get_device(), quick.alike(tensors)
        own, workspaces = replace(ready, bound=bound, free=[]), workspaces_of(index)
        memory = new, workspace, workspaces, counters, counted, whole
        return _Known(quick, program, own, index, count, alike, *memory)

    def launch(self, tensors: Sequence[Any], stream: int | None) -> Any:
        """One result or a tuple of them, computed on ``stream`` or the current one; None for what is not aligned."""
        addresses: list[int] = []
        bits = 0
        for tensor in tensors:
            addresses.append(address := tensor.data_ptr())
            bits |= address
        if bits % ALIGNMENT:
            return None
        torch = self.torch
        if torch.current_device() != self.index:
            with torch.module.cuda.device(self.index):
                return self.launch(tensors, stream)
        where = torch.current_stream(self.index)
        if stream is None or stream == where:
            return self._enqueue(tensors, addresses, where)
        with on_stream(torch.module, stream, self.index):
            return self._enqueue(tensors, addresses, stream)

    def _enqueue(self, tensors: Sequence[Any], addresses: list[int], stream: int) -> Any:
        """On the current stream. ``addresses``: of the tensors."""
        made: list[Any] = []
        empty = self.torch.empty
        for shape, strides, dtype in self.new:
            made.append(tensor := empty(shape, strides, dtype))
            addresses.append(tensor.data_ptr())
        if self.workspace is None and not self.counters:
            self.program.run(self.ready, addresses, stream)
        else:
            self._with_kept_memory(addresses, stream)
        return made[0] if self.whole else self._results((*tensors, *made))

    def _with_kept_memory(self, addresses: list[int], stream: int) -> None:
        """Launch with the memory that calls on this stream, the current one, use in turn, if it captures no graph."""
        workspace, keeps = None, not self.torch.may_capture()
        if self.workspace is not None:
            workspace = (keeps and self.workspaces.take(stream, self.workspace)) or self._workspace(self.workspace)
            addresses.append(workspace.address)
        if self.counters:
            self._count(addresses, stream, keeps)
        self.program.run(self.ready, addresses, stream)
        if workspace and keeps:
            self.workspaces.give(stream, workspace)

    def _workspace(self, size: int) -> Workspace:
        made = self.torch.empty((size,), (1,), self.torch.module.int8)
        return Workspace(made.data_ptr(), size, made)

    def _count(self, addresses: list[int], stream: int, keeps: bool) -> None:
        """Add where the counters are."""
        if keeps and (found := self.program.counter(self.counted, stream, self.ready.context)):
            addresses += (found,) * self.counters
            return

        def allocate(shape: tuple[int, ...], dtype: str) -> Any:
            with on_stream(self.torch.module, stream, self.index):
                kind = getattr(self.torch.module, TORCH_DTYPES[dtype])
                return self.torch.empty(shape, Layout.row_major(shape).strides, kind)

        addresses += (0,) * self.counters
        self.program.count(self.ready, addresses, [None] * len(addresses), stream, allocate)

    def _results(self, owners: Sequence[Any]) -> Any:
        results = tuple(place.of(owners[place.root]) for place in self.ready.bound.results)
        return results[0] if len(results) == 1 else results


def on_stream(torch: Any, stream: int, device: Any) -> Any:
    """Where PyTorch's new tensors are the stream's: what it frees then waits for the launches there."""
    cuda = torch.cuda  # whose external stream 0 is one of its pool
    return cuda.stream(cuda.ExternalStream(stream, device) if stream else cuda.default_stream(device))


class Remembered:
    """The calls of one function; usable from several threads."""

    def __init__(self) -> None:
        self._known: dict[Any, _Known] = {}
        self._last: _Known | None = None  # of those without sizes

    def call(self, tensors: Sequence[Any], sizes: Mapping[str, int] | None, stream: int | None) -> Any:
        """One result or a tuple of them, computed on ``stream`` or the current one; None for a call not known."""
        if not (stream is None or type(stream) is int):  # pyright: ignore[reportUnnecessaryComparison]
            return None
        found = self._last
        if found is None or sizes or len(tensors) != found.count or not found.alike(*tensors):
            found = self._known.get(_key(tensors, sizes))
            if found is None:
                return None
            if not sizes:
                self._last = found
        return found.launch(tensors, stream)

    def keep(self, tensors: Sequence[Any], sizes: Mapping[str, int] | None, program: Program, ready: Ready) -> None:
        """Remember that ``program``, on the current GPU, takes such tensors, with what is ready for them."""
        if len(self._known) >= _LIMIT:
            self._known.clear()
        key = _key(tensors, sizes)
        if key is not None:
            self._known[key] = _Known.of(sys.modules["torch"], program, ready, tensors)


def _key(tensors: Sequence[Any], sizes: Mapping[str, int] | None) -> Any:
    """None, which no call is kept under, for what is no tensor of PyTorch, or one of numbers yet to be negated, and for
    sizes that are no dictionary of integers."""
    if sizes and not (type(sizes) is dict and all(type(size) is int for size in sizes.values())):
        return None
    try:
        if any(tensor.is_neg() for tensor in tensors):
            return None
        layouts = [(tensor.shape, tensor.stride(), tensor.dtype, tensor.get_device()) for tensor in tensors]
    except (AttributeError, TypeError):
        return None
    return (*layouts, *sizes.items()) if sizes else tuple(layouts)
