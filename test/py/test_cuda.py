"""Launching through the CUDA driver, against a driver of our own that records what it is told (``stub_cuda.c``)."""

from __future__ import annotations

import ctypes
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from cuda_stub import KERNELS, SHARED, SPLIT_K, Stub, W, X, library, package_of, spec, stub
from torch_stub import WORKSPACE, FakeTensor, Memory

from cleave.errors import CleaveError
from cleave.runtime.cuda import Call, Kernel, Program
from cleave.runtime.cuda_driver import Driver
from cleave.runtime.cuda_launch import Launcher
from cleave.runtime.launch_plan import Launch, LaunchPlan, TensorSpec, View

__all__ = ["library", "stub"]


def call(stub: Stub, x: Any = None, memory: Any = None, s: int = 4) -> list[Any]:
    program = Program(SPLIT_K, KERNELS, stub.driver)
    inputs = [x or FakeTensor(X, (33, 100)), FakeTensor(W, (100, 64))]
    return program(inputs, memory or Memory(), 77, {"s": s})


def test_launches_as_the_plan_says(stub: Stub) -> None:
    memory = Memory()
    (out,) = call(stub, memory=memory)
    part, out_ = (tensor.address for tensor in memory.given)
    assert stub.log == [
        "load parts:8,8,8,4,4,8,8",
        "attribute 8 = 100000",  # more than 48 KB of shared memory must be asked for
        "load sum:8,8,4,8,8",
        f"launch parts grid 12 1 1 block 256 1 1 shared 100000 stream 77: {X} {W} {part} 33 25 0 0",
        f"launch sum grid 33 1 1 block 128 1 1 shared 1024 stream 77: {part} {out_} 4 0 0",
    ]
    assert out is memory.given[1]
    assert [(tensor.shape, tensor.dtype) for tensor in memory.given] == [
        ((33, 4, 64), "torch.float32"), ((33, 64), "torch.float16"),
    ]  # fmt: skip


def test_old_drivers_launch_the_same(stub: Stub) -> None:
    """Those before CUDA 11.8 have no cuLaunchKernelEx."""
    call(stub)
    wanted = [line for line in stub.log if line.startswith("launch")]
    stub.reset()
    del stub.driver._functions["cuLaunchKernelEx"]
    call(stub)
    assert [line for line in stub.log if line.startswith("launch")] == wanted and len(wanted) == 2


def test_kernels_are_loaded_once(stub: Stub) -> None:
    program = Program(SPLIT_K, KERNELS, stub.driver)
    for m in (1, 2):
        program([FakeTensor(X, (m, 8)), FakeTensor(W, (8, 64))], Memory(), 0, {"s": 2})
    assert sum(line.startswith("load") for line in stub.log) == 2
    assert sum(line.startswith("launch") for line in stub.log) == 4


def test_a_prepared_call_is_launched_as_often_as_one_likes(stub: Stub) -> None:
    call = Program(SPLIT_K, KERNELS, stub.driver).prepare(
        [FakeTensor(X, (33, 100)), FakeTensor(W, (100, 64))], Memory(), {"s": 4}
    )
    assert not [line for line in stub.log if line.startswith("launch")]
    call.launch(1)
    call.launch(2)
    launches = [line for line in stub.log if line.startswith("launch")]
    assert [line.replace("stream 2", "stream 1") for line in launches[2:]] == launches[:2]


def test_what_is_remembered_is_of_the_same_shapes_strides_types_and_sizes(stub: Stub) -> None:
    program, memory = Program(SPLIT_K, KERNELS, stub.driver), Memory()
    w = FakeTensor(W, (100, 64))
    program([FakeTensor(X, (33, 100)), w], memory, 0, {"s": 4})
    program([FakeTensor(2 * X, (33, 100)), w], memory, 0, {"s": 4})
    program([FakeTensor(X, (33, 100)), w], memory, 0, {"s": 5})
    program([FakeTensor(X, (32, 100)), w], memory, 0, {"s": 5})
    addresses = [tensor.address for tensor in memory.given]
    assert [line.partition(": ")[2] for line in stub.log if line.startswith("launch parts")] == [
        f"{X} {W} {addresses[0]} 33 25 0 0",
        f"{2 * X} {W} {addresses[2]} 33 25 0 0",
        f"{X} {W} {addresses[4]} 33 20 0 0",
        f"{X} {W} {addresses[6]} 32 20 0 0",
    ]
    for bad in (FakeTensor(X, (33, 100), "torch.bfloat16"), FakeTensor(X, (33, 100), strides=(1, 33))):
        with pytest.raises(CleaveError):
            program([bad, w], memory, 0, {"s": 4})


def test_threads_have_parameters_of_their_own(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each launch has the addresses of its own call, whichever thread was here before."""
    program, w = Program(SPLIT_K, KERNELS, stub.driver), FakeTensor(W, (100, 64))
    current: dict[int, int] = {}
    seen: list[bool] = []

    def watched(*arguments: Any) -> Launcher:
        launcher = Launcher(*arguments)

        def start() -> int:
            time.sleep(0)  # others run
            if launcher._shape.name == "parts":
                address = ctypes.c_int64.from_address(launcher._pointers[0]).value
                seen.append(address == current[launcher.stream.value or 0])
            return 0

        launcher.start = start
        return launcher

    monkeypatch.setattr("cleave.runtime.cuda.Launcher", watched)

    def work(number: int) -> None:
        for step in range(200):
            x = FakeTensor(X + 2**16 * (200 * number + step), (33, 100))
            current[number] = x.address
            ready = program.ready([x, w], {"s": 4})
            program.run(ready, [x.address, W, WORKSPACE, WORKSPACE + 2**20], number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 800 and all(seen)


def test_an_empty_grid_launches_nothing(stub: Stub) -> None:
    (out,) = call(stub, x=FakeTensor(0, (0, 100)))
    assert out.shape == (0, 64)
    assert not [line for line in stub.log if line.startswith("launch")]


def test_strides_are_passed_where_the_kernel_asks(stub: Stub) -> None:
    launch = Launch("k", ("m",), ("x",), (), ("in:0", "stride:0:0", "stride:0:1", "size:m"))
    plan = LaunchPlan("f", (spec("x", "m k"),), (launch,), ("x",))
    kernels = {"k": Kernel("k", b"k:8,8,8,4,8,8", 0, 4)}
    x = FakeTensor(X, (3, 5), strides=(1, -7))
    assert Program(plan, kernels, stub.driver)([x], Memory()) == [x]
    assert stub.log[-1] == f"launch k grid 3 1 1 block 128 1 1 shared 0 stream 0: {X} 1 -7 3 0 0"


def test_the_array_interface_is_read(stub: Stub) -> None:
    interface = {"shape": (33, 100), "typestr": "<f2", "data": (X, False), "strides": (200, 2)}
    call(stub, x=SimpleNamespace(__cuda_array_interface__=interface))
    assert f"{X} {W}" in stub.log[3]


def test_a_view_that_is_returned_is_reshaped(stub: Stub) -> None:
    merged = View("x", ("m", "k"), ("p=m*k",), spec("y", "p=m*k"))
    plan = LaunchPlan("f", (spec("x", "m k"),), (merged,), ("y",))
    (y,) = Program(plan, {}, stub.driver)([FakeTensor(X, (3, 5))], Memory())
    assert (y.address, y.shape) == (X, (15,))


def test_a_slice_starts_at_its_offset(stub: Stub) -> None:
    part = View("x", ("m",), ("p=2",), TensorSpec("y", "f16", ("p=2", "k"), (2, None)), offset="m-2")
    launch = Launch("k", ("1",), ("y",), (), ("in:0",))
    plan = LaunchPlan("f", (spec("x", "m k"),), (part, launch), ("y",))
    kernels = {"k": Kernel("k", b"k:8,8,8", 0, 4)}
    (y,) = Program(plan, kernels, stub.driver)([FakeTensor(X, (9, 5))], Memory())
    assert (y.address, y.shape) == (X + 2 * 7 * 5, (2, 5))
    assert stub.log[-1].endswith(f": {X + 2 * 7 * 5} 0 0")


BAD_INPUTS = [
    (FakeTensor(X, (33, 100), "torch.bfloat16"), "x has elements of bf16; the function takes f16"),
    (FakeTensor(X, (33,)), r"x has rank 1; the function takes rank 2: \[m, k\]"),
    (FakeTensor(X, (33, 99)), "dimension 'k' is 99 in x and 100 in w"),
    (FakeTensor(X + 8, (33, 100)), "x starts at an address that is no multiple of 16 bytes"),
    (FakeTensor(1024, (33, 100)), "x is not in a GPU's memory; the current GPU is 0"),
    (FakeTensor(2**41, (33, 100)), "x is on GPU 1; the current GPU is 0"),
    (FakeTensor(X, (33, 100), strides=(1, 33)), r"x of shape \[33, 100\] has the strides \[1, 33\]; .* row-major"),
    (FakeTensor(X, (2**31 - 1, 100)), "dimension 'm' of x is 2147483647; an extent is at least 0 and at most"),
    (FakeTensor(X, (2**30, 100)), "needs 268435456000 programs along x; a grid has at most 2147483647"),
    ([1.0], "x is a list, which is no tensor on a GPU"),
]


@pytest.mark.parametrize(("x", "message"), BAD_INPUTS, ids=[message[:30] for _, message in BAD_INPUTS])
def test_bad_inputs_are_refused_before_any_launch(stub: Stub, x: Any, message: str) -> None:
    s = 4000 if "programs" in message else 4
    with pytest.raises(CleaveError, match=rf"^in.mlir:3:1: error: .*{message}"):
        call(stub, x=x, s=s)
    assert not [line for line in stub.log if line.startswith("launch")]


def test_broken_facts_and_wrong_numbers_of_inputs_are_refused(stub: Stub) -> None:
    with pytest.raises(CleaveError, match="the function requires 1 <= s"):
        call(stub, s=0)
    with pytest.raises(CleaveError, match="f takes 2 arguments, not 1"):
        Program(SPLIT_K, KERNELS, stub.driver)([FakeTensor(X, (1, 1))], Memory())


def test_an_allocator_that_gives_something_else_is_found_out(stub: Stub) -> None:
    with pytest.raises(CleaveError, match=r"the allocator gave f16\[1\] for part: f32"):
        call(stub, memory=lambda shape, dtype: FakeTensor(X, (1,)))


@pytest.mark.parametrize(
    ("failing", "status", "message"),
    [
        ("cuModuleLoadData", 2, "cannot load kernel parts: out of memory (CUDA error 2)"),
        ("cuFuncSetAttribute", 1, "kernel parts 100000 bytes of shared memory: unknown error (CUDA error 1)"),
        ("cuLaunchKernel", 700, "kernel parts on the grid (12, 1, 1): an illegal memory access was encountered"),
        ("cuDeviceGet", 2, "cannot find the GPU: out of memory"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("cu") else "",
)
def test_failing_calls_are_errors(stub: Stub, failing: str, status: int, message: str) -> None:
    stub.reset(failing, status)
    with pytest.raises(CleaveError) as caught:
        call(stub)
    assert message in str(caught.value)


def test_kernels_that_do_not_fit_the_plan_are_refused(stub: Stub) -> None:
    with pytest.raises(CleaveError, match="there is no kernel 'sum'\nnote: kernels: parts"):
        Program(SPLIT_K, {"parts": KERNELS["parts"]}, stub.driver)
    with pytest.raises(CleaveError, match="kernel sum needs 128 bytes of scratch memory"):
        Program(SPLIT_K, {**KERNELS, "sum": replace(KERNELS["sum"], scratch=128)}, stub.driver)
    other = {**KERNELS, "parts": replace(KERNELS["parts"], cubin=b"parts:8,8,8,4,8,8")}
    program = Program(SPLIT_K, other, stub.driver)
    message = r"takes parameters of \[8, 8, 8, 4, 8, 8\] bytes; the plan gives it \[8, 8, 8, 4, 4, 8, 8\]"
    with pytest.raises(CleaveError, match=message):
        program([FakeTensor(X, (33, 100)), FakeTensor(W, (100, 64))], Memory(), 0, {"s": 4})


OVERLAPPING = replace(
    SPLIT_K, steps=tuple(replace(step, overlaps=True) if isinstance(step, Launch) else step for step in SPLIT_K.steps)
)


def test_launches_overlap_with_the_one_ahead_in_their_call(stub: Stub) -> None:
    program = Program(OVERLAPPING, KERNELS, stub.driver)
    program([FakeTensor(X, (33, 100)), FakeTensor(W, (100, 64))], Memory(), 77, {"s": 4})
    starts = [line.split(" grid")[0] for line in stub.log if "launch" in line]
    assert starts == ["launch parts", "with 6 = 1: launch sum"]


def shared_call(stub: Stub, s: int) -> Call:
    kernels = {**KERNELS, "all": Kernel("all", b"all:8,8,8,8", 0, 4)}
    program = Program(SHARED, kernels, stub.driver)
    return program.prepare([FakeTensor(X, (33, 100)), FakeTensor(W, (100, 64))], Memory(), {"s": s})


def test_blocks_that_meet_are_launched_together_where_there_is_room(stub: Stub) -> None:
    fitting, too_many = shared_call(stub, 2), shared_call(stub, 3)  # 6 and 9 blocks
    stub.reset()
    fitting.launch(77)
    counters = int(stub.log[0].split()[1])
    assert stub.log[0] == f"fill {counters} with 3 of 0 stream 77"
    launch = f"with 2 = 1: launch all grid 6 1 1 block 128 1 1 shared 0 stream 77: {X} {counters} 0 0"
    assert stub.log[1:] == [launch]
    stub.reset()
    too_many.launch(77)
    assert [line.split(" grid")[0] for line in stub.log if "launch" in line] == ["launch parts", "launch sum"]
    assert not [line for line in stub.log if "fill" in line]


def test_counters_are_zeroed_once_outside_graphs_and_in_each_graph_before(stub: Stub) -> None:
    call, fills = shared_call(stub, 2), []
    for stream in (500, 501, 1, 2, 502):
        stub.reset()
        call.launch(stream)
        fills.append("fill" in stub.log[0])
    assert fills == [True, True, True, False, False]


def test_calls_share_the_counters_of_their_stream_and_those_of_graphs_have_their_own(stub: Stub) -> None:
    program = Program(SHARED, {**KERNELS, "all": Kernel("all", b"all:8,8,8,8", 0, 4)}, stub.driver)
    counters: dict[str, list[int]] = {}
    fills: list[str] = []
    for name, stream in [(name, int(name)) for name in "77 77 78 501 501 77 502".split()]:
        stub.reset()
        program([FakeTensor(X, (33, 100)), FakeTensor(W, (100, 64))], Memory(), stream, {"s": 2})
        counters.setdefault(name, []).append(int(stub.log[-1].split()[-3]))
        fills.append(name if any("fill" in line for line in stub.log) else "")
    assert len(set(counters["77"])) == 1 and counters["77"][0] != counters["78"][0]
    captured = counters["501"] + counters["502"]
    assert len({*captured, counters["77"][0], counters["78"][0]}) == 5, "each launch in a graph has its own"
    assert fills == ["77", "", "78", "", "", "", ""], "zeroed outside graphs, once"


def test_a_graph_zeroes_counters_that_no_call_before_it_left(stub: Stub) -> None:
    program = Program(SHARED, {**KERNELS, "all": Kernel("all", b"all:8,8,8,8", 0, 4)}, stub.driver)
    memory = Memory()
    program([FakeTensor(X, (33, 100)), FakeTensor(W, (100, 64))], memory, 501, {"s": 2})
    (fill,) = [line for line in stub.log if "fill" in line]
    assert int(fill.split()[1]) in [given.address for given in memory.given] and fill.endswith("of 0 stream 501")


def test_no_driver_says_so() -> None:
    message = r"the CUDA driver cannot be loaded.*\nnote: launching kernels needs an NVIDIA GPU"
    with pytest.raises(CleaveError, match=message):
        Driver("libcuda-that-is-not-there.so.1")


# --- arrays of other libraries ----------------------------------------------------------------------------------------


def _array(address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Any:
    """An array of another library on a GPU."""
    interface = {"shape": shape, "typestr": "<f2", "data": (address, False), "strides": strides}
    return SimpleNamespace(__cuda_array_interface__=interface, shape=shape)


@pytest.mark.parametrize(
    ("address", "strides", "copy"), [(X, (202, 2), "33 of 200"), (X + 2, None, "1 of 6600"), (X, None, "")]
)
def test_arrays_that_kernels_cannot_read_are_copied_on_the_stream(
    stub: Stub, monkeypatch: pytest.MonkeyPatch, address: int, strides: tuple[int, ...] | None, copy: str
) -> None:
    monkeypatch.setattr("cleave.runtime.cuda_driver.shared_driver", lambda: stub.driver)
    package, x = package_of(stub, monkeypatch, SPLIT_K), _array(address, (33, 100), strides)
    package(x, _array(W, (100, 64)), sizes={"s": 4}, stream=77)
    made = [line for line in stub.log if line.startswith("copy")]
    launch = next(line for line in stub.log if line.startswith("launch parts"))
    where, weights = launch.partition(": ")[2].split()[:2]
    assert weights == str(W) and (where != str(address)) == bool(copy) == bool(made)
    assert not copy or (made[0].startswith(f"copy {copy} from {address} ") and made[0].endswith("stream 77"))


def test_a_strided_array_of_another_gpu_is_named(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cleave.runtime.cuda_driver.shared_driver", lambda: stub.driver)
    with pytest.raises(CleaveError, match="argument 0 is on GPU 1; the current GPU is 0"):
        package_of(stub, monkeypatch, SPLIT_K)(_array(2**41, (33, 100), (202, 2)), _array(W, (100, 64)), sizes={"s": 4})
