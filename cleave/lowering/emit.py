"""Kernels of a lowered module as text or binary: TTIR, TTGIR, LLVM IR, PTX, cubin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.errors import CleaveError
from cleave.lowering.compile_ttir import Compiled, Options, Request, Stop, compile_many
from cleave.lowering.kernel_builder import ARGUMENTS, KERNEL_MODULE, PERSISTENT, number_attribute
from cleave.lowering.lower_to_triton import kernels_of
from cleave.lowering.ptx_module import one_module
from cleave.lowering.targets import Target
from cleave.lowering.verify_ttir import TTGIR_TARGET, check_kernel
from cleave.lowering.workers import Workers
from cleave.runtime.ttir_assembly import NOTHING, TRIGGER, WAIT

Kind = Literal["ttir", "ttgir", "llir", "ptx", "cubin"]
KINDS: tuple[Kind, ...] = ("ttir", "ttgir", "llir", "ptx", "cubin")
TTGIR_ARCHITECTURE = 90
_STOPS: dict[Kind, Stop] = {"ttir": "ttir", "ttgir": "ttgir", "llir": "ptx", "ptx": "ptx", "cubin": "cubin"}


@dataclass(frozen=True)
class KernelModule:
    """A kernel after ``cleave-lower-to-triton``.

    ``text`` is TTIR in generic form with locations, as Triton's parser takes it; ``arguments`` says what each argument
    of its function is (see ``cleave-lower-to-triton``). ``persistent`` as in ``Launch``.
    """

    name: str
    text: str
    arguments: tuple[str, ...]
    num_warps: int
    num_stages: int
    persistent: bool = False

    def request(self, target: Target, stop: Stop = "cubin") -> Request:
        """The compilation of the kernel, for ``compile_many``. CleaveError if it is in a form for another target."""
        if TTGIR_TARGET in self.text and target.arch != TTGIR_ARCHITECTURE:
            notes = ("lower it with --lower-to-triton",)
            raise CleaveError(
                f"kernel '{self.name}' is warp-specialised for sm_90; it has no form for {target}", notes=notes
            )
        options = Options(num_warps=self.num_warps, num_stages=self.num_stages)
        return Request(_for_architecture(self.text, target), target, options, stop)


def _for_architecture(text: str, target: Target) -> str:
    """Without waits and triggers where launches do not overlap: there each begins when the one before is complete."""
    if target.arch >= 90:
        return text
    return text.replace(TRIGGER, NOTHING).replace(WAIT, NOTHING)


def kernel_modules(module: ir.Module) -> list[KernelModule]:
    """The kernels of a module that went through ``cleave-lower-to-triton``, in order, verified."""
    found: list[KernelModule] = []
    for op in module.body.operations:
        if op.operation.name == "builtin.module" and KERNEL_MODULE in op.operation.attributes:
            found.append(_kernel_module(op.operation))
    return found


def _kernel_module(op: ir.Operation) -> KernelModule:
    defaults = Options()
    num_warps = number_attribute(op, "cleave.num_warps") or defaults.num_warps
    num_stages = number_attribute(op, "cleave.num_stages") or defaults.num_stages
    check_kernel(op, num_stages=num_stages)
    name = str(cleave.plain("string", op.attributes[KERNEL_MODULE]))
    arguments = tuple(cleave.plain("strings", op.attributes[ARGUMENTS])) if ARGUMENTS in op.attributes else ()
    text = str(op.get_asm(print_generic_op_form=True, enable_debug_info=True))
    return KernelModule(name, text, arguments, num_warps, num_stages, PERSISTENT in op.attributes)


def emit(
    module: ir.Module, kind: str, target: Target | str, *, kernel: str | None = None, workers: Workers | None = None
) -> str | bytes:
    """The kernels as ``kind``: text, each under a line ``// kernel: name``, or the bytes of one cubin.

    PTX is one module, without the debug sections of its kernels where there are several.
    ``kernel`` picks one of several. CleaveError if there is none, if Triton refuses one, or if several cubins are asked
    for at once.
    """
    if kind not in KINDS:
        raise CleaveError(f"'{kind}' cannot be emitted", notes=(f"what can: {', '.join(KINDS)}",))
    target = Target.parse(target) if isinstance(target, str) else target
    kernels = _chosen(module, kernel)
    if kind == "ttir":
        return _joined(kernels, [k.text for k in kernels])
    if kind == "cubin" and len(kernels) > 1:
        names = ", ".join(k.name for k in kernels)
        raise CleaveError(
            "a cubin holds one kernel, the module has several", notes=(f"choose one with --kernel: {names}",)
        )
    outcomes = compile_many([k.request(target, _STOPS[kind]) for k in kernels], workers)
    compiled = [_successful(outcome) for outcome in outcomes]
    if kind == "cubin":
        return compiled[0].cubin or b""
    if kind == "ptx" and len(kernels) > 1:
        return one_module({k.name: c.ptx or "" for k, c in zip(kernels, compiled, strict=True)})
    return _joined(kernels, [getattr(c, kind) for c in compiled])


def _chosen(module: ir.Module, name: str | None) -> list[KernelModule]:
    kernels = kernel_modules(module)
    chosen = [k for k in kernels if name in (None, k.name)]
    if not chosen:
        notes = (f"lowered kernels: {', '.join(k.name for k in kernels)}",) if kernels else _why_none(module)
        raise CleaveError(f"no kernel '{name}'" if name else "no kernels", notes=notes)
    return chosen


def _why_none(module: ir.Module) -> tuple[str, ...]:
    if kernels_of(module):
        return ("kernels are there, but not lowered: run cleave-lower-to-triton",)
    return (
        "no function was scheduled into kernels: cleave-schedule does that, before cleave-lower-to-triton",
        "these passes remark why they leave a function as it is",
    )


def _successful(outcome: Compiled | CleaveError) -> Compiled:
    if isinstance(outcome, CleaveError):
        raise outcome
    return outcome


def _joined(kernels: Sequence[KernelModule], texts: Sequence[str]) -> str:
    parts = [f"// kernel: {kernel.name}\n{text.rstrip()}\n" for kernel, text in zip(kernels, texts, strict=True)]
    return "\n".join(parts)
