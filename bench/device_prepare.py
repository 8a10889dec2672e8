"""Schedule, lower and compile the cases of the device check, and compute the references of the small ones."""

from __future__ import annotations

import json
import math
import multiprocessing
import signal
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from device_cases import Sizes, Subject, subjects
from lowered_programs import ARCH, exit_status, lower, metadata, unfit

from cleave.bindings import context, ir
from cleave.dialects.graph import Graph
from cleave.errors import CleaveError
from cleave.lowering.compile_ttir import Compiled, submit
from cleave.lowering.emit import KernelModule
from cleave.lowering.lower_to_triton import LowerToTriton
from cleave.lowering.lower_to_ttgir import LowerToTtgir
from cleave.lowering.targets import TTGIR_TARGET, Target
from cleave.lowering.workers import Workers
from cleave.passes.diagnostics import collecting
from cleave.passes.graph_io import from_graph
from cleave.reference import run
from cleave.schedule.scheduler import Scheduled, ScheduleOptions, schedule
from cleave.schedule.target import target_named
from cleave.schedule.tile_program import TileProgram

TARGET = Target.parse(ARCH)
CARRIED = 2_000_000
"""Elements of an op up to which a run's reference is computed here."""

NUMPY = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}


@dataclass(frozen=True)
class Lowered:
    """A schedule of a subject, as far as the process that found it takes it."""

    key: str
    plan: dict[str, Any]
    kernels: Sequence[KernelModule]
    tilings: Sequence[str]


@dataclass
class Prepared:
    """What one process found of a subject; ``remarks`` say why kernels have no warp-specialised form."""

    subject: str
    lowered: list[Lowered] = field(default_factory=list[Lowered])
    data: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    problem: str = ""
    remarks: dict[str, None] = field(default_factory=dict[str, None])

    def __str__(self) -> str:
        why = self.problem or ("" if self.lowered else next(iter(self.remarks), ""))
        return f"{self.subject}: {len(self.lowered)} schedules" + (why and f", {why}")


@dataclass(frozen=True)
class Wanted:
    """What is to be prepared, of each subject ``schedules`` for each hint.

    ``warp_specialised``: only programs with kernels in that form, which all have that can. No subject is begun after
    ``deadline``, on the monotonic clock.
    """

    out: Path
    schedules: int
    warp_specialised: bool
    deadline: float


def prepare_cases(out: Path, only: str, schedules: int, workers: int, warp_specialised: bool, seconds: float) -> int:
    """Write ``cases.json``, the cubins and the carried references to ``out``; 1 if there is a problem or no program."""
    started = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    names = [subject.name for subject in subjects() if only in subject.name]
    wanted = Wanted(out, schedules, warp_specialised, started + seconds)
    found: list[Prepared] = []
    kernels: list[tuple[Lowered, KernelModule, Future[Compiled]]] = []
    # A process has the state of Triton's compiler and of MLIR, which a fork would share.
    context = multiprocessing.get_context("spawn")
    ends = signal.signal, (signal.SIGINT, signal.SIG_DFL)  # by Ctrl-C; else the pool would begin the next job
    with Workers(workers) as compilers, ProcessPoolExecutor(workers, context, *ends) as processes:
        for prepared in processes.map(partial(_prepared, wanted), names):
            print(f"{time.monotonic() - started:.0f} s, {prepared}", flush=True)
            found.append(prepared)
            for entry in prepared.lowered:
                kernels += [(entry, each, submit(compilers, each.request(TARGET))) for each in entry.kernels]
    problems = [f"{each.subject}: {each.problem}" for each in found if each.problem]
    programs = _written(found, kernels, out, problems)
    used = {program["subject"] for program in programs}
    data = [entry for each in found if each.subject in used for entry in each.data]
    cases = {"arch": ARCH, "programs": programs, "data": data, "problems": problems}
    (out / "cases.json").write_text(json.dumps(cases))
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    took = time.monotonic() - started
    print(f"{len(programs)} programs, {len(data)} sets of inputs, {size / 1e6:.1f} MB, {took:.0f} s")
    return exit_status(programs, problems)


# --- schedules -------------------------------------------------------------------------------------------------------


def _prepared(wanted: Wanted, name: str) -> Prepared:
    """Schedules of a subject, and inputs for their programs if there are any; in a process of its own."""
    found = Prepared(name)
    if time.monotonic() > wanted.deadline:
        found.problem = "not begun, no time is left"
        return found
    subject = next(subject for subject in subjects() if subject.name == name)
    try:
        with collecting(lambda remark: found.remarks.setdefault(remark.message)):
            found.lowered += _lowered(subject, wanted)
        found.data += _datasets(subject, wanted.out) if found.lowered else ()
    except Exception as error:  # the other subjects are prepared; one of IR objects could not even leave this process
        found.problem = str(error) if isinstance(error, CleaveError) else f"{type(error).__name__}: {error}"
    return found


def _lowered(subject: Subject, wanted: Wanted) -> Iterator[Lowered]:
    """Different schedules of a subject: for each hint the chosen one and others that fit, over the whole range."""
    seen: set[str] = set()
    for hint in subject.hints:
        scheduled = schedule(subject.graph.deduplicated(), ScheduleOptions(sizes=hint))
        for number in range(wanted.schedules):
            program, tilings = _alternative(scheduled, number / max(1, wanted.schedules))
            if str(tilings) in seen:
                continue
            seen.add(str(tilings))
            key = f"{subject.name}.{len(seen)}"
            plan, kernels = lower(program, LowerToTtgir() if wanted.warp_specialised else LowerToTriton())
            if not wanted.warp_specialised or any(TTGIR_TARGET in kernel.text for kernel in kernels):
                yield Lowered(key, plan.to_json(), kernels, tilings)


def _alternative(scheduled: Scheduled, share: float) -> tuple[TileProgram, list[str]]:
    """The program with, for each launch, the candidate at ``share`` of those that fit, best first."""
    launches, tilings = [], []
    for launch, ranked in zip(scheduled.program.launches, scheduled.candidates, strict=True):
        fitting = [candidate for candidate in ranked if candidate.cost.fits(target_named("h200"))]
        candidate = fitting[int(share * len(fitting))]
        launches.append(
            replace(launch, kernel=replace(candidate.kernel, name=launch.kernel.name), operands=candidate.operands)
        )
        tilings.append(f"{candidate.tiling}, {candidate.kernel.num_stages} stages")
    return replace(scheduled.program, launches=tuple(launches)), tilings


# --- binaries --------------------------------------------------------------------------------------------------------


def _written(
    found: Sequence[Prepared],
    kernels: Sequence[tuple[Lowered, KernelModule, Future[Compiled]]],
    out: Path,
    problems: list[str],
) -> list[dict[str, Any]]:
    """The programs of which all kernels are compiled, and these in archives."""
    compiled: dict[str, list[dict[str, Any]]] = {}
    refused: set[str] = set()
    archive = zipfile.ZipFile(out / "cubins.zip", "w", zipfile.ZIP_DEFLATED)
    texts = zipfile.ZipFile(out.parent / "ttir.zip", "w", zipfile.ZIP_DEFLATED)
    with archive, texts:
        for entry, kernel, future in kernels:
            try:
                binary = future.result()
                problem = unfit(binary, kernel)
            except CleaveError as error:
                binary, problem = None, str(error)
            if problem or binary is None:
                problems.append(f"{entry.key} {kernel.name} {entry.tilings}: {problem}")
                refused.add(entry.key)
                continue
            path = f"{entry.key}.{kernel.name}"
            archive.writestr(path, binary.cubin or b"")
            texts.writestr(path, kernel.text)
            compiled.setdefault(entry.key, []).append(metadata(binary, path))
    return [
        {
            "key": entry.key, "subject": each.subject, "plan": entry.plan, "kernels": compiled[entry.key],
            "tilings": list(entry.tilings),
        }
        for each in found
        for entry in each.lowered
        if entry.key not in refused
    ]  # fmt: skip


# --- inputs and references --------------------------------------------------------------------------------------------


def _datasets(subject: Subject, out: Path) -> Iterator[dict[str, Any]]:
    graph = subject.graph
    for number, given in enumerate(subject.runs):
        symbols = {symbol for value in graph.topological() for dim in value.dims for symbol in dim.size.symbols}
        sizes = {**{name: n for name, n in given.items() if name in symbols}, **graph.extents}
        shapes = [[dim.size.evaluate(sizes) for dim in value.dims] for value in graph.inputs]
        dtypes = [value.dtype for value in graph.inputs]
        bound = {symbol for value in graph.inputs for dim in value.dims for symbol in dim.size.symbols}
        entry: dict[str, Any] = {
            "subject": subject.name, "sizes": sizes, "given": {s: n for s, n in sizes.items() if s not in bound},
            "shapes": shapes, "dtypes": dtypes, "seed": number, "reference": subject.reference,
            "tolerance": subject.tolerance, "timed": given in subject.timed, "outputs": len(graph.outputs),
            "carried": None,
        }  # fmt: skip
        if _work(graph, sizes) <= CARRIED:
            entry["carried"] = path = f"{subject.name}.{number}.npz"
            _carry(graph, shapes, dtypes, sizes, number, out / path)
        elif subject.reference is None:
            raise CleaveError(f"{subject.name} has a run without a reference")
        yield entry


def _work(graph: Graph, sizes: Sizes) -> int:
    """Elements that a straightforward evaluation touches."""
    most = 0
    for value in graph.topological():
        names = {dim.name: dim.size.evaluate(sizes) for v in (value, *value.operands) for dim in v.dims}
        most = max(most, math.prod(names.values()))
    return most


def _carry(
    graph: Graph, shapes: Sequence[Sequence[int]], dtypes: Sequence[str], sizes: Sizes, seed: int, path: Path
) -> None:
    """Save inputs and the float64 results of the reference executor."""
    inputs = inputs_for(graph.name, shapes, dtypes, seed)
    expected = reference_outputs(graph, inputs, sizes)
    arrays: dict[str, np.ndarray] = {f"in{i}": x.view(np.int16) if x.itemsize == 2 else x for i, x in enumerate(inputs)}
    arrays |= {f"out{i}": x for i, x in enumerate(expected)}
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]  # the stub takes the names for its own options


def inputs_for(name: str, shapes: Sequence[Sequence[int]], dtypes: Sequence[str], seed: int) -> list[np.ndarray]:
    """Normal numbers; weights of an MLP scaled to keep its values in range; masks with holes and an empty row."""
    rng = np.random.default_rng(seed)
    arrays: list[np.ndarray] = []
    for index, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True)):
        values = rng.standard_normal(shape)
        if name == "gated_mlp" and index:
            values /= math.sqrt(max(1, shape[0]))
        if name == "attention" and index == 3:
            values = np.where(rng.random(shape) < 0.2, -np.inf, values)
            values[shape[0] // 2 + 1 : shape[0] // 2 + 2] = -np.inf
        arrays.append(values.astype(NUMPY[dtype]))
    return arrays


def reference_outputs(graph: Graph, inputs: list[np.ndarray], sizes: Mapping[str, int]) -> list[np.ndarray]:
    with context(), ir.Location.unknown():
        plain = ir.Module.create()
        from_graph(graph, plain)
        return run(plain, graph.name, inputs, precision="f64", sizes=dict(sizes))
