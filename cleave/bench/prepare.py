"""Packages for the subgraphs, made without a GPU: in several processes, those that take longest first."""

from __future__ import annotations

import itertools
import math
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cleave.bench.run import ABLATIONS, package_path
from cleave.bench.subgraphs import Subgraph
from cleave.bench.subgraphs import subgraphs as subgraphs_by_name
from cleave.errors import CleaveError

TRIES = 3
"""Pools of processes that are made: one in which a process dies makes no more packages."""
NOT_BEGUN = "not begun"


@dataclass(frozen=True)
class Job:
    """A package to be made: of ``candidates`` programs, or of the model's choice alone where it is 1.

    ``warp_specialise``: as of ``cleave.jit``; True: the first such candidate also without each part of that form.
    ``library``: as of ``cleave.jit``. It is not begun after ``deadline``, on the monotonic clock.
    """

    subgraph: str
    shape: str
    ablation: str
    folder: Path
    target: str
    candidates: int
    warp_specialise: bool | None = None
    library: bool | None = None
    deadline: float = math.inf

    def __str__(self) -> str:
        return " ".join(filter(None, (self.subgraph, self.shape, self.ablation)))

    @property
    def path(self) -> Path:
        return package_path(self.folder, self.subgraph, self.shape, self.ablation)


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
    library: bool | None = None,
    seconds: float = math.inf,
    keep: bool = False,
) -> Iterator[str]:
    """Compile and write a package for each shape that is ``wanted``; a line for each, as they are done.

    None is begun after so many ``seconds``. ``keep``: packages that are there are left as they are.
    """
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + seconds
    every = [
        Job(subgraph.name, label, ablation, folder, target, candidates, warp_specialise, library, deadline)
        for subgraph in sorted(subgraphs, key=_weight, reverse=True)
        for label in subgraph.shapes
        if wanted(label, shapes)
        for ablation in ablations
    ]
    left = [job for job in every if not (keep and job.path.exists())]
    yield from map(prepared, left) if jobs == 1 else _in_processes(left, jobs)


def wanted(label: str, shapes: str) -> bool:
    """Whether a shape's label contains one of the parts of ``shapes``, between commas, or any will do."""
    parts = [part for part in shapes.split(",") if part]
    return not parts or any(part in label for part in parts)


def _weight(subgraph: Subgraph) -> int:
    """By which those stand first that take longest to compile: the number of values of the graph."""
    from cleave.language.trace import trace

    return len(trace(subgraph.function).topological())


def _in_processes(wanted: Sequence[Job], processes: int) -> Iterator[str]:
    left = list(wanted)
    for _ in range(TRIES):
        with _pool(processes) as pool:
            futures = {pool.submit(prepared, job): job for job in left}
            try:
                for future in as_completed(futures):
                    yield future.result()
                    left.remove(futures[future])
            except BrokenProcessPool:
                continue
        return
    yield from (f"{job}: REFUSED a process died while it was made, or others were" for job in left)


def _pool(processes: int) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    processors = context.Manager().Queue()
    for processor in itertools.islice(itertools.cycle(sorted(os.sched_getaffinity(0))), processes):
        processors.put(processor)
    return ProcessPoolExecutor(processes, context, _stay_on_one, (processors,))


def _stay_on_one(processors: Any) -> None:
    """Each process and the compilers that it starts have a processor of their own. Ctrl-C ends it: the pool would take
    the exception for that of one job and begin the next."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.sched_setaffinity(0, {processors.get()})


def prepared(job: Job) -> str:
    """Make one package; what came of it in a line."""
    started = time.monotonic()
    if started > job.deadline:
        return f"{job}: {NOT_BEGUN}, no time is left"
    try:
        package = _made(job)
        package.save(job.path)
        count, launches = len(package.variants), len(package.variants[0].plan.launches)
        result = f"{count} program{'s' * (count != 1)}, the first of {launches} launch{'es' * (launches > 1)}"
    except CleaveError as error:
        result = f"REFUSED {error.message}"
    except Exception as error:  # the other packages are made; one of IR objects could not even leave this process
        result = f"REFUSED internal error: {type(error).__name__}: {error}"
    return f"{job}: {result}, {time.monotonic() - started:.1f} s"


def _made(job: Job) -> Any:
    subgraph = subgraphs_by_name()[job.subgraph]
    sizes, static = subgraph.shapes[job.shape], subgraph.static.split()
    function = _jitted(job.subgraph, job.ablation, job.warp_specialise, job.library)
    special = function.specialised(**{name: sizes[name] for name in static})
    rest = {name: size for name, size in sizes.items() if name not in static}
    if job.candidates > 1 or job.warp_specialise:
        return special.candidates(job.candidates, job.target, **rest)
    return special.package(job.target, sizes=[rest])


@cache
def _jitted(subgraph: str, ablation: str, warp_specialise: bool | None, library: bool | None) -> Any:
    import cleave

    function = subgraphs_by_name()[subgraph].function
    options = {"warp_specialise": warp_specialise, "library": library}
    return cleave.jit(function, schedule=ABLATIONS[ablation], **options)
