"""The process that runs Triton: ``python -m cleave.lowering.triton_worker``, driven by ``compile_ttir``.

Some inputs make Triton abort, and its diagnostics go to file descriptor 2 whatever Python does, so it lives in a
process of its own. Requests and answers are pickles with their length before them, on stdin and the original stdout;
stderr is a file of the parent's, which the worker empties before each request, so that its text survives the worker.
"""

from __future__ import annotations

import math
import os
import pickle
import resource
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from typing import IO, Any, TypeVar

from cleave.lowering import narrow_copies, ptxas_log
from cleave.lowering.intrinsics import with_intrinsics
from cleave.lowering.triton_partitions import (
    OwnMemory,
    UnknownPartitions,
    check_memory,
    consumers_first,
    fewer_bodies,
    with_fewer_bodies,
)
from cleave.lowering.triton_spelling import spelled_for

STAGES = ("ttir", "shared", "ttgir", "ptx", "cubin")  # where a request may stop
STAGE_MARK = "\x1e"  # precedes a stage's name in stderr: the parent reads from it how far a dead worker came
OUT_OF_TIME = signal.SIGPROF  # ends a worker whose request takes more CPU time than it may
PTXAS_FAILED = "ptxas failed"
"""In the errors of requests that Triton itself has carried out."""
HOPELESS = 2048
"""Bytes of spills that no second try makes few."""
_LENGTH = struct.Struct("<Q")
T = TypeVar("T")


def send(stream: IO[bytes], message: Any) -> None:
    """Write one message."""
    data = pickle.dumps(message)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read one message; EOFError when the other side is gone."""
    (size,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
    return pickle.loads(_exactly(stream, size))


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise EOFError
    return data


class Job:
    """One request: the module after each stage, and what is known of it."""

    def __init__(self, request: dict[str, Any], *, optimised: bool = True) -> None:
        from triton.backends.compiler import GPUTarget
        from triton.backends.nvidia.compiler import CUDABackend

        self.request, self.optimised = request, optimised
        self.fewer_bodies: bool = request.get("fewer_bodies", True)
        self.one_code: bool = request.get("one_code", True)
        self.text: str = request["text"]
        self.stop: str = request["stop"]
        self.arch: int = request["arch"]
        self.backend = CUDABackend(GPUTarget("cuda", self.arch, 32))
        self.options = self.backend.parse_options({"enable_fp_fusion": True, **request["options"]})
        self.metadata: dict[str, Any] = {"num_warps": self.options.num_warps}
        self.seconds: dict[str, float] = {}
        self.result: dict[str, Any] = {"metadata": self.metadata, "seconds": self.seconds}

    def unpipelined(self) -> Job:
        """The same without pipelining."""
        options = {**self.request["options"], "num_stages": 1}
        job = Job({**self.request, "options": options, "text": narrow_copies.unpipelined(self.text)})
        job.result["unpipelined"] = True
        return job

    def spilling_less(self) -> dict[str, Any]:
        """Of this and the same without LLVM's optimisations the latter if it spills half as much at most.

        They move and merge what ptxas then keeps in registers for longer: absorbed MLA as TTIR spills 300 bytes and
        takes 182 µs with them, 48 and 143 without (1024 keys, H200). What does not spill is up to 5 % faster with them.
        """
        try:
            other = Job(self.request, optimised=False).run()
        except RuntimeError:  # ptxas refuses: what there is will do
            return self.result
        better = 2 * ptxas_log.spills(other["ptxas_log"]) <= ptxas_log.spills(self.result["ptxas_log"])
        taken = {**self.result, **other} if better else self.result
        taken["seconds"] = {stage: seconds + other["seconds"][stage] for stage, seconds in self.seconds.items()}
        return taken

    def may_spill_less(self) -> bool:
        """Whether there is a chance, and time for it: this process ends when its own is up."""
        left, _ = signal.getitimer(signal.ITIMER_PROF)
        spilled = 0 < ptxas_log.spills(self.result["ptxas_log"]) <= HOPELESS
        return self.optimised and spilled and not 0 < left < 2 * sum(self.seconds.values())

    def timed(self, stage: str, step: Callable[[], T]) -> T:
        os.write(2, f"{STAGE_MARK}{stage}\n".encode())
        start = time.perf_counter()
        value = step()
        self.seconds[stage] = time.perf_counter() - start
        return value

    def run(self) -> dict[str, Any]:
        result, metadata, backend = self.result, self.metadata, self.backend
        text = with_fewer_bodies(self.text, one_code=self.one_code) if self.fewer_bodies else self.text
        self.fewer_bodies = text != self.text
        module, self.context = self.timed("parse", lambda: _parse(text, backend))
        if _has_layouts(self.text):
            metadata["tensordesc_meta"] = module.get_tensordesc_metadata()
            result["ttir"] = result["ttgir"] = str(module)
            return self.assembled(module)
        self.timed("ttir", lambda: backend.make_ttir(module, metadata, self.options, self.arch))
        result["ttir"] = str(module)
        if self.stop == "ttir":
            return result
        self.timed("ttgir", lambda: backend.make_ttgir(module, metadata, self.options, self.arch))
        result["ttgir"] = str(module)
        if self.options.num_stages > 1 and narrow_copies.feed_wgmma(result["ttgir"]):
            return self.unpipelined().run()
        return self.assembled(module)

    def assembled(self, module: Any) -> dict[str, Any]:
        """From TTGIR on."""
        result, metadata, backend = self.result, self.metadata, self.backend
        if self.stop in ("ttir", "ttgir"):
            return result
        if self.stop == "shared":
            metadata["shared"] = self.timed("shared", lambda: _shared(module, self.arch))
            if self.fewer_bodies:
                check_memory(module)
            return result
        with (
            fewer_bodies() if self.fewer_bodies else nullcontext(),
            nullcontext() if self.optimised else _unoptimised(),
        ):
            result["llir"] = self.timed("llir", lambda: backend.make_llir(module, metadata, self.options, self.arch))
        ptx = self.timed("ptx", lambda: backend.make_ptx(result["llir"], metadata, self.options, self.arch))
        result["ptx"] = consumers_first(ptx, metadata["num_warps"])
        if self.stop == "cubin":
            assembled = self.timed("ptxas", lambda: _assemble(result["ptx"], self.arch, self.request["timeout"]))
            result["cubin"], result["ptxas_log"] = assembled
            if self.may_spill_less():
                return self.spilling_less()
        return result


@contextmanager
def _unoptimised() -> Generator[None]:
    """Triton's stage asks LLVM for its third level always."""
    from triton._C.libtriton import llvm

    given = llvm.optimize_module
    llvm.optimize_module = lambda module, _, **others: given(module, llvm.OPTIMIZE_O0, **others)
    try:
        yield
    finally:
        llvm.optimize_module = given


def _parse(text: str, backend: Any) -> tuple[Any, Any]:
    """The module and the context that owns it. Triton parses files only, so the text goes through one in memory."""
    import triton
    from triton._C.libtriton import ir

    text = with_intrinsics(triton.__version__, text) if _has_layouts(text) else text
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    file = os.memfd_create("ttir")
    try:
        os.write(file, spelled_for(triton.__version__, text).encode())
        module = ir.parse_mlir_module(f"/proc/self/fd/{file}", context)
    finally:
        os.close(file)
    module.context = context
    return module, context


def _has_layouts(text: str) -> bool:
    """Whether a module is TTGIR already."""
    return "ttg.target" in text


def _shared(module: Any, arch: int) -> int:
    """The exact shared memory in bytes: the first passes of make_llir, up to the one that allocates it."""
    from triton._C.libtriton import ir, nvidia, passes

    manager = ir.pass_manager(module.context)
    passes.ttgpuir.add_combine_tensor_select_and_if(manager)
    passes.ttgpuir.add_allocate_warp_groups(manager)
    passes.convert.add_scf_to_cf(manager)
    passes.gluon.add_inliner(manager)
    nvidia.passes.ttgpuir.add_allocate_shared_memory_nv(manager, arch, _ptx_version(arch))
    manager.run(module, "shared")
    return module.get_int_attr("ttg.shared")


def _ptx_version(arch: int) -> int:
    from triton.backends.nvidia.compiler import get_ptxas, ptx_get_version

    return ptx_get_version(get_ptxas(arch).version)


def _assemble(ptx: str, arch: int, timeout: float) -> tuple[bytes, str]:
    """ptxas: the cubin and the log with registers, spills and notes. RuntimeError with the log if it refuses."""
    from triton.backends.nvidia.compiler import get_ptxas

    assembler = get_ptxas(arch)
    name = f"sm_{arch}a" if arch >= 90 else f"sm_{arch}"
    # Triton asks for this to get round a defect of the ptxas of CUDA 13.
    extra = ["--regAllocOptLevel=2"] if int(assembler.version.split(".")[0]) >= 13 else []
    source, target = os.memfd_create("ptx"), os.memfd_create("cubin")
    try:
        os.write(source, ptx.encode())
        files = [f"/proc/self/fd/{source}", "-o", f"/proc/self/fd/{target}"]
        command = [assembler.path, "-lineinfo", "-v", *extra, f"--gpu-name={name}", *files]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, pass_fds=(source, target), stdout=pipe, stderr=pipe, text=True) as process:
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (math.ceil(timeout), resource.RLIM_INFINITY))
            log = "".join(reversed(process.communicate()))
        if process.returncode == -signal.SIGXCPU:
            os.kill(os.getpid(), OUT_OF_TIME)
        if process.returncode != 0:
            raise RuntimeError(f"{PTXAS_FAILED} ({process.returncode})\n{log}")
        return _contents(target), log
    finally:
        os.close(source)
        os.close(target)


def _contents(file: int) -> bytes:
    return os.pread(file, os.fstat(file).st_size, 0)


@contextmanager
def _limited(seconds: float) -> Generator[None]:
    """The process ends, by ``OUT_OF_TIME``, when it has taken so many seconds of CPU time."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def compiled(request: dict[str, Any]) -> dict[str, Any]:
    """The result of a request: with as few bodies of partitions as can be (``triton_partitions``).

    RuntimeError, and what Triton raises, for what it or ptxas refuses.
    """
    try:
        return Job(request).run()
    except OwnMemory:
        return compiled({**request, "one_code": False})
    except UnknownPartitions:
        return {**Job({**request, "fewer_bodies": False}).run(), "as_partitions": True}


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        with _limited(request["timeout"]):
            return {"ok": compiled(request)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _end_with_parent(parent: int) -> None:
    """A worker that is busy when its parent dies would finish the compilation for nobody."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # Triton prints to stdout too
    requests = os.fdopen(os.dup(0), "rb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # and its tools may not read the requests
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    while True:
        try:
            request = receive(requests)
        except EOFError:
            return
        os.ftruncate(2, 0)
        send(answers, _answer(request))


if __name__ == "__main__":
    main()
