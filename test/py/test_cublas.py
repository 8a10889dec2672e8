"""Launches that cuBLAS makes, against one of our own that computes on the host (``stub_cublas.c``)."""

from __future__ import annotations

import ctypes
import gc
import itertools
import random
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from blas_stub import HERE, TORCH, Stub, Tensor, built, filled, kernel

from cleave.errors import CleaveError
from cleave.runtime import cublas
from cleave.runtime.cublas import Cublas, found, shared_cublas
from cleave.runtime.cuda import Program
from cleave.runtime.gemm import Factor, Gemm, gemm_of
from cleave.runtime.launch_plan import Alloc, Launch, LaunchPlan, TensorSpec, View
from cleave.runtime.layout import Layout
from cleave.runtime.package import Package, Variant

ROUNDING = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-22, "f64": 2.0**-50}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Stub:
    return built(tmp_path_factory.mktemp("stub"))


@pytest.fixture
def stub(both: Stub) -> Iterator[Stub]:
    both.reset()
    yield both
    both.reset()


def spec(name: str, dims: str, dtype: str) -> TensorSpec:
    return TensorSpec(name, dtype, tuple(dims.split()), (None,) * len(dims.split()))


def plan_of(x: str, w: str, out: str, dtype: str = "f16", result: str = "", *, swapped: bool = False) -> LaunchPlan:
    """Of one product; the kernel's operands in another order if ``swapped``."""
    strides = [f"stride:{n}:{axis}" for n, dims in enumerate((x, w)) for axis in range(len(dims.split()))]
    operands = ("out", "w", "x") if swapped else ("x", "w", "out")
    if swapped:
        strides = [f"stride:{2 - int(text[7])}:{text[9:]}" for text in strides]
    launch = Launch("k", ("1",), operands, ("out",), ("in:0", "in:1", "in:2", *strides), product=1)
    steps = (Alloc(spec("out", out, result or dtype)), launch)
    return LaunchPlan("f", (spec("x", x, dtype), spec("w", w, dtype)), steps, ("out",))


def expected(x: str, w: str, out: str, first: Tensor, second: Tensor) -> Any:
    letters = {name: chr(ord("a") + number) for number, name in enumerate(dict.fromkeys([*x.split(), *w.split()]))}
    left, right, result = ("".join(letters[name] for name in dims.split()) for dims in (x, w, out))
    return np.einsum(f"{left},{right}->{result}", *(each.array.astype(np.float64) for each in (first, second)))


def check(out: Tensor, wanted: Any, inner: int, dtype: str) -> None:
    got = out.array.astype(np.float64)
    assert got.shape == wanted.shape and np.isfinite(got).all()
    assert np.allclose(got, wanted, rtol=ROUNDING[dtype], atol=1e-6 * inner**0.5 if dtype != "f64" else 1e-13 * inner)


PRODUCTS = [
    *itertools.product(("m k", "k m"), ("k n", "n k"), ("m n", "n m")),
    ("b m k", "b k n", "b m n"), ("b m k", "b n k", "b n m"), ("m b k", "k b n", "m b n"), ("b k m", "k b n", "n b m"),
    ("b t k", "k n", "b t n"), ("b t k", "n k", "n b t"), ("b t k", "k h d", "b t h d"), ("k", "k n", "n"),
    ("m k", "k", "m"), ("k", "k", ""), ("b k", "b k", "b"), ("b k", "b k n", "b n"), ("m k l", "n k l", "m n"),
    ("a b m k", "a b n k", "a b m n"), ("a b m k", "a b k n", "a b n m"),
]  # fmt: skip
"""Products that are BLAS's at all sizes."""
EXTENTS = (1, 2, 3, 5, 8, 17)


@pytest.mark.parametrize(("x", "w", "out"), PRODUCTS, ids=lambda dims: dims.replace(" ", ""))
def test_numbers_of_every_layout(stub: Stub, x: str, w: str, out: str) -> None:
    """Of whole tensors, of parts of larger ones whose rows have other strides, at odd sizes and 1; no NaN is read."""
    draw = random.Random(x + w + out)
    for case in range(24):
        stub.reset(workspace=draw.choice((0, 1000)))
        sizes = {name: draw.choice(EXTENTS) for name in {*x.split(), *w.split()}}
        dtype, result = draw.choice([("f16", "f16"), ("f16", "f32"), ("bf16", "bf16"), ("f32", "f32"), ("f64", "f64")])
        pairs = []
        for dims in (x, w):
            shape = [sizes[name] for name in dims.split()]
            pitch = [*shape[:-1], shape[-1] + draw.choice((0, 3, 16))] if shape and len(dims.split()) == 2 else shape
            pairs.append(filled(stub, shape, dtype, pitch=pitch))
        program = stub.program(plan_of(x, w, out, dtype, result, swapped=case % 2 == 1))
        (got,) = program(pairs, stub.allocate, 7)
        assert any("product on 7" in line for line in stub.log) and not stub.launches, (sizes, program.kept)
        check(got, expected(x, w, out, *pairs), sizes.get("k", 1), result)


@pytest.mark.parametrize(("x", "w", "out"), [("b t k", "k h d", "b h t d"), ("b t k", "k n", "t b n")])
def test_what_is_no_product_of_blas_is_the_kernels(stub: Stub, x: str, w: str, out: str) -> None:
    sizes = {"b": 2, "t": 3, "k": 5, "h": 4, "d": 8, "n": 6}
    pair = [filled(stub, [sizes[name] for name in dims.split()], "f16") for dims in (x, w)]
    program = stub.program(plan_of(x, w, out))
    program(pair, stub.allocate, 7)
    assert stub.launches == ["launch k"] and not stub.log
    assert program.kept == {"k": "cuBLAS 12.8.4 has no such product"}


@pytest.mark.parametrize("sizes", [(0, 3, 4), (3, 0, 4), (3, 4, 0)])
def test_nothing_is_left_to_blas_that_is_empty(stub: Stub, sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    (out,) = stub.program(plan_of("m k", "k n", "m n"))(
        [filled(stub, (m, k), "f16"), filled(stub, (k, n), "f16")], stub.allocate
    )
    assert out.shape == (m, n) and not stub.log and stub.launches == ["launch k"]


def test_both_ways_of_a_square_matrix_are_told_apart() -> None:
    """A transposed matrix and a plain one have the same extents; only strides say which is which."""
    layouts = (Layout((4, 4), (4, 1)), Layout((4, 4), (1, 4)))
    seen = set[tuple[bool, bool]]()
    for first, second in itertools.product(layouts, repeat=2):
        factors = (Factor(("m", "k"), "f16", first), Factor(("k", "n"), "f16", second))
        gemm = gemm_of([*factors, Factor(("m", "n"), "f16", layouts[0])])
        assert gemm is not None and gemm.order == (1, 0, 2)
        seen.add(gemm.transposed)
    assert len(seen) == 4


def test_overlapping_memory_and_strides_of_no_matrix_are_refused() -> None:
    out, w = Factor(("m", "n"), "f16", Layout((4, 4), (4, 1))), Factor(("k", "n"), "f16", Layout((4, 4), (4, 1)))
    for strides in ((0, 1), (2, 1), (8, 2), (1, 1)):
        assert gemm_of([Factor(("m", "k"), "f16", Layout((4, 4), strides)), w, out]) is None


def test_a_part_that_starts_between_aligned_addresses_is_said_to(stub: Stub) -> None:
    """What cuBLAS assumes of an address holds of it (the stub refuses it otherwise)."""
    part = View("w", ("n",), ("c=4",), TensorSpec("part", "f16", ("k", "c=4"), (None, 4)), offset="n-5")
    launch = Launch("k", ("1",), ("x", "part", "out"), ("out",), ("in:0", "in:1", "in:2"), product=1)
    out = Alloc(TensorSpec("out", "f16", ("m", "c=4"), (None, 4)))
    plan = LaunchPlan("f", (spec("x", "m k", "f16"), spec("w", "k n", "f16")), (part, out, launch), ("out",))
    x, w = filled(stub, (3, 8), "f16"), filled(stub, (8, 16), "f16")
    (got,) = stub.program(plan)([x, w], stub.allocate)
    check(got, x.array.astype(float) @ w.array[:, 11:15].astype(float), 8, "f16")
    assert any("product" in line for line in stub.log)


def two_products(overlaps: bool = False) -> LaunchPlan:
    """(x·w)·v, then a kernel."""
    first = Launch("a", ("1",), ("x", "w", "t"), ("t",), ("in:0", "in:1", "in:2"), product=1)
    second = Launch("b", ("1",), ("t", "v", "y"), ("y",), ("in:0", "in:1", "in:2"), product=1, overlaps=overlaps)
    last = Launch("c", ("m",), ("y", "out"), ("out",), ("in:0", "in:1"), overlaps=overlaps)
    arguments = tuple(spec(name, dims, "f16") for name, dims in (("x", "m k"), ("w", "k n"), ("v", "n e")))
    memory = [Alloc(spec(name, dims, "f16")) for name, dims in (("t", "m n"), ("y", "m e"), ("out", "m e"))]
    steps = (memory[0], first, memory[1], second, memory[2], last)
    return LaunchPlan("f", arguments, steps, ("y", "out"))


def operands(stub: Stub) -> list[Tensor]:
    return [filled(stub, shape, "f16") for shape in ((3, 8), (8, 5), (5, 6))]


def test_products_in_a_longer_plan_share_a_workspace_and_nothing_overlaps_with_them(stub: Stub) -> None:
    stub.reset(workspace=1000)
    tensors = operands(stub)
    y, _ = stub.program(two_products(overlaps=True))(tensors, stub.allocate, 7)
    x, w, v = (tensor.array.astype(float) for tensor in tensors)
    check(y, (x @ w).astype(np.float16).astype(float) @ v, 5, "f16")
    assert stub.given[-1] == ((1000,), "i8") and len(stub.given) == 4
    assert stub.launches == ["launch c"], "which does not start before the product ahead of it is complete"
    assert [line.split(" handle")[0] for line in stub.log if "product" in line] == ["product on 7"] * 2


def test_without_the_library_the_plan_is_as_ever(stub: Stub) -> None:
    program = stub.program(two_products(overlaps=True), "there is no libcublasLt here")
    program(operands(stub), stub.allocate, 7)
    assert [line.rpartition("launch ")[2] for line in stub.launches] == ["a", "b", "c"]
    assert [line.startswith("with 6 = 1") for line in stub.launches] == [False, True, True]
    assert program.kept == dict.fromkeys("ab", "there is no libcublasLt here") and len(stub.given) == 3


def test_an_algorithm_is_asked_for_once_and_descriptions_are_given_back(stub: Stub) -> None:
    program, tensors = stub.program(two_products()), operands(stub)
    gc.collect()
    living = stub.blas.blas_living()
    for stream in (1, 2, 1):
        program(tensors, stub.allocate, stream)
    assert [stub.log.count(line) for line in ("create", "choose")] == [1, 2]
    assert [line.split()[2] for line in stub.log if "product" in line] == ["1", "1", "2", "2", "1", "1"]
    assert stub.blas.blas_living() == living + 8, "four for each product"
    del program
    stub.library = Cublas(str(stub.path))
    gc.collect()
    assert stub.blas.blas_living() == 0


def test_a_prepared_call_is_launched_on_any_stream_and_allocates_nothing_then(stub: Stub) -> None:
    stub.reset(workspace=1000)
    call = stub.program(two_products()).prepare(operands(stub), stub.allocate)
    given = len(stub.given)
    for stream in (500, 501):  # which are being captured
        call.launch(stream)
    assert len(stub.given) == given and len([line for line in stub.log if "product" in line]) == 4


def test_each_gpu_has_a_handle(stub: Stub) -> None:
    gemm = gemm_of([Factor((*dims,), "f16", Layout.row_major((4, 4))) for dims in ("mk", "kn", "mn")])
    assert isinstance(gemm, Gemm)
    handles = {stub.library.planned(gemm, 1, context).handle for context in (100, 101, 100)}  # pyright: ignore
    assert len(handles) == 2 and stub.log.count("create") == 2


def test_threads(stub: Stub) -> None:
    """Each with tensors of its own: the numbers are its own."""
    program = stub.program(plan_of("m k", "k n", "m n", "f32"))
    pairs = [[filled(stub, (9, 7), "f32"), filled(stub, (7, 5), "f32")] for _ in range(6)]
    outs = [[Tensor(stub.array((9, 5), "f32"), TORCH["f32"]) for _ in range(40)] for _ in pairs]
    wrong: list[Any] = []

    def work(number: int) -> None:
        try:
            for out in outs[number]:
                program(pairs[number], lambda shape, dtype, out=out: out, number)
                check(out, expected("m k", "k n", "m n", *pairs[number]), 7, "f32")
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


CALLS = [
    "cublasLtCreate", "cublasLtMatmulDescCreate", "cublasLtMatmulDescSetAttribute", "cublasLtMatrixLayoutCreate",
    "cublasLtMatmulPreferenceCreate", "cublasLtMatmulPreferenceSetAttribute", "cublasLtMatmulAlgoGetHeuristic",
    "cublasLtMatmul",
]  # fmt: skip


@pytest.mark.parametrize("failing", CALLS)
def test_failing_calls_are_errors(stub: Stub, failing: str) -> None:
    gc.collect()
    living = stub.blas.blas_living()
    stub.reset(failing, 13)
    with pytest.raises(CleaveError, match=r"cannot (start|describe|choose) .*: execution failed \(cuBLAS status 13\)$"):
        stub.program(plan_of("m k", "k n", "m n"))([filled(stub, (4, 4), "f16")] * 2, stub.allocate)
    kept = 4 if failing == "cublasLtMatmul" else 0  # for the next call
    assert stub.blas.blas_living() == living + kept


def test_a_batch_that_cannot_be_described_is_an_error(stub: Stub) -> None:
    stub.reset("cublasLtMatrixLayoutSetAttribute", 7)
    with pytest.raises(CleaveError, match="invalid value"):
        stub.program(plan_of("b m k", "b k n", "b m n"))([filled(stub, (2, 3, 3), "f16")] * 2, stub.allocate)


@pytest.mark.parametrize(("failing", "status"), [("none", 0), ("cublasLtMatmulAlgoGetHeuristic", 15)])
def test_where_the_library_has_no_algorithm_the_kernel_is_launched(stub: Stub, failing: str, status: int) -> None:
    stub.reset(failing, status)
    program = stub.program(plan_of("m k", "k n", "m n"))
    program([filled(stub, (3, 4), "f16"), filled(stub, (4, 5), "f16")], stub.allocate)
    assert stub.launches == ["launch k"] and program.kept == {"k": "cuBLAS 12.8.4 has no such product"}


def test_a_library_that_is_not_there_or_too_old_is_said(
    both: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "libold.so"
    subprocess.run(["gcc", "-DOLD", "-shared", "-fPIC", "-o", old, HERE / "stub_cublas.c"], check=True)
    said = {
        str(tmp_path / "libcublasLt.so.12"): "cuBLAS cannot be loaded: ",
        str(old): f"cuBLAS at {old} is of version",
    }
    cublas._shared.cache_clear()
    for path, message in said.items():
        monkeypatch.delenv("CLEAVE_CUBLAS", raising=False)
        with pytest.raises(CleaveError, match=message):
            found(path)
        monkeypatch.setenv("CLEAVE_CUBLAS", path)
        with pytest.raises(CleaveError, match=message) as error:
            shared_cublas()
        assert error.value.notes == (f"CLEAVE_CUBLAS is {path}: name a libcublasLt of 12 or later, or none",)
    monkeypatch.setenv("CLEAVE_CUBLAS", str(both.path))  # what was not there is looked for again
    assert str(shared_cublas()) == "cuBLAS 12.8.4" and shared_cublas() is shared_cublas()
    cublas._shared.cache_clear()


def test_the_first_product_says_that_the_named_library_cannot_be_loaded(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path that the user gave is no reason to launch the kernel without a word; without products none is loaded."""
    cublas._shared.cache_clear()
    monkeypatch.setenv("CLEAVE_CUBLAS", str(tmp_path / "libcublasLt.so.12"))
    plan = plan_of("m k", "k n", "m n")
    plain = replace(plan, steps=(plan.steps[0], replace(plan.launches[0], product=0)))
    tensors = [filled(stub, (3, 4), "f16"), filled(stub, (4, 5), "f16")]
    kernels = {launch.kernel: kernel(launch) for launch in plan.launches}
    with pytest.raises(CleaveError, match="cuBLAS cannot be loaded: "):
        Program(plan, kernels, stub.driver)(tensors, stub.allocate)
    assert not stub.launches
    Program(plain, kernels, stub.driver)(tensors, stub.allocate)
    assert stub.launches == ["launch k"]


def test_the_library_of_the_process_is_found_first(both: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = tmp_path / "libcublasLt.so.12"
    loaded.write_bytes(both.path.read_bytes())
    kept = ctypes.CDLL(str(loaded))
    assert kept and str(loaded) in cublas._loaded() and found().path == str(loaded)
    monkeypatch.setattr(cublas, "_candidates", lambda: iter([str(tmp_path / "none"), str(both.path)]))
    assert found().path == str(both.path)
    monkeypatch.setattr(cublas, "_candidates", lambda: iter(()))
    with pytest.raises(CleaveError, match="there is no libcublasLt here"):
        found()


@pytest.mark.parametrize(("rank", "made"), [(1, "algorithm 1"), (2, "algorithm 2"), (3, "")])
def test_the_algorithm_is_the_one_that_the_plan_says(stub: Stub, rank: int, made: str) -> None:
    """The stub has two; without a third the kernel is launched."""
    plan = plan_of("m k", "k n", "m n")
    plan = replace(plan, steps=(plan.steps[0], replace(plan.launches[0], product=rank)))
    x, w = filled(stub, (3, 4), "f16"), filled(stub, (4, 5), "f16")
    program = stub.program(plan)
    (out,) = program([x, w], stub.allocate)
    assert [line.rpartition(", ")[2] for line in stub.log if "product" in line] == ([made] if made else [])
    assert bool(stub.launches) == bool(program.kept) == (not made)
    if made:
        check(out, expected("m k", "k n", "m n", x, w), 4, "f16")


def test_a_plan_with_products_survives_json_and_says_what_it_cannot_be() -> None:
    plan = two_products()
    assert LaunchPlan.from_json(plan.to_json()) == plan
    odd = replace(plan, steps=(*plan.steps[:-1], replace(plan.launches[-1], product=1)))
    with pytest.raises(CleaveError, match="says that c is a product, which has two operands and a result"):
        LaunchPlan.from_json(odd.to_json())


def test_a_package_says_what_its_kernels_made_for_want_of_a_library(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("programs", "cuda"):
        monkeypatch.setattr(f"cleave.runtime.{module}.shared_driver", lambda: stub.driver)
    for module in ("cublas", "cuda"):
        monkeypatch.setattr(f"cleave.runtime.{module}.shared_cublas", lambda: "there is no libcublasLt here")
    plan = two_products()
    variant = Variant(plan, {}, {"sm_90": {launch.kernel: kernel(launch) for launch in plan.launches}})
    package = Package.from_bytes(Package("f", (variant,)).to_bytes())
    assert not package.kept and package.variants[0].library() == [
        f"the product {name} is made by its kernel, for there is no libcublasLt here" for name in "ab"
    ]
    interfaces = [{"shape": each.shape, "typestr": "<f2", "data": (each.data_ptr(), False)} for each in operands(stub)]
    package(*(SimpleNamespace(__cuda_array_interface__=each, shape=each["shape"]) for each in interfaces))
    assert package.kept == dict.fromkeys("ab", "there is no libcublasLt here")


def test_a_plan_with_an_algorithm_of_no_number_is_refused() -> None:
    text = plan_of("m k", "k n", "m n").to_json()
    for odd in ("-1", '"first"', "1.5"):
        with pytest.raises(CleaveError, match=r"has k made by algorithm .*, which is no number"):
            LaunchPlan.from_json(text.replace('"product": 1', f'"product": {odd}'))


def test_a_plan_asks_for_no_more_algorithms_than_there_may_be() -> None:
    text = plan_of("m k", "k n", "m n").to_json()
    assert LaunchPlan.from_json(text.replace('"product": 1', '"product": 1024')).launches[0].product == 1024
    for large in (1025, 2**31, 2**70):
        with pytest.raises(CleaveError, match=f"has k made by algorithm {large}; there are 1024"):
            LaunchPlan.from_json(text.replace('"product": 1', f'"product": {large}'))


@pytest.mark.parametrize("types", [("i8", "i8", "f32"), ("f16", "bf16", "f32"), ("f32", "f32", "f16"), ("f8", "?", "")])
def test_a_plan_with_a_product_of_types_that_no_library_multiplies(types: tuple[str, str, str]) -> None:
    plan = plan_of("m k", "k n", "m n")
    alloc, launch = plan.steps
    assert isinstance(alloc, Alloc)
    arguments = tuple(replace(spec, dtype=dtype) for spec, dtype in zip(plan.arguments, types, strict=False))
    odd = replace(
        plan, arguments=arguments, steps=(replace(alloc, tensor=replace(alloc.tensor, dtype=types[2])), launch)
    )
    with pytest.raises(CleaveError, match="says that k is a product, which no library makes of"):
        LaunchPlan.from_json(odd.to_json())


@pytest.mark.parametrize(("count", "made"), [(2**31 - 1, True), (2**31, False)])
def test_batches_that_cublas_cannot_count_are_the_kernels(count: int, made: bool) -> None:
    shapes = {"b m k": (count, 2, 3), "b k n": (count, 3, 4), "b m n": (count, 2, 4)}
    factors = [Factor(tuple(dims.split()), "f16", Layout.row_major(shape)) for dims, shape in shapes.items()]
    assert (gemm_of(factors) is not None) == made
