"""From a lowered module to what the runtime packs and calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import cast

import cleave
from cleave.bindings import ir
from cleave.errors import CleaveError
from cleave.lowering.compile_ttir import Compiled, compile_many
from cleave.lowering.emit import KernelModule, kernel_modules
from cleave.lowering.plan import plan_of
from cleave.lowering.targets import TTGIR_TARGET, Target
from cleave.lowering.workers import Workers
from cleave.passes.functions import is_private, name_of
from cleave.runtime.cuda import Kernel
from cleave.runtime.launch_plan import Launch, LaunchPlan
from cleave.runtime.package import Package, Variant


def variant_of(
    module: ir.Module,
    function: str,
    targets: Sequence[Target] = (),
    *,
    sizes: Mapping[str, int] | None = None,
    workers: Workers | None = None,
) -> Variant:
    """The function of a lowered module as a variant, its kernels compiled for ``targets``.

    ``sizes`` are those that the module was scheduled for. CleaveError where the compiler refuses a kernel or one does
    not fit the target.
    """
    kernels = {kernel.name: kernel for kernel in kernel_modules(module)}
    plan = plan_of(module, function, kernels)
    launched = {launch.kernel: kernels[launch.kernel].text for launch in plan.possible_launches}
    variant = Variant(plan, launched, {}, dict(sizes or {}))
    return compiled_for(variant, targets, workers)


def package_of(module: ir.Module, target: Target | str) -> Package:
    """The host function of a lowered module as a package for one target."""
    target = Target.parse(target) if isinstance(target, str) else target
    name = packed_function(module)
    return package(name, [variant_of(module, name, [target])])


def packed_function(module: ir.Module) -> str:
    """The name of the one function that a package of the module has. CleaveError if there are more, or none."""
    hosts = [
        name_of(op.operation)
        for op in module.body.operations
        if op.operation.name == "func.func" and op.operation.regions[0].blocks and _is_host(op.operation)
    ]
    if len(hosts) != 1:
        found = ", ".join(hosts) or "none"
        raise CleaveError("a package holds one function", notes=(f"functions of the module: {found}",))
    return hosts[0]


def _is_host(function: ir.Operation) -> bool:
    return not is_private(function) and "cleave.alternative_of" not in function.attributes


def compiled_for(variant: Variant, targets: Sequence[Target], workers: Workers | None = None) -> Variant:
    """The variant with binaries for these targets too.

    Where the compiler refuses a kernel that stands for several launches, those launches take its place.
    CleaveError for any other kernel that it refuses or that does not fit the target.
    """
    new = [target for target in targets if target.name not in variant.binaries]
    outcomes = {target.name: _outcomes(variant, target, workers) for target in new}
    refused = {name for found in outcomes.values() for name, outcome in found.items() if _problem(outcome)}
    plan = _without(variant.plan, refused)
    kept = {launch.kernel for launch in plan.possible_launches}
    made = {
        target: {name: _kernel(outcome) for name, outcome in found.items() if name in kept}
        for target, found in outcomes.items()
    }
    old = {target: {n: k for n, k in kernels.items() if n in kept} for target, kernels in variant.binaries.items()}
    ttir = {name: text for name, text in variant.ttir.items() if name in kept}
    return replace(variant, plan=plan, ttir=ttir, binaries={**old, **made})


Outcome = Compiled | CleaveError


def _outcomes(variant: Variant, target: Target, workers: Workers | None) -> dict[str, Outcome]:
    launches = {launch.kernel: launch for launch in variant.plan.possible_launches}
    kernels = [
        KernelModule(name, variant.ttir[name], launch.arguments, launch.num_warps, launch.num_stages, launch.persistent)
        for name, launch in launches.items()
    ]
    return dict(zip(launches, compile_many([kernel.request(target) for kernel in kernels], workers), strict=True))


def _without(plan: LaunchPlan, refused: set[str]) -> LaunchPlan:
    """The plan, and its aligned form, without refused kernels that other launches can stand in for."""
    replaced = {launch.unless for launch in plan.launches} & refused
    steps = [
        replace(step, unless="") if isinstance(step, Launch) and step.unless in replaced else step
        for step in plan.steps
        if not (isinstance(step, Launch) and step.kernel in replaced)
    ]
    return replace(plan, steps=tuple(steps), aligned=_without(plan.aligned, refused) if plan.aligned else None)


def _problem(outcome: Outcome) -> CleaveError | None:
    """Why a kernel cannot be launched; None if it can."""
    if isinstance(outcome, CleaveError):
        return outcome
    if not outcome.fits:
        has = f"{outcome.target} has {outcome.target.shared_per_block}"
        return CleaveError(f"kernel {outcome.name} needs {outcome.shared} bytes of shared memory; {has}")
    if TTGIR_TARGET in outcome.ttir:
        return _slow(outcome)
    return None


def _slow(outcome: Compiled) -> CleaveError | None:
    """Why a warp-specialised kernel is none that was meant: it is there for its speed alone."""
    serialised = [note for note in outcome.notes if "C75" in note]
    if outcome.spills > outcome.few_spills or serialised:
        found = (f"{outcome.spills} bytes of registers spilled", *serialised)
        return CleaveError(f"kernel {outcome.name} in its warp-specialised form is not what was meant", notes=found)
    return None


def _kernel(outcome: Outcome) -> Kernel:
    problem = _problem(outcome)
    if problem:
        raise problem
    compiled = cast(Compiled, outcome)
    return Kernel(
        name=compiled.name,
        cubin=compiled.cubin or b"",
        shared=compiled.shared,
        num_warps=compiled.num_warps,
        num_ctas=compiled.num_ctas,
        scratch=compiled.global_scratch_size,
        boxes=compiled.boxes,
    )


def package(name: str, variants: Sequence[Variant]) -> Package:
    """The variants as a package that says what made it."""
    return Package(name, tuple(variants), versions())


def versions() -> dict[str, str]:
    """Of Cleave and of the compilers below it."""
    found = {"cleave": cleave.__version__}
    for distribution in ("triton", "xtc-mlir-python-bindings"):
        try:
            found[distribution] = version(distribution)
        except PackageNotFoundError:
            continue
    return found
