"""Packages for the subgraphs, made without a GPU; and their run on one: numbers first, then times, baselines beside."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import time
import zlib
from collections.abc import Container, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from cleave.bench.subgraphs import Sizes, Subgraph
from cleave.bench.subgraphs import subgraphs as subgraphs_by_name
from cleave.errors import CleaveError

TOLERANCE = 4e-3
"""Of ‖out − ref‖ / ‖ref‖ for f16 results; twice the error of PyTorch's eager program is allowed beyond it."""
OURS = ("cleave", "model")
ABLATIONS: Mapping[str, Mapping[str, Any]] = {
    "": {},
    "no-superopt": {"superopt": False},
    "no-split": {"split": False},
    "no-iterative-tiling": {"iterative_tiling": False},
    "no-horizontal-fusion": {"horizontal_fusion": False},
    "no-split-in-one-launch": {"combine": "pdl"},
    "no-overlapping-launches": {"combine": "plain"},
}


@dataclass(frozen=True)
class Row:
    """One function at one shape.

    ``microseconds`` by label: "cleave", the fastest of our programs, "model", the one that the cost model prefers, and
    the baselines; ``programs`` has all that are right of ours. ``error`` is of our numbers, ``program`` says which
    program was the fastest.
    """

    subgraph: str
    shape: str
    ablation: str
    sizes: Mapping[str, int]
    flops: float
    traffic: int
    error: float
    wrong: str
    microseconds: Mapping[str, float] = field(default_factory=dict[str, float])
    program: str = ""
    programs: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def key(self) -> tuple[str, str, str]:
        return self.subgraph, self.shape, self.ablation

    @property
    def best(self) -> tuple[str, float]:
        """The fastest baseline."""
        others = {label: us for label, us in self.microseconds.items() if label not in OURS}
        return min(others.items(), key=lambda item: item[1], default=("none", float("nan")))

    @property
    def ratio(self) -> float:
        """How many times as fast as the fastest baseline."""
        return self.best[1] / self.microseconds.get("cleave", float("nan"))


def package_path(folder: Path, subgraph: str, shape: str, ablation: str) -> Path:
    return folder / f"{subgraph}.{shape}{'.' * bool(ablation)}{ablation}.cleave"


@dataclass(frozen=True)
class Job:
    """A package to be made: of ``candidates`` programs, or of the model's choice alone where it is 1.

    ``warp_specialise``: as of ``cleave.jit``; True: the first such candidate also without each part of that form.
    """

    subgraph: str
    shape: str
    ablation: str
    folder: Path
    target: str
    candidates: int
    warp_specialise: bool | None = None


def prepare(
    subgraphs: Sequence[Subgraph],
    shapes: str,
    folder: Path,
    target: str,
    ablations: Sequence[str] = ("",),
    *,
    candidates: int = 1,
    jobs: int = 1,
    warp_specialise: bool | None = None,
) -> Iterator[str]:
    """Compile and write a package for each shape whose label contains ``shapes``; a line for each, as they are done."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [
        Job(subgraph.name, label, ablation, folder, target, candidates, warp_specialise)
        for subgraph in subgraphs
        for label in subgraph.shapes
        if shapes in label
        for ablation in ablations
    ]
    if jobs == 1:
        yield from map(prepared, wanted)
        return
    processors = multiprocessing.Manager().Queue()
    for processor in itertools.islice(itertools.cycle(sorted(os.sched_getaffinity(0))), jobs):
        processors.put(processor)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, _stay_on_one, (processors,)) as pool:
        for done in as_completed([pool.submit(prepared, job) for job in wanted]):
            yield done.result()


def _stay_on_one(processors: Any) -> None:
    """Each process and the compilers that it starts have a processor of their own."""
    os.sched_setaffinity(0, {processors.get()})


def prepared(job: Job) -> str:
    """Make one package; what came of it in a line."""
    subgraph, started = subgraphs_by_name()[job.subgraph], time.monotonic()
    sizes, static = subgraph.shapes[job.shape], subgraph.static.split()
    try:
        special = _jitted(job.subgraph, job.ablation, job.warp_specialise).specialised(
            **{name: sizes[name] for name in static}
        )
        rest = {name: size for name, size in sizes.items() if name not in static}
        if job.candidates > 1 or job.warp_specialise:
            package = special.candidates(job.candidates, job.target, **rest)
        else:
            package = special.package(job.target, sizes=[rest])
        package.save(package_path(job.folder, job.subgraph, job.shape, job.ablation))
        launches = len(package.variants[0].plan.launches)
        result = f"{len(package.variants)} programs, the first of {launches} launch{'es' * (launches > 1)}"
    except CleaveError as error:
        result = f"REFUSED {error.message}"
    return f"{job.subgraph} {job.shape} {job.ablation}: {result}, {time.monotonic() - started:.1f} s"


@cache
def _jitted(subgraph: str, ablation: str, warp_specialise: bool | None) -> Any:
    import cleave

    function = subgraphs_by_name()[subgraph].function
    return cleave.jit(function, schedule=ABLATIONS[ablation], warp_specialise=warp_specialise)


def measure(
    subgraphs: Sequence[Subgraph],
    folder: Path,
    baselines: Sequence[str],
    deadline: float,
    ablations: Sequence[str],
    done: Container[tuple[str, str, str]] = (),
) -> Iterator[Row]:
    """A row for each package of the folder whose key is not ``done``; a wrong result is not timed.

    Nothing is begun after the deadline, on the monotonic clock.
    """
    from cleave.tuner.timing import Timer

    timer = Timer()
    for subgraph in subgraphs:
        for label, sizes in subgraph.shapes.items():
            paths = {ablation: package_path(folder, subgraph.name, label, ablation) for ablation in ablations}
            found = {
                ablation: path
                for ablation, path in paths.items()
                if path.exists() and (subgraph.name, label, ablation) not in done
            }
            if found and time.monotonic() < deadline:
                yield from _measured(subgraph, label, sizes, found, baselines, timer)


def _measured(
    subgraph: Subgraph, label: str, sizes: Sizes, packages: Mapping[str, Path], baselines: Sequence[str], timer: Any
) -> Iterator[Row]:
    from cleave.bench.baselines import EAGER, reference
    from cleave.runtime.package import Package

    torch, others = timer.torch, dict[str, float]()
    for ablation, path in packages.items():
        package = Package.load(path)
        tensors = _inputs(torch, package, sizes)
        wanted = reference(subgraph.torch, tensors, dict(subgraph.settings))
        eager = EAGER[subgraph.torch](*tensors, **subgraph.settings)
        allowed = max(TOLERANCE, 2 * error_of(listed(eager), wanted))
        ours = _ours(package, tensors, wanted, allowed, timer)
        if not others:
            others = dict(_baseline_times(subgraph, tensors, wanted, allowed, baselines, timer))
        moved = sum(t.numel() * t.element_size() for t in (*tensors, *listed(eager)))
        flops, times = subgraph.flops(sizes), {**ours.microseconds, **others}
        yield Row(
            subgraph.name, label, ablation, dict(sizes), flops, moved, ours.error, ours.wrong, times, ours.program,
            ours.programs,
        )  # fmt: skip


@dataclass(frozen=True)
class _Ours:
    error: float
    wrong: str
    microseconds: Mapping[str, float]
    program: str
    programs: Mapping[str, float]


def _ours(package: Any, tensors: Sequence[Any], wanted: Sequence[Any], allowed: float, timer: Any) -> _Ours:
    """All programs of the package, the fastest and the first one; what is wrong with any of them."""
    from cleave.tuner.tune import fastest, measure

    errors: list[float] = []

    def check(results: Sequence[Any]) -> str:
        errors.append(error_of(results, wanted))
        return "" if errors[-1] <= allowed else f"error {errors[-1]:.1e}, {allowed:.1e} is allowed"

    found = [(v, measure(package, v, tensors, check, timer.microseconds)) for v in package.variants]
    wrong = "; ".join(f"{variant.label}: {result.refused}" for variant, result in found if result.refused)
    best, worst = fastest(found), max(errors, default=float("nan"))
    if best is None:
        return _Ours(worst, wrong, {}, "", {})
    times = {variant.label: result.microseconds for variant, result in found if result.microseconds is not None}
    first = times.get(package.variants[0].label)
    model = {"model": first} if first is not None and len(found) > 1 else {}
    return _Ours(worst, wrong, {"cleave": times[best.label], **model}, best.label, times)


def _baseline_times(
    subgraph: Subgraph, tensors: Sequence[Any], wanted: Sequence[Any], allowed: float, labels: Sequence[str], timer: Any
) -> Iterator[tuple[str, float]]:
    from cleave.bench.baselines import baselines

    for label, function in baselines(subgraph.torch, dict(subgraph.settings), labels):
        try:
            if error_of(listed(function(*tensors)), wanted) <= 2 * allowed:
                yield label, timer.microseconds(lambda function=function: function(*tensors))
        except (RuntimeError, ValueError) as error:
            print(f"{subgraph.name}: baseline {label}: {str(error).splitlines()[0]}", flush=True)


def _inputs(torch: Any, package: Any, sizes: Sizes) -> list[Any]:
    """Normal numbers; weights scaled so that products keep the scale of their rows."""
    from cleave.dialects.dims import Dim

    plan, tensors = package.variants[0].plan, []
    for number, spec in enumerate(plan.arguments):
        shape = [Dim.parse(text).size.evaluate(sizes) for text in spec.dims]
        generator = torch.Generator(device="cuda").manual_seed(zlib.crc32(plan.function.encode()) + number)
        scale = shape[0] ** -0.5 if number and len(shape) == 2 else 1.0
        values = torch.randn(shape, generator=generator, device="cuda") * scale
        tensors.append(values.to({"f16": torch.float16, "f32": torch.float32}[spec.dtype]))
    return tensors


def listed(results: Any) -> list[Any]:
    """One result or a tuple of them as a list."""
    return list(results) if isinstance(results, tuple) else [results]


def error_of(results: Sequence[Any], wanted: Sequence[Any]) -> float:
    """The largest ‖out − ref‖ / ‖ref‖; NaN where one has a NaN."""
    errors = [
        float((out.double() - ref.reshape(out.shape)).norm() / ref.norm())
        for out, ref in zip(results, wanted, strict=True)
    ]
    return max(errors) if all(error == error for error in errors) else float("nan")


def write_rows(path: Path, rows: Sequence[Row], environment: Mapping[str, Any]) -> None:
    """JSON lines; the first says where they were measured."""
    lines = [json.dumps({"environment": dict(environment)}), *(json.dumps(asdict(row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


def read_rows(path: Path) -> tuple[dict[str, Any], list[Row]]:
    """What ``write_rows`` wrote; CleaveError where it is something else."""
    try:
        text = path.read_text()
        if not text.strip():
            raise CleaveError(f"{path} is empty", notes=("cleave-bench run writes results",))
        first, *rest = (json.loads(line) for line in text.splitlines())
        return first["environment"], [Row(**row) for row in rest]
    except OSError as error:
        raise CleaveError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise CleaveError(f"{path} has no results of cleave-bench run") from None


def environment(timer: Any, command: str) -> dict[str, Any]:
    """The GPU, its clocks and the versions."""
    import platform
    import subprocess

    import cleave

    torch = timer.torch
    query = "driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit"
    smi = subprocess.run(
        ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True, check=False
    )
    return {
        "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "python": platform.python_version(),
        "cleave": cleave.__version__, query: smi.stdout.strip(), "command": command,
        "copy GB/s": round(timer.copy_bandwidth() / 1e9),
    }  # fmt: skip
