"""Schedule and lower the decode workloads; the kernels are compiled where they run."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from decode_cases import Choice, Workload, chosen, workloads
from lowered_programs import exit_status, lower

from cleave.errors import CleaveError
from cleave.lowering.emit import KernelModule

Json = dict[str, Any]


def prepare_cases(out: Path, only: str) -> int:
    """Write ``cases.zip``, plans and TTIR, to ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    programs: list[Json] = []
    with zipfile.ZipFile(out / "cases.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for workload in workloads():
            if only not in f"{workload.name}/{workload.rows}":
                continue
            for number, choice in enumerate(chosen(workload)):
                key = f"{workload.name}.{workload.rows}.{number}"
                entry = _entry(key, workload, choice, archive)
                programs += [entry] if entry else []
            print(f"{workload.name} {workload.rows}: {len(programs)} programs so far", flush=True)
        archive.writestr("cases.json", json.dumps(programs))
    return exit_status(programs)


def _entry(key: str, workload: Workload, choice: Choice, archive: zipfile.ZipFile) -> Json | None:
    try:
        plan, kernels = lower(choice.program)
    except CleaveError as error:
        print(f"REFUSED {key} {choice.tilings}: {error}")
        return None
    sizes = {**workload.graph.extents, **workload.sizes}
    shapes = [[dim.size.evaluate(sizes) for dim in value.dims] for value in workload.graph.inputs]
    return {
        "key": key, "workload": workload.name, "rows": workload.rows, "reference": workload.reference,
        "tilings": list(choice.tilings), "plan": plan.to_json(), "shapes": shapes, "sizes": sizes,
        "given": [dict(count) for count in choice.counts],
        "kernels": [_kernel(kernel, f"{key}.{kernel.name}", archive) for kernel in kernels],
    }  # fmt: skip


def _kernel(kernel: KernelModule, path: str, archive: zipfile.ZipFile) -> Json:
    archive.writestr(path, kernel.text)
    return {"name": kernel.name, "path": path, "warps": kernel.num_warps, "stages": kernel.num_stages}
