"""As much of PyTorch as calls look at, without a GPU: tensors, and a module ``torch`` that allocates them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

WORKSPACE = 2**34
OF_A_POOL = 1001
_DTYPES = {"f16": "float16", "f32": "float32", "i32": "int32", "i8": "int8"}


@dataclass(slots=True)
class FakeTensor:
    """Row-major unless ``strides`` says otherwise. Attributes cost what PyTorch's do."""

    address: int
    shape: tuple[int, ...]
    dtype: str = "torch.float16"
    strides: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.strides is None:
            self.strides = tuple(itertools.accumulate((1, *reversed(self.shape[1:])), int.__mul__))[::-1]

    def data_ptr(self) -> int:
        return self.address

    def stride(self) -> tuple[int, ...] | None:
        return self.strides

    def reshape(self, shape: int | Sequence[int]) -> FakeTensor:
        return replace(self, shape=(math.prod(self.shape),) if isinstance(shape, int) else tuple(shape), strides=None)

    def __getitem__(self, part: slice) -> FakeTensor:
        return replace(self, address=self.address + 2 * part.start, shape=(part.stop - part.start,))


@dataclass
class Memory:
    """An allocator that hands out addresses in order."""

    given: list[FakeTensor] = field(default_factory=list)

    def __call__(self, shape: tuple[int, ...], dtype: str) -> FakeTensor:
        self.given.append(FakeTensor(WORKSPACE + 2**20 * len(self.given), shape, f"torch.{_DTYPES[dtype]}"))
        return self.given[-1]


class TorchTensor(FakeTensor):
    __slots__ = ()
    device = "cuda:0"
    is_cuda = True

    def get_device(self) -> int:
        return 0

    def is_contiguous(self) -> bool:
        return True

    def is_neg(self) -> bool:
        return False

    def clone(self, memory_format: str) -> TorchTensor:
        return TorchTensor(2 * self.address // 32 * 16, self.shape, self.dtype)


class Torch(SimpleNamespace):
    """A module ``torch`` whose current stream is 77; ``given``: all that it allocated, and on which stream."""

    Tensor = TorchTensor
    float16, float32, int32, int8 = (f"torch.{name}" for name in _DTYPES.values())
    contiguous_format = ""

    def __init__(self) -> None:
        self.addresses, self.given, self.streams = itertools.count(WORKSPACE, 2**20), [], [77]
        self.cuda = SimpleNamespace(
            device=lambda device: nullcontext(),
            ExternalStream=lambda stream, device: stream or OF_A_POOL,  # as PyTorch's
            default_stream=lambda device: 0,
            stream=self.stream,
            current_stream=lambda *index: SimpleNamespace(cuda_stream=self.streams[-1]),
            current_device=lambda: 0,
        )

    @contextmanager
    def stream(self, stream: int) -> Iterator[None]:
        self.streams.append(stream)
        yield
        self.streams.pop()

    def empty(self, shape: tuple[int, ...], dtype: str, device: Any) -> TorchTensor:
        made = TorchTensor(next(self.addresses), shape, dtype)
        self.given.append((made.address, self.streams[-1]))
        return made
