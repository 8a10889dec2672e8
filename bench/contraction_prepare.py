"""Lower and compile the schedules that ``contractions.py`` measures."""

from __future__ import annotations

import json
import zipfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from contraction_cases import CASES, SUBJECTS, Case
from device_prepare import ARCH, _lower, _metadata, _unfit  # pyright: ignore[reportPrivateUsage]

from cleave.lowering.compile_ttir import Compiled, compile_many
from cleave.lowering.targets import Target
from cleave.lowering.workers import Workers
from cleave.schedule.emit import emit_kernel
from cleave.schedule.region import region_of
from cleave.schedule.rename import in_memory_order
from cleave.schedule.tile_program import Launch, TileProgram
from cleave.schedule.tiling import Fusion, Tiling


def prepare(out: Path, workers: int) -> int:
    """Write ``cases.json`` and ``cubins.zip``."""
    out.mkdir(parents=True, exist_ok=True)
    lowered = [_lower(program_of(case)) for case in CASES]
    with Workers(workers) as pool:
        outcomes = compile_many([kernels[0].request(Target.parse(ARCH)) for _, kernels in lowered], pool)
    described: list[dict[str, Any]] = []
    with zipfile.ZipFile(out / "cubins.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number, (case, (plan, kernels), outcome) in enumerate(zip(CASES, lowered, outcomes, strict=True)):
            refusal = _unfit(outcome, kernels[0]) if isinstance(outcome, Compiled) else str(outcome).splitlines()[0]
            if refusal or not isinstance(outcome, Compiled):
                print(f"REFUSED {case}: {refusal}")
                continue
            archive.writestr(str(number), outcome.cubin or b"")
            kernel = _metadata(outcome, str(number))
            print(
                f"{case}: {kernel['registers']} registers, {kernel['spills']} spilt, {kernel['shared']} B", flush=True
            )
            described.append({"case": asdict(case), "kernel": kernel, "plan": plan.to_json()})
    subjects = {name: {"shapes": s.shapes, "flops": s.flops, "reference": s.reference} for name, s in SUBJECTS.items()}
    (out / "cases.json").write_text(json.dumps({"subjects": subjects, "cases": described}))
    return 0


def program_of(case: Case) -> TileProgram:
    """The subject in one kernel with these tiles."""
    subject = SUBJECTS[case.subject]
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
