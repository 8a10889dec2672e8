"""The packages of subgraphs on a GPU: numbers first, then times, baselines beside."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from cleave.bench.numbers import Numbers, listed, numbers
from cleave.bench.subgraphs import Sizes, Subgraph
from cleave.errors import CleaveError

LONG = 50.0
"""Microseconds from which the times of a shape are taken by turns."""
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

Call = Callable[[], Any]
Timed = tuple[Call, float]
"""A call, and what it takes, in microseconds."""


@dataclass(frozen=True)
class Row:
    """One function at one shape.

    ``microseconds`` by label: "cleave", the fastest of our programs, "model", the one that the cost model prefers, and
    the baselines; ``programs`` has all that are right of ours; all are measured in one way. ``error`` is of our
    numbers, ``program`` says which program was the fastest, ``library`` which of its launches are cuBLAS's.
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
    library: str = ""

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


def measure(
    subgraphs: Sequence[Subgraph],
    folder: Path,
    baselines: Sequence[str],
    deadline: float,
    ablations: Sequence[str],
    done: Container[tuple[str, str, str]] = (),
    share: tuple[int, int] = (0, 1),
) -> Iterator[Row]:
    """A row for each package of the folder whose key is not ``done``; a wrong result is not timed.

    Nothing is begun after the deadline, on the monotonic clock. ``share``: (0, 3) are the first, the fourth and so on
    of all shapes that there are packages of.
    """
    from cleave.tuner.timing import Timer

    timer = Timer()
    shapes = [(subgraph, label) for subgraph in subgraphs for label in subgraph.shapes]
    packages = [_packages(folder, subgraph.name, label, ablations) for subgraph, label in shapes]
    there = [(shape, found) for shape, found in zip(shapes, packages, strict=True) if found]
    for (subgraph, label), paths in there[share[0] :: share[1]]:
        left = {ablation: path for ablation, path in paths.items() if (subgraph.name, label, ablation) not in done}
        if left and time.monotonic() < deadline:
            yield from _measured(subgraph, label, subgraph.shapes[label], left, baselines, timer)


def _packages(folder: Path, subgraph: str, label: str, ablations: Sequence[str]) -> dict[str, Path]:
    """Those that are there, by ablation."""
    paths = {ablation: package_path(folder, subgraph, label, ablation) for ablation in ablations}
    return {ablation: path for ablation, path in paths.items() if path.exists()}


def _measured(
    subgraph: Subgraph, label: str, sizes: Sizes, packages: Mapping[str, Path], baselines: Sequence[str], timer: Any
) -> Iterator[Row]:
    """Long times are taken once more, by turns, in all rows of the shape: what came first found a cooler GPU."""
    from cleave.runtime.package import Package

    loaded = {ablation: Package.load(path) for ablation, path in packages.items()}
    known = numbers(timer.torch, subgraph, next(iter(loaded.values())), sizes)
    others, long = dict[str, Timed](), False
    for number, (ablation, package) in enumerate(loaded.items()):
        ours = programs(package, known, timer)
        if number == 0:
            others = dict(_baselines(subgraph, sizes, known, baselines, timer))
            long = min((us for _, us in ours.timed.values()), default=0.0) >= LONG
        timed = {**ours.timed, **others}
        times = by_turns(timed, timer) if long else {each: us for each, (_, us) in timed.items()}
        yield _row(subgraph, label, ablation, known, ours, times)


def _row(
    subgraph: Subgraph, label: str, ablation: str, known: Numbers, ours: Programs, times: Mapping[str, float]
) -> Row:
    """``times`` are of our programs and the baselines."""
    own = {each: times[each] for each in ours.timed}
    best = min(own, key=lambda each: own[each], default="")
    shown = {name: own[each] for name, each in zip(OURS, (best, ours.first), strict=True) if each in own}
    shown |= {each: us for each, us in times.items() if each not in own}
    wrong = "; ".join(f"{each}: {problem}" for each, problem in ours.wrong.items())
    sizes = dict(subgraph.shapes[label])
    return Row(
        subgraph.name, label, ablation, sizes, subgraph.flops(sizes), known.traffic, ours.error, wrong, shown, best,
        own, ours.libraries.get(best, ""),
    )  # fmt: skip


def by_turns(timed: Mapping[str, Timed], timer: Any) -> dict[str, float]:
    """The microseconds of all of them once more."""
    return dict(zip(timed, timer.in_turn([call for call, _ in timed.values()]), strict=True))


@dataclass(frozen=True)
class Programs:
    """Of a package, by label: ``timed`` has those that are right, ``wrong`` what is wrong with others.

    ``error`` is the largest of any. ``first``: the one that the cost model prefers, where there are several.
    ``libraries``: the launches that a library makes.
    """

    error: float
    wrong: Mapping[str, str]
    timed: Mapping[str, Timed]
    first: str
    libraries: Mapping[str, str]


def programs(package: Any, known: Numbers, timer: Any) -> Programs:
    """Those of the package that this machine can run, numbers first, then each one's time."""
    from cleave.tuner.tune import NO_LIBRARY, measure

    errors, timed, wrong = list[float](), dict[str, Timed](), dict[str, str]()

    def check(results: Sequence[Any]) -> str:
        errors.append(known.error(results))
        return known.problem(errors[-1])

    def microseconds(label: str, call: Call) -> float:
        timed[label] = (call, timer.microseconds(call))
        return timed[label][1]

    for variant in package.variants:
        result = measure(package, variant, known.tensors, check, partial(microseconds, variant.label))
        if result.refused and not result.refused.startswith(NO_LIBRARY):
            wrong[variant.label] = result.refused
    first = package.variants[0].label if len(timed) + len(wrong) > 1 else ""
    libraries = {
        each.label: ", ".join(launch.kernel for launch in each.plan.launches if launch.product)
        for each in package.variants
    }
    return Programs(max(errors, default=float("nan")), wrong, timed, first, libraries)


def _baselines(
    subgraph: Subgraph, sizes: Sizes, known: Numbers, labels: Sequence[str], timer: Any
) -> Iterator[tuple[str, Timed]]:
    """Those that are about right."""
    from cleave.bench.baselines import baselines

    grouped = sizes.get("g", 1) > 1
    for label, function in baselines(subgraph.torch, dict(subgraph.settings), labels, grouped=grouped):
        call = partial(function, *known.tensors)
        try:
            if known.error(listed(call())) <= 2 * known.allowed:
                yield label, (call, timer.microseconds(call))
        except (RuntimeError, ValueError) as error:
            print(f"{subgraph.name}: baseline {label}: {str(error).splitlines()[0]}", flush=True)


def write_rows(path: Path, rows: Sequence[Row], environment: Mapping[str, Any]) -> None:
    """JSON lines, the first of which says where they were measured; the file is whole at any moment."""
    lines = [json.dumps({"environment": dict(environment)}), *(json.dumps(asdict(row)) for row in rows)]
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text("\n".join(lines) + "\n")
    partial.replace(path)


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
