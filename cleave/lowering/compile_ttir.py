"""TTIR text to PTX and cubin by Triton's own stages, in worker processes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

from cleave.errors import CleaveError
from cleave.lowering import ptxas_log
from cleave.lowering.targets import TTGIR_TARGET, Target
from cleave.lowering.triton_errors import triton_error
from cleave.lowering.triton_worker import PTXAS_FAILED
from cleave.lowering.workers import Crash, Worker, Workers, shared_workers
from cleave.runtime.descriptors import Box

Stop = Literal["ttir", "shared", "ttgir", "ptx", "cubin"]
FEW_SPILLS, LEAST_SPILLS = 64, 192
"""Bytes that are few: of each warpgroup, and of a whole kernel."""
DEFAULT_TIMEOUT = 90.0  # seconds of CPU time; the slowest kernels known take about 5


@dataclass(frozen=True)
class Options:
    """What Triton is told beside the text."""

    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None  # an upper limit on registers per thread
    launch_pdl: bool = False  # programmatic dependent launch

    def check(self, target: Target) -> None:
        """CleaveError if the target cannot have these."""
        _check_power_of_two("num_warps", self.num_warps, 32)
        _check_power_of_two("num_ctas", self.num_ctas, 16)
        if self.num_stages < 1:
            raise CleaveError(f"num_stages must be at least 1, not {self.num_stages}")
        if (self.num_ctas > 1 or self.launch_pdl) and target.arch < 90:
            raise CleaveError(f"clusters and programmatic dependent launch need sm_90 or later, not {target}")
        if self.maxnreg is not None and not 8 <= self.maxnreg <= target.registers_per_thread:
            raise CleaveError(f"maxnreg must be between 8 and {target.registers_per_thread}, not {self.maxnreg}")


def _check_power_of_two(name: str, value: int, most: int) -> None:
    if not (1 <= value <= most and value & (value - 1) == 0):
        raise CleaveError(f"{name} must be a power of two from 1 to {most}, not {value}")


@dataclass(frozen=True)
class Compiled:
    """One kernel after the stages that were asked for; what later stages would give is empty, None or -1.

    ``shared`` and ``spills`` are bytes (spills: stores and loads together), ``registers`` is per thread, ``num_warps``
    what the launch must use (warp specialisation adds to the number asked for), ``seconds`` the wall time per stage.
    """

    name: str
    target: Target
    ttir: str
    ttgir: str = ""
    llir: str = ""
    ptx: str = ""
    cubin: bytes | None = None
    shared: int = -1
    registers: int = -1
    spills: int = -1
    num_warps: int = 4
    num_ctas: int = 1
    launch_pdl: bool = False
    global_scratch_size: int = 0
    global_scratch_align: int = 1
    profile_scratch_size: int = 0
    tensordesc_meta: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()  # what ptxas remarks, such as C7510 (wgmma serialised)
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def fits(self) -> bool:
        """Whether the shared memory it needs is within the target's limit for one block."""
        return self.shared <= self.target.shared_per_block

    @property
    def few_spills(self) -> int:
        """Bytes of ``spills`` that are no loss: a thread's share of numbers, not of tiles, whose elements take more."""
        return max(LEAST_SPILLS, FEW_SPILLS * (self.num_warps // 4)) if TTGIR_TARGET in self.ttir else 0

    @property
    def boxes(self) -> tuple[Box, ...]:
        """What the launch needs to make the kernel's tensor descriptors, in the order of its parameters."""
        return tuple(Box(tuple(meta["block_size"]), meta["swizzle"]) for meta in self.tensordesc_meta)


@dataclass(frozen=True)
class Request:
    """One compilation, for ``compile_many``."""

    text: str
    target: Target
    options: Options = Options()
    stop: Stop = "cubin"
    timeout: float = DEFAULT_TIMEOUT


def compile_ttir(
    text: str,
    target: Target,
    *,
    num_warps: int = 4,
    num_stages: int = 3,
    num_ctas: int = 1,
    maxnreg: int | None = None,
    launch_pdl: bool = False,
    stop: Stop = "cubin",
    timeout: float = DEFAULT_TIMEOUT,
    workers: Workers | None = None,
) -> Compiled:
    """Compile a TTIR module with one public function; generic or custom form.

    ``stop="shared"`` finds the exact shared memory in about a tenth of the time of a full compilation. ``timeout`` is
    in seconds of CPU time. Raises CleaveError, at the place that the text's locations name, for whatever Triton or
    ptxas refuses, and if Triton aborts or does not end in time.
    """
    options = Options(num_warps, num_stages, num_ctas, maxnreg, launch_pdl)
    return submit(workers or shared_workers(), Request(text, target, options, stop, timeout)).result()


def submit(workers: Workers, request: Request) -> Future[Compiled]:
    """Start one compilation; the future's result or CleaveError comes when it is done."""
    request.options.check(request.target)
    return workers.run(lambda worker: _compile(worker, request))


def compile_many(requests: Sequence[Request], workers: Workers | None = None) -> list[Compiled | CleaveError]:
    """Compile in parallel. Results in the order of the requests; a CleaveError in the place of what failed."""
    pool = workers or shared_workers()
    return [_outcome(future) for future in [submit(pool, request) for request in requests]]


def _outcome(future: Future[Compiled]) -> Compiled | CleaveError:
    try:
        return future.result()
    except CleaveError as error:
        return error


def _compile(worker: Worker, request: Request) -> Compiled:
    options = {name: value for name, value in vars(request.options).items() if value is not None}
    message = {"text": request.text, "stop": request.stop, "arch": request.target.arch, "options": options}
    try:
        answer, log = worker.ask(message, request.timeout)
    except Crash as crash:
        raise triton_error(crash.reason, crash.log, request.text, str(request.target)) from None
    if "error" in answer:
        if PTXAS_FAILED not in answer["error"]:
            worker.kill()  # what Triton fails at may have damaged its memory, of which the next request would die
        raise triton_error(answer["error"], log, request.text, str(request.target))
    return result_of(answer["ok"], request)


def result_of(result: dict[str, Any], request: Request) -> Compiled:
    """What the worker's answer says of a request."""
    metadata = result["metadata"]
    log = result.get("ptxas_log", "")
    name = metadata.get("name") or _entry(result["ttir"])
    return Compiled(
        name=name,
        target=request.target,
        ttir=result["ttir"],
        ttgir=result.get("ttgir", ""),
        llir=result.get("llir", ""),
        ptx=result.get("ptx", ""),
        cubin=result.get("cubin"),
        shared=metadata.get("shared", -1),
        registers=ptxas_log.registers(log),
        spills=ptxas_log.spills(log),
        num_warps=metadata["num_warps"],
        num_ctas=request.options.num_ctas,
        launch_pdl=request.options.launch_pdl,
        global_scratch_size=metadata.get("global_scratch_size") or 0,
        global_scratch_align=metadata.get("global_scratch_align") or 1,
        profile_scratch_size=metadata.get("profile_scratch_size") or 0,
        tensordesc_meta=tuple(metadata.get("tensordesc_meta") or ()),
        notes=(*ptxas_log.notes(log), *(note for key, note in _NOTES.items() if result.get(key))),
        seconds=result["seconds"],
    )


def _entry(ttir: str) -> str:
    match = re.search(r"tt\.func public @([A-Za-z_]\w*)", ttir)
    return match[1] if match else ""


_NOTES = {
    "unpipelined": "not pipelined: copies of less than 16 bytes would feed wgmma; larger tiles or fewer warps avoid it",
    "as_partitions": "each consumer has code of its own, all warps of the producer run: this version of Triton makes"
    " partitions otherwise than Cleave knows",
}
"""What a result of the worker's says of itself."""
