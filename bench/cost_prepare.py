"""Schedule, lower and compile what the cost model is measured on."""

from __future__ import annotations

import itertools
import json
import pickle
import time
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cost_cases import Choice, Subject, chosen, pairs, subjects
from lowered_programs import ARCH, exit_status, lower, metadata, unfit

from cleave.errors import CleaveError
from cleave.lowering.compile_ttir import Compiled, Options, Request, submit
from cleave.lowering.emit import KernelModule
from cleave.lowering.targets import Target
from cleave.lowering.workers import Workers
from cleave.runtime.launch_plan import LaunchPlan

TIMEOUT = 20.0  # seconds of compilation after which a kernel is left out

Json = dict[str, Any]


@dataclass(frozen=True)
class Lowered:
    key: str
    subject: Subject
    choice: Choice
    plan: LaunchPlan
    kernels: Sequence[KernelModule]


def prepare(out: Path, only: str, seconds: float, workers: int) -> int:
    """Write ``cases.json``, ``cubins.zip`` and ``programs.pickle`` to ``out``; compile for ``seconds`` at most.

    The first schedules of every subgraph come first, so that running out of time costs the last of each.
    """
    out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    lowered = _in_turn([_lowered(subject) for subject in subjects() if only in subject.name])
    print(f"{len(lowered)} schedules after {time.monotonic() - started:.0f} s", flush=True)
    target = Target.parse(ARCH)
    pool = Workers(workers)
    futures: dict[str, Future[Compiled]] = {}
    for entry in lowered:
        for kernel in entry.kernels:
            if _identity(kernel) not in futures:
                options = Options(num_warps=kernel.num_warps, num_stages=kernel.num_stages)
                futures[_identity(kernel)] = submit(pool, Request(kernel.text, target, options, timeout=TIMEOUT))
    compiled = _collect(futures, started + seconds)
    pool.close(wait=False)
    programs: list[Json] = []
    with zipfile.ZipFile(out / "cubins.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in lowered:
            found = [compiled.get(_identity(kernel)) for kernel in entry.kernels]
            if all(isinstance(kernel, Compiled) for kernel in found):
                _add(entry, [kernel for kernel in found if isinstance(kernel, Compiled)], archive, programs)
    (out / "cases.json").write_text(json.dumps({"arch": ARCH, "programs": programs}))
    kept = {program["key"] for program in programs}
    tiles = {entry.key: (entry.subject.name, entry.choice.program) for entry in lowered if entry.key in kept}
    (out / "programs.pickle").write_bytes(pickle.dumps(tiles))
    refused = [outcome for outcome in compiled.values() if isinstance(outcome, str)]
    count = sum(len(program["pairs"]) for program in programs)
    print(
        f"{len(programs)} programs, {count} pairs, {len(compiled)} of {len(futures)} kernels compiled, "
        f"{len(refused)} refused, {time.monotonic() - started:.0f} s"
    )
    for text in sorted(set(refused)):
        print(f"REFUSED {text}")
    return exit_status(programs)


def _lowered(subject: Subject) -> list[Lowered]:
    found: list[Lowered] = []
    for number, choice in enumerate(chosen(subject)):
        try:
            plan, kernels = lower(choice.program)
        except CleaveError as error:
            print(f"REFUSED {subject.name} {choice.tilings}: {error}")
            continue
        found.append(Lowered(f"{subject.name}.{number}", subject, choice, plan, kernels))
    return found


def _in_turn(groups: Iterable[Sequence[Lowered]]) -> list[Lowered]:
    return [entry for row in itertools.zip_longest(*groups) for entry in row if entry]


def _identity(kernel: KernelModule) -> str:
    return f"{kernel.num_warps} {kernel.num_stages} {kernel.text}"


def _collect(futures: Mapping[str, Future[Compiled]], deadline: float) -> dict[str, Compiled | str]:
    """What is compiled by the deadline; a text in the place of what was refused."""
    found: dict[str, Compiled | str] = {}
    for identity, future in futures.items():
        try:
            found[identity] = future.result(max(0.0, deadline - time.monotonic()))
        except CleaveError as error:
            found[identity] = str(error).splitlines()[0]
        except TimeoutError:
            continue
    return found


def _add(entry: Lowered, kernels: Sequence[Compiled], archive: zipfile.ZipFile, programs: list[Json]) -> None:
    if any(unfit(kernel, module) for kernel, module in zip(kernels, entry.kernels, strict=True)):
        return
    described: list[Json] = []
    for kernel in kernels:
        path = f"{entry.key}.{kernel.name}"
        archive.writestr(path, kernel.cubin or b"")
        described.append(metadata(kernel, path))
    graph = entry.subject.graph
    bound = {symbol for value in graph.inputs for dim in value.dims for symbol in dim.size.symbols}
    runs: list[Json] = []
    for rows, sizes in pairs(entry.subject, entry.choice):
        shapes = [[dim.size.evaluate(sizes) for dim in value.dims] for value in graph.inputs]
        given = {name: n for name, n in sizes.items() if name not in bound}
        runs.append({"rows": rows, "sizes": sizes, "shapes": shapes, "given": given})
    programs.append({
        "key": entry.key, "subgraph": entry.subject.name, "reference": entry.subject.reference,
        "tilings": list(entry.choice.tilings), "plan": entry.plan.to_json(), "kernels": described, "pairs": runs,
    })  # fmt: skip
