"""Calls with PyTorch's tensors that were met before, against the driver's stub and a module ``torch`` of our own."""

from __future__ import annotations

import itertools
import math
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from cuda_stub import KERNELS, SHARED, SPLIT_K, Stub, W, X, library, package_of, spec, stub
from torch_stub import Torch, TorchTensor

from cleave.errors import CleaveError
from cleave.runtime.cuda import Kernel
from cleave.runtime.cuda_bind import bind
from cleave.runtime.launch_plan import Alloc, Launch, LaunchPlan
from cleave.runtime.layout import BYTES, Layout
from cleave.runtime.package import Package

__all__ = ["library", "stub"]


class Negated(TorchTensor):
    """What PyTorch has yet to negate, as the imaginary parts of a conjugate are."""

    def is_neg(self) -> bool:
        return True

    def resolve_neg(self) -> TorchTensor:
        return TorchTensor(self.address + 2**20, self.shape, self.dtype)


class Guards:
    """As PyTorch's: tensors of the same types, shapes and strides."""

    def __init__(self, *tensors: TorchTensor, dynamic_dims_sizes: None, dynamic_dims_strides: None) -> None:
        self.kinds = [self.kind(tensor) for tensor in tensors]
        self.found: list[bool] = []

    @staticmethod
    def kind(tensor: Any) -> Any:
        return type(tensor) is TorchTensor and (tensor.shape, tensor.stride(), tensor.dtype)

    def check(self, *tensors: Any) -> bool:
        assert len(tensors) == len(self.kinds), "PyTorch raises TypeError"
        self.found.append(self.kinds == [self.kind(tensor) for tensor in tensors])
        return self.found[-1]


class Credulous(Guards):
    """As of a PyTorch in which it means something else."""

    def check(self, *tensors: Any) -> bool:
        return True


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    found = Torch()
    monkeypatch.setitem(sys.modules, "torch", found)
    monkeypatch.setattr("cleave.runtime.workspaces._shared", {})
    return found


def test_later_calls_launch_what_the_first_did(stub: Stub, torch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    package, w = package_of(stub, monkeypatch, SPLIT_K), TorchTensor(W, (100, 64))
    for x, s in ((X, 4), (3 * X, 4), (X, 5), (X + 8, 4)):
        package(TorchTensor(x, (33, 100)), w, sizes={"s": s})
    launches = [line.partition(": ")[2].split() for line in stub.log if line.startswith("launch parts")]
    assert [launch[0] for launch in launches] == [str(x) for x in (X, 3 * X, X, X)]  # the last one is a copy, aligned
    assert [launch[4] for launch in launches] == ["25", "25", "20", "25"]
    assert len({launch[2] for launch in launches}) == 4, "new memory for each call"
    with pytest.raises(CleaveError, match="dimension 'k' is 100 in x and 99 in w"):
        package(TorchTensor(X, (33, 100)), TorchTensor(W, (99, 64)), sizes={"s": 4})


@pytest.mark.parametrize("plan", [SPLIT_K, SHARED], ids=["plain", "counters"])
def test_a_thread_that_has_not_used_the_gpu_yet_launches(
    stub: Stub, torch: Torch, monkeypatch: pytest.MonkeyPatch, plan: LaunchPlan
) -> None:
    """The driver has a current context for each thread, and a remembered call asks for none."""
    monkeypatch.setitem(KERNELS, "all", Kernel("all", b"all:8,8,8,8", 0, 4))
    package, tensors = package_of(stub, monkeypatch, plan), (TorchTensor(X, (33, 100)), TorchTensor(W, (100, 64)))
    package(*tensors, sizes={"s": 2})
    before = [line.partition(" stream")[0] for line in stub.log if "launch" in line]
    stub.library.stub_reset(b"", 0)
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(package(*tensors, sizes={"s": 2})))
    thread.start()
    thread.join()
    assert results and [line.partition(" stream")[0] for line in stub.log if "launch" in line] == before


def test_a_package_of_other_variants_remembers_nothing_of_these(
    stub: Stub, torch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(SPLIT_K, steps=(*SPLIT_K.steps[:4], replace(SPLIT_K.steps[4], grid=("m + 1",))))
    package, tensors = (
        package_of(stub, monkeypatch, SPLIT_K, other),
        (TorchTensor(X, (33, 100)), TorchTensor(W, (100, 64))),
    )
    package(*tensors, sizes={"s": 4})
    replace(package, variants=package.variants[1:])(*tensors, sizes={"s": 4})
    assert [line.split()[3] for line in stub.log if line.startswith("launch sum")] == ["33", "34"]


@pytest.mark.parametrize("own", [0, 1])
def test_a_gpu_takes_the_schedule_of_its_architecture(
    stub: Stub, torch: Torch, monkeypatch: pytest.MonkeyPatch, own: int
) -> None:
    """For the same sizes, whichever stands first."""
    other = replace(SPLIT_K, steps=(*SPLIT_K.steps[:4], replace(SPLIT_K.steps[4], grid=("m + 1",))))
    package = package_of(stub, monkeypatch, SPLIT_K, other)
    tensors = TorchTensor(X, (33, 100)), TorchTensor(W, (100, 64))

    def compiled_for(*targets: str) -> Package:
        pairs = zip(package.variants, targets, strict=True)
        return replace(package, variants=tuple(replace(v, binaries={t: KERNELS}, label="") for v, t in pairs))

    found = compiled_for(*("sm_90" if number == own else "sm_80" for number in range(2)))
    assert found.targets == ("sm_80", "sm_90")
    found(*tensors, sizes={"s": 4})
    assert [line.split()[3] for line in stub.log if line.startswith("launch sum")] == [("33", "34")[own]]
    with pytest.raises(CleaveError, match="no kernels for sm_90\nnote: it was compiled for: sm_80, sm_86"):
        compiled_for("sm_80", "sm_86")(*tensors, sizes={"s": 4})


def test_the_default_stream_has_its_own_memory(stub: Stub, torch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    package, w = package_of(stub, monkeypatch, SPLIT_K), TorchTensor(W, (100, 64))
    for _ in range(2):
        package(TorchTensor(X + 8, (33, 100)), w, sizes={"s": 2}, stream=0)  # which is copied first
    assert torch.given and {stream for _, stream in torch.given} == {0}
    assert all("stream 0:" in line for line in stub.log if line.startswith("launch"))


HIDDEN = LaunchPlan(
    "hidden",
    (spec("x", "m k"), spec("u", "j k")),
    (
        Alloc(spec("h", "m j")),
        Launch("sum", ("m",), ("x", "h"), ("h",), ("in:0", "in:1", "size:j")),
        Alloc(spec("out", "m k")),
        Launch("sum", ("m",), ("h", "out"), ("out",), ("in:0", "in:1", "size:j")),
    ),
    ("out",),
)


@pytest.mark.parametrize("width", [0, 5])
def test_what_lies_between_may_be_empty(stub: Stub, torch: Torch, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    package, tensors = package_of(stub, monkeypatch, HIDDEN), (TorchTensor(X, (3, 8)), TorchTensor(W, (width, 8)))
    counts: list[int] = []
    for _ in range(3):
        stub.reset()
        assert package(*tensors).shape == (3, 8)
        counts.append(sum(line.startswith("launch sum") for line in stub.log))
    assert counts[0] and len(set(counts)) == 1


IN_TURN = replace(
    HIDDEN,
    steps=(
        Alloc(spec("h", "m j")),
        Alloc(spec("i", "m j")),
        Alloc(spec("l", "m j")),
        Alloc(spec("out", "m k")),
        Launch("sum", ("m",), ("x", "h"), ("h",), ("in:0", "in:1", "size:j")),
        Launch("sum", ("m",), ("h", "i"), ("i",), ("in:0", "in:1", "size:j")),
        Launch("sum", ("m",), ("i", "l"), ("l",), ("in:0", "in:1", "size:j")),
        Launch("sum", ("m",), ("l", "out"), ("out",), ("in:0", "in:1", "size:j")),
    ),
)


def test_pieces_of_a_workspace_lie_where_it_does(stub: Stub, torch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    package, tensors = package_of(stub, monkeypatch, IN_TURN), (TorchTensor(X, (3, 8)), TorchTensor(W, (5, 8)))
    places: list[int] = []
    torch._C = SimpleNamespace(_cuda_isCurrentStreamCapturing=lambda: len(places) < 3)  # then it is where it was
    package(*tensors)
    for _ in range(6):
        stub.reset()
        out = package(*tensors)
        words = [line.partition(": ")[2].split() for line in stub.log if line.startswith("launch sum")]
        (x, h), *between, (last, result) = [(int(first), int(second)) for first, second, *_ in words]
        assert between == [(h, h + 256), (h + 256, h + 512)] and (x, last, result) == (X, h + 512, out.data_ptr())
        places.append(h)
    assert len(set(places)) == 4


ROWS = LaunchPlan(
    "rows",
    (spec("x", "m k"), spec("y", "m k")),
    (Alloc(spec("out", "m k")), Launch("sum", ("m",), ("x", "y", "out"), ("out",), ("in:0", "in:2", "size:k"))),
    ("out",),
)


@pytest.mark.parametrize("guards", [Guards, Credulous, None])
def test_tensors_like_the_last_ones_and_others(
    stub: Stub, torch: Torch, monkeypatch: pytest.MonkeyPatch, guards: Any
) -> None:
    torch._C = SimpleNamespace(_dynamo=SimpleNamespace(guards=SimpleNamespace(TensorGuards=guards)))
    package = package_of(stub, monkeypatch, ROWS)
    pairs = [TorchTensor(X, (3, 8)), TorchTensor(W, (3, 8))], [TorchTensor(X, (4, 16)), TorchTensor(W, (4, 16))]
    for number in (0, 0, 1, 1, 0, 1, 0):
        stub.reset()
        package(*pairs[number])
        grid, width = (("grid 3", " 8 0 0"), ("grid 4", " 16 0 0"))[number]
        assert grid in stub.log[-1] and stub.log[-1].endswith(width), number
    assert len(package._remembered._known) == 2
    for wrong in ([*pairs[0], pairs[0][0]], pairs[0][:1], [pairs[0][0], pairs[1][1]], [pairs[0][0], 1.0]):
        with pytest.raises(CleaveError):
            package(*wrong)
    stub.reset()
    package(TorchTensor(X + 8, (3, 8)), pairs[0][1])
    assert f": {X} " in stub.log[-1], "a copy, aligned"
    package(Negated(X, (3, 8)), pairs[0][1])
    assert f": {X + 2**20} " in stub.log[-1]


def test_what_is_alike_is_told_in_one_call(stub: Stub, torch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    torch._C = SimpleNamespace(_dynamo=SimpleNamespace(guards=SimpleNamespace(TensorGuards=Guards)))
    package, pair = package_of(stub, monkeypatch, ROWS), [TorchTensor(X, (3, 8)), TorchTensor(W, (3, 8))]
    package(*pair), package(*pair)
    monkeypatch.setattr("cleave.runtime.remembered._key", None)
    package(*pair)
    assert [line.split()[3] for line in stub.log if "launch" in line] == ["3"] * 3


@pytest.mark.parametrize("plan", [SPLIT_K, SHARED], ids=["plain", "counters"])
def test_new_memory_is_the_streams(stub: Stub, torch: Torch, monkeypatch: pytest.MonkeyPatch, plan: LaunchPlan) -> None:
    """What PyTorch frees on one stream it gives to the next call there, which must not run beside this one."""
    monkeypatch.setitem(KERNELS, "all", Kernel("all", b"all:8,8,8,8", 0, 4))
    package, tensors = package_of(stub, monkeypatch, plan), (TorchTensor(X, (33, 100)), TorchTensor(W, (100, 64)))
    for stream in (None, None, 78, 501, 77):  # the first call, and remembered ones; 501 is capturing a graph
        torch.given.clear()
        stub.reset()
        package(*tensors, sizes={"s": 2}, stream=stream)
        assert {where for _, where in torch.given} == {stream or 77}
        assert all(f"stream {stream or 77}:" in line for line in stub.log if "launch" in line)
        own = {str(address) for address, _ in torch.given}
        used = {word for line in stub.log if "launch" in line for word in line.partition(": ")[2].split()}
        assert plan is SHARED or own <= used
    package = package_of(stub, monkeypatch, plan)
    torch.given.clear()
    package(*tensors, sizes={"s": 2}, stream=79)
    assert torch.given and {where for _, where in torch.given} == {79}, "the first call"


def test_calls_on_a_stream_use_one_workspace_in_turn(stub: Stub, torch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another stream, of a graph, of a thread that comes between, and where it is large: each has its own."""
    capturing: set[int] = set()
    torch._C = SimpleNamespace(_cuda_isCurrentStreamCapturing=lambda: torch.streams[-1] in capturing)
    package, tensors = package_of(stub, monkeypatch, SPLIT_K), (TorchTensor(X, (33, 100)), TorchTensor(W, (100, 64)))

    def used(stream: int = 77, s: int = 2, calls: int = 1) -> list[str]:
        """Where the parts of each launch go."""
        stub.reset()
        for _ in range(calls):
            package(*tensors, sizes={"s": s}, stream=stream)
        return [line.partition(": ")[2].split()[2] for line in stub.log if line.startswith("launch parts")]

    used(), used(s=4)  # first calls, of which nothing is kept
    smaller, (larger, *same) = used()[0], used(s=4, calls=3)
    assert smaller != larger and set(same) == {larger}
    assert used() == [larger], "a larger one does for less"
    assert used(78) != [larger] and used() == [larger]
    assert len(set(used(2, calls=3))) == 3, "a stream of each thread, by one handle"
    capturing.add(77)
    assert len({larger, *used(calls=3)}) == 4
    capturing.clear()
    assert used() == [larger]
    monkeypatch.setattr("cleave.runtime.workspaces.LARGEST", 2**10)
    assert used() == [larger] and len({larger, *used(calls=3)}) == 4


def test_a_call_between_the_launches_of_another_has_its_own_workspace(
    stub: Stub, torch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch._C = SimpleNamespace(_cuda_isCurrentStreamCapturing=lambda: False)
    package, tensors = package_of(stub, monkeypatch, SPLIT_K), (TorchTensor(X, (33, 100)), TorchTensor(W, (100, 64)))
    package(*tensors, sizes={"s": 2}), package(*tensors, sizes={"s": 2})
    (known,) = package._remembered._known.values()
    (slot,) = known.ready.free
    first, second = slot._starts
    before = len(stub.log)

    def start() -> int:
        status = first()
        if len(stub.log) == before + 1:
            package(*tensors, sizes={"s": 2})
        return status

    slot._starts = start, second
    package(*tensors, sizes={"s": 2})
    launches = stub.log[before:]
    assert [line.split()[1] for line in launches] == ["parts", "parts", "sum", "sum"]
    parts = [line.partition(": ")[2].split()[2] for line in launches[:2]]
    assert parts[0] != parts[1]
    assert [line.partition(": ")[2].split()[0] for line in launches[2:]] == parts[::-1]


@pytest.mark.parametrize("quick", [False, True])
def test_a_graph_has_counters_of_its_own(
    stub: Stub, torch: Torch, monkeypatch: pytest.MonkeyPatch, quick: bool
) -> None:
    """Whether PyTorch or the driver says what is captured; where PyTorch does, the driver need not be asked."""
    capturing: set[int] = set()
    monkeypatch.setattr(stub.driver, "is_capturing", capturing.__contains__)
    if quick:
        torch._C = SimpleNamespace(_cuda_isCurrentStreamCapturing=lambda: torch.streams[-1] in capturing)
    monkeypatch.setitem(KERNELS, "all", Kernel("all", b"all:8,8,8,8", 0, 4))
    package, tensors = package_of(stub, monkeypatch, SHARED), (TorchTensor(X, (33, 100)), TorchTensor(W, (100, 64)))
    for stream, captures in ((77, False), (77, False), (78, False), (77, True), (77, True), (78, False), (77, False)):
        capturing.update([stream] if captures else [])
        package(*tensors, sizes={"s": 2}, stream=stream)
        capturing.clear()
    first, again, other, *graphs, other_again, last = [
        line.rpartition(": ")[2].split()[1] for line in stub.log if "launch all" in line
    ]
    assert first == again == last and other == other_again
    assert len({first, other, *graphs}) == 4
    if quick:
        monkeypatch.setattr(stub.driver, "is_capturing", None)
        package(*tensors, sizes={"s": 2}, stream=77)


def test_pooled_memory_is_apart() -> None:
    """Each root that is used has bytes of its own; tensors, results and counters stay whole."""
    inputs = 2
    for m, s in itertools.product((1, 33, 100), (1, 4)):
        bound = bind(SHARED, [Layout.row_major((m, 100)), Layout.row_major((100, 64))], {"s": s})
        for fits in (False, True):
            chosen = bound.on_gpu(lambda launch, fits=fits: fits, overlaps=False)
            pooled = chosen.pooled(inputs)
            places = {
                old[1]: (new[1], new[2] - old[2])
                for before, after in zip(chosen.launches, pooled.launches, strict=True)
                for old, new in zip(before.pointers, after.pointers, strict=True)
            }
            sizes = [math.prod(shape) * BYTES[spec.dtype] for spec, shape in pooled.allocated]
            taken: dict[int, list[tuple[int, int]]] = {}
            for root, (number, offset) in places.items():
                if root < inputs:
                    assert (number, offset) == (root, 0)
                    continue
                spec_, shape = chosen.allocated[root - inputs]
                size = math.prod(shape) * BYTES[spec_.dtype]
                assert offset % 256 == 0 and offset + size <= sizes[number - inputs]
                assert all(end <= offset or offset + size <= start for start, end in taken.get(number, []))
                taken.setdefault(number, []).append((offset, offset + size))
            assert [place.layout for place in pooled.results] == [place.layout for place in chosen.results]
            assert len(pooled.zeroed) == len(chosen.zeroed) == fits
            assert all(root - inputs == len(sizes) - 1 for root, _ in pooled.zeroed)
