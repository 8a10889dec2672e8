"""Lower and compile the schedules that ``contractions.py`` measures."""

from __future__ import annotations

import json
import zipfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from contraction_cases import CASES, SUBJECTS, Case
from lowered_programs import ARCH, exit_status, lower, metadata, unfit

from cleave.errors import CleaveError
from cleave.lowering.compile_ttir import Compiled, compile_many
from cleave.lowering.emit import KernelModule
from cleave.lowering.targets import Target
from cleave.lowering.workers import Workers
from cleave.schedule.emit import emit_kernel
from cleave.schedule.region import region_of
from cleave.schedule.rename import in_memory_order
from cleave.schedule.scheduler import ScheduleOptions, schedule
from cleave.schedule.tile_program import Launch, TileProgram
from cleave.schedule.tiling import Fusion, Tiling


def prepare(out: Path, workers: int) -> int:
    """Write ``cases.json`` and ``cubins.zip``."""
    out.mkdir(parents=True, exist_ok=True)
    lowered = [lower(program_of(case)) for case in CASES]
    target = Target.parse(ARCH)
    with Workers(workers) as pool:
        outcomes = iter(compile_many([kernel.request(target) for _, kernels in lowered for kernel in kernels], pool))
    described: list[dict[str, Any]] = []
    with zipfile.ZipFile(out / "cubins.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number, (case, (plan, kernels)) in enumerate(zip(CASES, lowered, strict=True)):
            found = [(kernel, next(outcomes)) for kernel in kernels]
            entry = {"case": asdict(case), "kernels": _written(case, number, found, archive), "plan": plan.to_json()}
            if len(entry["kernels"]) == len(kernels):
                described.append(entry)
    subjects = {name: {"shapes": s.shapes, "flops": s.flops, "reference": s.reference} for name, s in SUBJECTS.items()}
    (out / "cases.json").write_text(json.dumps({"subjects": subjects, "cases": described}))
    return exit_status(described)


def _written(
    case: Case, number: int, found: list[tuple[KernelModule, Compiled | CleaveError]], archive: zipfile.ZipFile
) -> list[dict[str, Any]]:
    """What is to be known of the kernels whose cubins went into the archive."""
    written: list[dict[str, Any]] = []
    for kernel, outcome in found:
        refusal = unfit(outcome, kernel) if isinstance(outcome, Compiled) else str(outcome).splitlines()[0]
        if refusal or not isinstance(outcome, Compiled):
            print(f"REFUSED {case}: {refusal}")
            continue
        path = f"{number}.{kernel.name}"
        archive.writestr(path, outcome.cubin or b"")
        written.append(metadata(outcome, path))
        print(f"{case}: {outcome.registers} registers, {outcome.spills} spilt, {outcome.shared} B", flush=True)
    return written


def program_of(case: Case) -> TileProgram:
    """The subject in one kernel with these tiles; without tiles, as the scheduler has it."""
    subject = SUBJECTS[case.subject]
    if not case.tiles:
        return schedule(subject.graph.deduplicated(), ScheduleOptions(sizes=dict(subject.sizes))).program
    graph = in_memory_order(subject.graph.deduplicated())
    region = region_of(graph.outputs, frozenset(graph.outputs), graph.extents)
    tiles = {**subject.tiles, **case.tiles}
    reduced = dict.fromkeys(name for value in region.reductions for name in value.attrs["over"])
    tiling = Tiling(
        {name: tiles.get(name, 1) for name in region.parallel},
        {name: tiles[name] for name in reduced},
        frozenset(subject.resident),
        group=case.group,
    )
    emitted = emit_kernel(f"{graph.name}__k0", region, tiling, graph.extents, Fusion())
    kernel = replace(emitted.kernel, num_warps=case.warps, num_stages=case.stages, descriptors=case.descriptors)
    return TileProgram(graph, graph.outputs, (Launch(kernel, emitted.operands),))
