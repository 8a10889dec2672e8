"""The packages of subgraphs on a GPU: numbers first, then times, baselines beside."""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from cleave.bench.subgraphs import Sizes, Subgraph
from cleave.errors import CleaveError

TOLERANCE = 4e-3
"""Of ‖out − ref‖ / ‖ref‖ for f16 results; twice the error of PyTorch's eager program is allowed beyond it."""
LONG, NEAR, PROGRAMS, BASELINES = 50.0, 1.05, 3, 2
"""Microseconds from which times are taken by turns; of so many programs and baselines at most, which took at most so
many times as long as the fastest."""
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


@dataclass(frozen=True)
class Row:
    """One function at one shape.

    ``microseconds`` by label: "cleave", the fastest of our programs, "model", the one that the cost model prefers, and
    the baselines; ``programs`` has all that are right of ours. ``error`` is of our numbers, ``program`` says which
    program was the fastest, ``library`` which of its launches are cuBLAS's.
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
    from cleave.bench.baselines import EAGER, reference
    from cleave.runtime.package import Package

    torch, others = timer.torch, dict[str, float]()
    for ablation, path in packages.items():
        package = Package.load(path)
        tensors = inputs(torch, package, sizes)
        wanted = reference(subgraph.torch, tensors, dict(subgraph.settings))
        eager = EAGER[subgraph.torch](*tensors, **subgraph.settings)
        allowed = max(TOLERANCE, 2 * error_of(listed(eager), wanted))
        ours = _ours(package, tensors, wanted, allowed, timer)
        if not others:
            found = list(_baseline_times(subgraph, sizes, tensors, wanted, allowed, baselines, timer))
            others = {label: us for label, us, _ in found}
            ours, others = _in_turn(ours, others, {label: call for label, _, call in found}, timer)
        moved = sum(t.numel() * t.element_size() for t in (*tensors, *listed(eager)))
        flops, times = subgraph.flops(sizes), {**ours.microseconds, **others}
        yield Row(
            subgraph.name, label, ablation, dict(sizes), flops, moved, ours.error, ours.wrong, times, ours.program,
            ours.programs, ours.libraries.get(ours.program, ""),
        )  # fmt: skip


def _in_turn(
    ours: _Ours, others: Mapping[str, float], baselines: Mapping[str, Call], timer: Any
) -> tuple[_Ours, dict[str, float]]:
    """Long times once more, of the fastest programs and baselines by turns: what came first found a cooler GPU."""
    if not ours.program or ours.microseconds["cleave"] < LONG:
        return ours, dict(others)
    programs = [label for label in _nearest(ours.programs, PROGRAMS) if label in ours.calls]
    rivals = _nearest(others, BASELINES)
    calls = [*(ours.calls[label] for label in programs), *(baselines[label] for label in rivals)]
    times = timer.in_turn(calls)
    again = {**ours.programs, **dict(zip(programs, times, strict=False))}
    best = min(programs, key=lambda label: again[label])
    first = {"model": again[next(iter(again))]} if "model" in ours.microseconds else {}
    microseconds = {**ours.microseconds, **first, "cleave": again[best]}
    found = replace(ours, microseconds=microseconds, program=best, programs=again)
    return found, {**others, **dict(zip(rivals, times[len(programs) :], strict=True))}


def _nearest(times: Mapping[str, float], count: int) -> list[str]:
    """So many of the least, if they are near the least of all."""
    fastest = sorted(times, key=lambda label: times[label])[:count]
    return [label for label in fastest if times[label] <= NEAR * times[fastest[0]]]


@dataclass(frozen=True)
class _Ours:
    """``calls``, and launches that a ``libraries`` makes, by program."""

    error: float
    wrong: str
    microseconds: Mapping[str, float]
    program: str
    programs: Mapping[str, float]
    libraries: Mapping[str, str] = field(default_factory=dict[str, str])
    calls: Mapping[str, Call] = field(default_factory=dict[str, Call])


def _ours(package: Any, tensors: Sequence[Any], wanted: Sequence[Any], allowed: float, timer: Any) -> _Ours:
    """All programs of the package, the fastest and the first one; what is wrong with any of them."""
    from cleave.tuner.tune import NO_LIBRARY, fastest, measure

    errors: list[float] = []

    def check(results: Sequence[Any]) -> str:
        errors.append(error_of(results, wanted))
        return "" if errors[-1] <= allowed else f"error {errors[-1]:.1e}, {allowed:.1e} is allowed"

    calls: dict[str, Call] = {}

    def timed(variant: Any) -> Callable[[Call], float]:
        def microseconds(call: Call) -> float:
            calls[variant.label] = call
            return timer.microseconds(call)

        return microseconds

    found = [(v, measure(package, v, tensors, check, timed(v))) for v in package.variants]
    found = [(variant, result) for variant, result in found if not result.refused.startswith(NO_LIBRARY)]
    wrong = "; ".join(f"{variant.label}: {result.refused}" for variant, result in found if result.refused)
    best, worst = fastest(found), max(errors, default=float("nan"))
    if best is None:
        return _Ours(worst, wrong, {}, "", {})
    times = {variant.label: result.microseconds for variant, result in found if result.microseconds is not None}
    first = times.get(package.variants[0].label)
    model = {"model": first} if first is not None and len(found) > 1 else {}
    libraries = {v.label: ", ".join(launch.kernel for launch in v.plan.launches if launch.product) for v, _ in found}
    return _Ours(worst, wrong, {"cleave": times[best.label], **model}, best.label, times, libraries, calls)


def _baseline_times(
    subgraph: Subgraph,
    sizes: Sizes,
    tensors: Sequence[Any],
    wanted: Sequence[Any],
    allowed: float,
    labels: Sequence[str],
    timer: Any,
) -> Iterator[tuple[str, float, Call]]:
    from cleave.bench.baselines import baselines

    grouped = sizes.get("g", 1) > 1
    for label, function in baselines(subgraph.torch, dict(subgraph.settings), labels, grouped=grouped):
        try:
            if error_of(listed(function(*tensors)), wanted) <= 2 * allowed:
                call = partial(function, *tensors)
                yield label, timer.microseconds(call), call
        except (RuntimeError, ValueError) as error:
            print(f"{subgraph.name}: baseline {label}: {str(error).splitlines()[0]}", flush=True)


def inputs(torch: Any, package: Any, sizes: Sizes) -> list[Any]:
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
