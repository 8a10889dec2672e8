"""Lowered kernels as text and binaries; Triton compiles every op on every element type."""

from __future__ import annotations

from collections.abc import Iterator

import graphs
import pytest
import test_lower_to_triton as kernels
from lowered import lower

from cleave.errors import CleaveError
from cleave.lowering.compile_ttir import Compiled, compile_many
from cleave.lowering.emit import emit, kernel_modules
from cleave.lowering.targets import Target
from cleave.lowering.workers import Workers

SM_90 = Target.parse("sm_90")


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers(2) as pool:
        yield pool


TEXTS = {
    **{f"unary {dtype}": kernels.unary_module(dtype) for dtype in kernels.FLOATS},
    **{f"binary {dtype}": kernels.binary_module(dtype) for dtype in [*kernels.FLOATS, "i8", "i16", "i32", "i64"]},
    **{f"cast {dtype}": kernels.cast_module(dtype)[0] for dtype in kernels.CAST_TYPES},
    **{f"contraction, {case}": kernels.contraction_module(case) for case in kernels.CONTRACTIONS},
}


def test_every_op_compiles_on_every_type(workers: Workers) -> None:
    requests = []
    for text in TEXTS.values():
        module = lower(text)
        with module.context:
            requests += [kernel.request(SM_90, "ptx") for kernel in kernel_modules(module)]
    outcomes = compile_many(requests, workers)
    failed = {name: outcome for name, outcome in zip(TEXTS, outcomes, strict=True) if not isinstance(outcome, Compiled)}
    assert not failed


def test_fp8_on_a_gpu_without_it_is_a_located_error(workers: Workers) -> None:
    module = lower(kernels.contraction_module("fp8"))
    with module.context, pytest.raises(CleaveError, match="only supported on compute capability >= 89") as caught:
        emit(module, "ptx", "sm_80", workers=workers)
    assert caught.value.location


def test_several_kernels(workers: Workers) -> None:
    second = kernels.contraction_module("a vector").replace("@f(", "@g(").replace("@k(", "@k2(")
    module = lower(kernels.contraction_module("plain") + second)
    names = ["k", "k2"]
    with module.context:
        assert [kernel.name for kernel in kernel_modules(module)] == names
        for kind in ("ttir", "ttgir", "llir", "ptx"):
            text = emit(module, kind, SM_90, workers=workers)
            assert isinstance(text, str)
            assert [line for line in text.splitlines() if line.startswith("// kernel: ")] == [
                f"// kernel: {n}" for n in names
            ]
        with pytest.raises(
            CleaveError, match=f"a cubin holds one kernel.*\nnote: choose one with --kernel: {', '.join(names)}"
        ):
            emit(module, "cubin", SM_90, workers=workers)
        binary = emit(module, "cubin", SM_90, kernel=names[1], workers=workers)
        assert isinstance(binary, bytes)
        assert binary.startswith(b"\x7fELF")
        assert names[1].encode() in binary


def test_a_matmul_reaches_wgmma_with_asynchronous_copies(workers: Workers) -> None:
    facts = ["m = 128*m1", "n = 128*n1", "k = 64*k1"]
    plain = kernels.texts(graphs.matmul(), {"m": 4096, "n": 4096, "k": 4096})[1]
    known = plain.replace(
        ') -> tensor<?x?xf16, #cleave.dims<["m", "n"]>> {',
        f') -> tensor<?x?xf16, #cleave.dims<["m", "n"]>> attributes {{cleave.facts = {facts}}} {{'.replace("'", '"'),
        1,
    )
    assert known != plain
    module = lower(known)
    with module.context:
        ptx = emit(module, "ptx", SM_90, workers=workers)
    assert isinstance(ptx, str)
    assert "wgmma.mma_async" in ptx
    assert "cp.async" in ptx


def test_what_cannot_be_emitted_says_so() -> None:
    module = lower("module {}")
    with module.context:
        with pytest.raises(CleaveError, match="'elf' cannot be emitted\nnote: what can: ttir, ttgir, llir, ptx, cubin"):
            emit(module, "elf", SM_90)
        with pytest.raises(
            CleaveError,
            match=r"no kernels\nnote: no function was scheduled into kernels: .*\nnote: remarks of the passes say why",
        ):
            emit(module, "ptx", SM_90)
        with pytest.raises(CleaveError, match="unknown target 'sm_1'"):
            emit(module, "ptx", "sm_1")
    module = lower(kernels.contraction_module("plain"))
    with module.context, pytest.raises(CleaveError, match="no kernel 'x'\nnote: lowered kernels: k"):
        emit(module, "ptx", SM_90, kernel="x")
