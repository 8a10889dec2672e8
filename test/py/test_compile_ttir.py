"""The compile driver: what comes out, what errors say, and that the pool outlives aborts and hangs."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ttir_samples import attention, function, matmul

from cleave.errors import CleaveError
from cleave.lowering import ptxas_log, triton_worker
from cleave.lowering.compile_ttir import Compiled, Options, Request, compile_many, compile_ttir, submit
from cleave.lowering.targets import TARGETS, Target
from cleave.lowering.workers import Worker, Workers

SM_80, SM_90 = Target.parse("sm_80"), Target.parse("sm_90")
X = {"x": "!tt.ptr<f32>"}


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers(2) as pool:
        yield pool


def test_targets() -> None:
    assert Target.parse("sm_90").shared_per_block == 232448
    with pytest.raises(
        CleaveError, match=r"unknown target 'sm_42'\nnote: known targets: sm_80, sm_86, sm_89, sm_90, sm_100"
    ):
        Target.parse("sm_42")
    with pytest.raises(CleaveError, match="unknown target 'sm_120': consumer Blackwell is not supported\nnote: known"):
        Target.parse("sm_120")
    assert Target.parse("sm_90a") == Target.parse("h100")
    assert len({target.arch for target in TARGETS}) == len(TARGETS)


def test_hopper_matmul_uses_wgmma_and_asynchronous_copies(workers: Workers) -> None:
    compiled = compile_ttir(matmul(), SM_90, num_warps=4, num_stages=3, workers=workers)
    assert compiled.ptx.count("wgmma.mma_async") >= 4  # 64/16 steps along k
    assert "cp.async" in compiled.ptx and ".target sm_90a" in compiled.ptx
    assert compiled.cubin and compiled.cubin.startswith(b"\x7fELF")
    assert compiled.shared == 3 * (128 * 64 + 64 * 128) * 2  # a ring of num_stages tiles of A and of B
    assert 0 < compiled.registers <= 255 and compiled.spills == 0
    assert compiled.name == "matmul" and compiled.num_warps == 4 and compiled.fits
    assert {"parse", "ttir", "ttgir", "llir", "ptx", "ptxas"} == set(compiled.seconds)
    assert "tt.func public @matmul" in compiled.ttir and "ttg." in compiled.ttgir and "define" in compiled.llir


def test_ampere_matmul_uses_mma_sync(workers: Workers) -> None:
    compiled = compile_ttir(matmul(64, 64, 32), SM_80, stop="ptx", workers=workers)
    assert "mma.sync" in compiled.ptx and "wgmma" not in compiled.ptx
    assert compiled.cubin is None and compiled.registers == -1


@pytest.mark.parametrize("name", ["sm_86", "sm_89", "sm_100"])
def test_other_targets_compile(name: str, workers: Workers) -> None:
    compiled = compile_ttir(matmul(64, 64, 32), Target.parse(name), num_stages=2, workers=workers)
    assert compiled.cubin and f".target {name}" in compiled.ptx


@pytest.mark.parametrize(
    "text", [matmul(), matmul(64, 64, 64), attention()], ids=["matmul128", "matmul64", "attention"]
)
@pytest.mark.parametrize("stages", [2, 4])
def test_shared_memory_query_equals_the_final_value(text: str, stages: int, workers: Workers) -> None:
    quick = compile_ttir(text, SM_90, num_stages=stages, stop="shared", workers=workers)
    full = compile_ttir(text, SM_90, num_stages=stages, stop="ptx", workers=workers)
    assert quick.shared == full.shared > 0
    assert not quick.ptx


def test_spills_and_register_limit(workers: Workers) -> None:
    free = compile_ttir(matmul(), SM_90, workers=workers)
    tight = compile_ttir(matmul(64, 64, 32), SM_80, maxnreg=40, workers=workers)
    assert tight.registers <= 40 < free.registers
    assert tight.spills > 0


@pytest.mark.parametrize(
    ("optimised", "plain", "taken"),
    [(300, 48, 48), (300, 150, 150), (300, 151, 300), (300, None, 300), (2049, 0, 2049), (0, 0, 0)],
    ids=["less", "half", "hardly less", "refused", "hopeless", "none"],
)
def test_what_spills_is_compiled_without_optimisations_too(
    optimised: int, plain: int | None, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time counts for both, and what is known of the first stays."""

    def assembled(job: triton_worker.Job, module: object) -> dict[str, object]:
        spills = optimised if job.optimised else plain
        job.seconds |= {"llir": 1.0, "ptxas": 2.0}
        if spills is None:
            raise RuntimeError("ptxas failed")
        job.result["ptxas_log"] = f"{spills} bytes spill stores, 0 bytes spill loads"
        return job.spilling_less() if job.may_spill_less() else job.result

    monkeypatch.setattr(triton_worker.Job, "run", lambda job: assembled(job, None))
    request = {"text": "", "stop": "cubin", "arch": 90, "options": {}, "timeout": 60}
    job = triton_worker.Job(request)
    job.result["unpipelined"] = True
    found = job.run()
    assert ptxas_log.spills(found["ptxas_log"]) == taken and found["unpipelined"]
    second = 0 < optimised <= triton_worker.HOPELESS and plain is not None
    assert found["seconds"] == {"llir": 1.0 + second, "ptxas": 2.0 * (1 + second)}


BOTH_WAYS = """
import sys
from cleave.lowering import ptxas_log, triton_worker
triton_worker.Job.may_spill_less = lambda job: False
request = {"text": sys.stdin.read(), "stop": "cubin", "arch": 90, "timeout": 60, "options": {"maxnreg": 72}}
for optimised in (True, False):
    print(ptxas_log.spills(triton_worker.Job(request, optimised=optimised).run()["ptxas_log"]))
"""


def test_optimisations_are_left_out_where_that_is_asked_for(workers: Workers) -> None:
    found = subprocess.run(
        [sys.executable, "-c", BOTH_WAYS], input=attention(), capture_output=True, text=True, check=True
    )
    optimised, plain = map(int, found.stdout.split())
    compiled = compile_ttir(attention(), SM_90, maxnreg=72, workers=workers)
    assert optimised > 0 and compiled.spills == (plain if 2 * plain <= optimised else optimised)


def test_too_few_registers_for_wgmma_is_an_error(workers: Workers) -> None:
    with pytest.raises(CleaveError, match=r"ptxas.*register"):
        compile_ttir(matmul(), SM_90, maxnreg=32, workers=workers)


def test_parallel_results_equal_serial_ones(workers: Workers) -> None:
    requests = [Request(matmul(64, 64, 32), SM_90, Options(num_stages=n), "cubin") for n in (2, 3)]
    requests += [Request("not IR", SM_90), Request(attention(), SM_90, Options(), "cubin")]
    parallel = compile_many(requests, workers)
    with Workers(1) as alone:
        serial = compile_many(requests, alone)
    for left, right in zip(parallel, serial, strict=True):
        if isinstance(left, Compiled):
            assert isinstance(right, Compiled) and left.cubin == right.cubin and left.ptx == right.ptx
        else:
            assert str(left) == str(right)
    assert [isinstance(result, Compiled) for result in parallel] == [True, True, False, True]


# --- what aborts or is refused ---------------------------------------------------------------------------------------

RANGE = '%r = "tt.make_range"() {start = 0 : i32, end = 64 : i32} : () -> tensor<64xi32>\n'
STORE_TANH = (
    RANGE
    + """
    %f = arith.sitofp %r : tensor<64xi32> to tensor<64xf32>
    %t = math.tanh %f : tensor<64xf32> loc("user.py":5:4)
    %p = "tt.splat"(%x) : (!tt.ptr<f32>) -> tensor<64x!tt.ptr<f32>>
    %q = "tt.addptr"(%p, %r) : (tensor<64x!tt.ptr<f32>>, tensor<64xi32>) -> tensor<64x!tt.ptr<f32>>
    "tt.store"(%q, %t) : (tensor<64x!tt.ptr<f32>>, tensor<64xf32>) -> ()
"""
)
BOOL_LOAD = '%b = "tt.load"(%x) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!tt.ptr<i1>) -> i1\n' + (
    '"tt.store"(%x, %b) : (!tt.ptr<i1>, i1) -> ()'
)
MIXED_DOT = """
    %a = arith.constant dense<1.0> : tensor<32x32xf16>
    %b = arith.constant dense<1.0> : tensor<32x32xbf16>
    %c = arith.constant dense<0.0> : tensor<32x32xf32>
    %d = "tt.dot"(%a, %b, %c) : (tensor<32x32xf16>, tensor<32x32xbf16>, tensor<32x32xf32>)
        -> tensor<32x32xf32> loc("user.py":7:2)
    %p = "tt.splat"(%x) : (!tt.ptr<f32>) -> tensor<32x32x!tt.ptr<f32>>
    "tt.store"(%p, %d) : (tensor<32x32x!tt.ptr<f32>>, tensor<32x32xf32>) -> ()
"""

BROKEN = {
    "no function": ("module {} loc(unknown)", "Triton failed: Assertion", None),
    "syntax": (function('%0 = "tt.loa', X), "expected '\"' in string literal", "<ttir>"),
    "segments": (
        function(
            '%0 = "tt.load"(%x) {operandSegmentSizes = array<i32: 1, 1, 0>} : (!tt.ptr<f32>) -> f32 loc("user.py":3:4)',
            X,
        ),
        "operandSegmentSizes",
        "user.py:3:4",
    ),
    "no lowering": (function(STORE_TANH, X), "failed to legalize operation 'math.tanh'", "user.py:5:4"),
    "symbol": (function("", X, "k.x-y"), "LLVM ERROR: Symbol name with unsupported characters", "sample.mlir:1:1"),
    # Triton reads beyond an array here: what it prints before it dies, if anything, differs from run to run.
    "axis": (
        function(RANGE + '%e = "tt.expand_dims"(%r) {axis = 7 : i32} : (tensor<64xi32>) -> tensor<1x64xi32>', X),
        "tt.expand_dims|died",
        None,
    ),
    "i1 memory": (function(BOOL_LOAD, {"x": "!tt.ptr<i1>"}), "Triton failed: Assertion", "sample.mlir:1:1"),
    "mixed dot": (function(MIXED_DOT, X), "", "user.py:7:2"),
}


def test_what_triton_fails_at_is_the_last_that_its_process_is_asked() -> None:
    """It may have damaged its memory: now and then the next module died, though nothing was wrong with it."""
    numbers: list[int] = []

    def process_of(worker: Worker) -> None:
        worker.ask({"text": function("", X), "stop": "ttir", "arch": 90, "options": {}}, 60)
        assert worker._process
        numbers.append(worker._process.pid)

    with Workers(1) as pool:
        for text in (function("", X), BROKEN["axis"][0], function("", X)):
            with contextlib.suppress(CleaveError):
                compile_ttir(text, SM_90, stop="ttir", workers=pool)
            pool.run(process_of).result()
    before, after, last = numbers
    assert before != after == last


@pytest.mark.parametrize("case", BROKEN)
def test_broken_input_is_a_located_error_and_the_pool_goes_on(case: str, workers: Workers) -> None:
    text, message, location = BROKEN[case]
    with pytest.raises(CleaveError) as caught:
        compile_ttir(text, SM_90, workers=workers)
    assert re.search(message, caught.value.message), caught.value
    assert str(caught.value.location or "").startswith(location or ""), caught.value
    assert "Traceback" not in str(caught.value) and "reproducer" not in str(caught.value)
    assert any("while Triton compiled kernel" in note for note in caught.value.notes)
    assert compile_ttir(function("", X), SM_90, stop="ttir", workers=workers).name == "k"


def test_timeout_is_an_error_and_the_pool_goes_on(workers: Workers) -> None:
    started = time.monotonic()
    with pytest.raises(CleaveError, match=r"Triton did not finish within 0\.01 s"):
        compile_ttir(attention(), SM_90, timeout=0.01, workers=workers)
    assert time.monotonic() - started < 5
    assert compile_ttir(function("", X), SM_90, workers=workers).cubin


def test_leaving_by_an_exception_ends_running_compilations() -> None:
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt), Workers(1) as pool:
        for _ in range(50):
            submit(pool, Request(attention(), SM_90))
        raise KeyboardInterrupt
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options(num_warps=3), "num_warps must be a power of two from 1 to 32, not 3"),
        (Options(num_stages=0), "num_stages must be at least 1, not 0"),
        (Options(num_ctas=2), "need sm_90 or later, not sm_80"),
        (Options(maxnreg=1000), "maxnreg must be between 8 and 255, not 1000"),
    ],
)
def test_options_are_checked(options: Options, message: str, workers: Workers) -> None:
    with pytest.raises(CleaveError, match=message):
        submit(workers, Request(matmul(), SM_80, options))


def test_a_script_that_forgets_its_pool_ends_without_a_warning() -> None:
    script = (
        "from cleave.lowering.compile_ttir import compile_ttir; from cleave.lowering.targets import Target;"
        "from ttir_samples import function;"
        "print(compile_ttir(function('', {}), Target.parse('sm_90'), stop='ttir').name)"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[2])])}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "k\n", "")
