"""The best candidates of a schedule, compiled: the compiler's word on shared memory, registers and spills.

The cost model estimates what a thread block takes. Here the first candidates of each launch are compiled for the
target in parallel, in two steps: their exact shared memory first, which takes a tenth of the time, then those that fit
in full. They are ranked again by the cost model with what was found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cleave.bindings import context, ir
from cleave.errors import CleaveError
from cleave.lowering.compile_ttir import Compiled, Stop, compile_many
from cleave.lowering.emit import KernelModule, kernel_modules
from cleave.lowering.lower_to_triton import LowerToTriton
from cleave.lowering.lower_to_ttgir import LowerToTtgir
from cleave.lowering.targets import TTGIR_TARGET, Target
from cleave.passes.diagnostics import collecting
from cleave.passes.schedule import Schedule as ScheduleByModel
from cleave.passes.tile_io import from_tile_program
from cleave.schedule.candidates import distinct
from cleave.schedule.cost import Resources, cost_of, known_of, launch_time, workload
from cleave.schedule.scheduler import Candidate, Scheduled, ScheduleOptions, default_sizes, with_candidates
from cleave.schedule.tile_program import TileProgram

TIMEOUT = 30.0  # seconds of CPU time after which a candidate is rejected
MORE = (2, 4)


@dataclass(frozen=True)
class Schedule(ScheduleByModel):
    """Schedule each tensor function, or the best of its alternatives, as kernels and their launches.

    ``sizes``: representative sizes of dynamic dims for the cost model, as in "m=128,n=4096"; the kernels take any.
    ``compile``: how many candidates of each kernel are compiled before one is chosen; 0 trusts the cost model.
    """

    compile: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.compile < 0:
            raise CleaveError(f"compile is {self.compile}, but must be a number of candidates, 0 for none")

    def refined(self, scheduled: Scheduled, options: ScheduleOptions) -> Scheduled:
        return compiled(scheduled, options, self.compile) if self.compile else scheduled


def compiled(scheduled: Scheduled, options: ScheduleOptions, count: int) -> Scheduled:
    """The schedule with the best of ``count`` compiled candidates for each launch, which stand first, best first.

    A candidate that does not fit, spills, is refused or not compiled within ``TIMEOUT`` is rejected, with the reason.
    Where all are, ``MORE`` times as many are tried; CleaveError if every one of these is, too.
    """
    sizes = {**default_sizes(scheduled.program.graph, options.sizes), **scheduled.program.choices}
    ranked = _ranked(scheduled, options, count, sizes)
    for more in MORE:
        if any(candidates[0].rejected for candidates in ranked):
            ranked = _ranked(scheduled, options, more * count, sizes)
    return _chosen(scheduled, ranked, options)


def _ranked(
    scheduled: Scheduled, options: ScheduleOptions, count: int, sizes: Mapping[str, int]
) -> list[tuple[Candidate, ...]]:
    """For each launch its candidates, the first ``count`` as compiled, best first."""
    tried = [_first(candidates, options, count) for candidates in scheduled.candidates]
    ranked: list[tuple[Candidate, ...]] = []
    lowered = _all_lowered(scheduled, tried)
    for number, (candidates, kernels) in enumerate(zip(tried, lowered, strict=True)):
        judged = _judged(candidates, kernels, scheduled.program, sizes, options)
        rest = [candidate for candidate in scheduled.candidates[number] if candidate not in candidates]
        ranked.append((*judged, *rest))
    return ranked


def _first(candidates: Sequence[Candidate], options: ScheduleOptions, count: int) -> list[Candidate]:
    """The first that are expected to fit, or the first if none is."""
    fitting = [candidate for candidate in candidates if candidate.cost.fits(options.target)]
    return distinct(fitting or candidates, count)


Lowered = list[KernelModule] | CleaveError
"""What a candidate is lowered to, or why it is not."""


def _all_lowered(scheduled: Scheduled, tried: Sequence[Sequence[Candidate]]) -> list[list[Lowered]]:
    """For each launch what its candidates are lowered to: with those of other launches, or if that fails each alone."""
    found: list[list[Lowered]] = [[] for _ in tried]
    first = [candidates[0] for candidates in tried]
    for index in range(max(map(len, tried), default=0)):
        together = _lowered(scheduled, [candidates[min(index, len(candidates) - 1)] for candidates in tried])
        for number, candidates in enumerate(tried):
            if index >= len(candidates):
                continue
            kernels = together
            if isinstance(together, CleaveError):
                kernels = _lowered(scheduled, [*first[:number], candidates[index], *first[number + 1 :]])
            found[number].append(_of_launch(kernels, number, candidates[index]))
    return found


def _of_launch(kernels: list[list[KernelModule]] | CleaveError, number: int, candidate: Candidate) -> Lowered:
    if isinstance(kernels, CleaveError):
        return kernels
    if candidate.warp_specialised and not any(TTGIR_TARGET in kernel.text for kernel in kernels[number]):
        return CleaveError("it has no warp-specialised form")
    return kernels[number]


def _lowered(scheduled: Scheduled, chosen: Sequence[Candidate]) -> list[list[KernelModule]] | CleaveError:
    """For each launch the kernels that these candidates are lowered to."""
    program = with_candidates(scheduled.program, chosen)
    lowering = LowerToTtgir(chosen=True) if any(each.warp_specialised for each in chosen) else LowerToTriton()
    ctx = context(allow_unregistered=True)
    try:
        with ctx, ir.Location.unknown(ctx), collecting(lambda remark: None):
            module = ir.Module.create()
            from_tile_program(program, module)
            lowering.apply(ctx, module)
            kernels = kernel_modules(module)
    except CleaveError as error:
        return error
    names = [launch.kernel.name for launch in program.launches]
    return [[kernel for kernel in kernels if _belongs(kernel.name, name)] for name in names]


def _belongs(kernel: str, launch: str) -> bool:
    """Whether the kernel is the launch's own or a variant of it."""
    return kernel == launch or kernel.startswith(f"{launch}__")


def _judged(
    candidates: Sequence[Candidate],
    kernels: Sequence[Lowered],
    program: TileProgram,
    sizes: Mapping[str, int],
    options: ScheduleOptions,
) -> list[Candidate]:
    """The candidates as compiled, best first; rejected ones last."""
    target = Target.parse(options.target.arch)
    small = _compile(kernels, target, "shared")
    fitting = [_misfit(outcomes, target) == "" for outcomes in small]
    full = iter(_compile([k for k, fits in zip(kernels, fitting, strict=True) if fits], target, "cubin"))
    found: list[Candidate] = []
    for candidate, fits, outcomes in zip(candidates, fitting, small, strict=True):
        done = next(full) if fits else outcomes
        found.append(_recosted(replace(candidate, rejected=_misfit(done, target)), done, program, sizes, options))
    return sorted(found, key=lambda candidate: (bool(candidate.rejected), candidate.cost.running))


Outcomes = Sequence[Compiled | CleaveError]


def _compile(kernels: Sequence[Lowered], target: Target, stop: Stop) -> list[Outcomes]:
    groups = [[] if isinstance(group, CleaveError) else group for group in kernels]
    requests = [replace(kernel.request(target, stop), timeout=TIMEOUT) for group in groups for kernel in group]
    outcomes = iter(compile_many(requests))
    return [[group] if isinstance(group, CleaveError) else [next(outcomes) for _ in group] for group in kernels]


def _misfit(outcomes: Outcomes, target: Target) -> str:
    """Why a candidate cannot be taken; empty if it can."""
    for outcome in outcomes:
        if isinstance(outcome, CleaveError):
            return str(outcome.message)
        if not outcome.fits:
            return f"{outcome.shared / 1024:.0f} KiB of shared memory, {target.shared_per_block / 1024:.0f} are there"
        if outcome.spills > outcome.few_spills:
            return f"{outcome.spills} bytes of registers spilled"
    return ""


def _recosted(
    candidate: Candidate, outcomes: Outcomes, program: TileProgram, sizes: Mapping[str, int], options: ScheduleOptions
) -> Candidate:
    """The candidate's cost with the resources that the compiler found, as far as it came."""
    found = [outcome for outcome in outcomes if isinstance(outcome, Compiled)]
    shared, registers = (max((getattr(o, name) for o in found), default=-1) for name in ("shared", "registers"))
    if min(shared, registers) < 0:
        return candidate
    if candidate.warp_specialised:
        return replace(candidate, cost=replace(candidate.cost, shared=shared))
    kernel = candidate.kernel
    work = workload(kernel, sizes, known_of(program.graph))
    cost = cost_of(work, kernel.num_stages, kernel.num_warps, options.target, Resources(shared, registers))
    return replace(candidate, cost=cost)


def _chosen(scheduled: Scheduled, ranked: Sequence[tuple[Candidate, ...]], options: ScheduleOptions) -> Scheduled:
    for launch, candidates in zip(scheduled.program.launches, ranked, strict=True):
        if candidates[0].rejected:
            reasons = tuple(dict.fromkeys(candidate.rejected for candidate in candidates if candidate.rejected))
            raise CleaveError(f"no candidate for kernel '{launch.kernel.name}' can be compiled", notes=reasons[:4])
    program = with_candidates(scheduled.program, [candidates[0] for candidates in ranked])
    seconds = sum(candidates[0].cost.running for candidates in ranked) + launch_time(len(ranked), options.target)
    return replace(scheduled, program=program, candidates=tuple(ranked), seconds=seconds)
