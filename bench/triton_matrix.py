"""Kernels of the subgraphs of ``cleave-bench``, compiled by several Tritons: what does each make of the same text?

``tools/triton-matrix`` makes the environments and calls this. The first version is what the others are compared with.
A version fails where it refuses a kernel that the first one takes, spills where the first does not, or loses the
tensor-core or copy instructions that the first one emits; any of these is exit status 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cost_cases import Subject, subjects
from lowered_programs import lower

from cleave.errors import CleaveError
from cleave.lowering.compile_ttir import Compiled, Request, compile_many
from cleave.lowering.emit import KernelModule
from cleave.lowering.lower_to_triton import LowerToTriton
from cleave.lowering.lower_to_ttgir import LowerToTtgir
from cleave.lowering.targets import TTGIR_TARGET, Target
from cleave.lowering.workers import Workers
from cleave.schedule.scheduler import ScheduleOptions, schedule
from cleave.schedule.target import TARGETS
from cleave.tools.exit_code import exit_code

ROWS = (16, 1024)
INSTRUCTIONS = ("wgmma.mma_async", "mma.sync", "cp.async.bulk.tensor", "cp.async.cg", "griddepcontrol")
GPUS = {"sm_80": "a100", "sm_86": "rtx3090", "sm_89": "rtx4090", "sm_90": "h200"}


@dataclass(frozen=True)
class Outcome:
    """One kernel by one Triton: counts of ``INSTRUCTIONS`` and resources, or why it was refused."""

    instructions: Mapping[str, int]
    registers: int = -1
    spills: int = -1
    shared: int = -1
    seconds: float = 0.0
    refusal: str = ""

    def loses(self, base: Outcome) -> str:
        """What of the base's code is missing; empty if nothing is."""
        if base.refusal:
            return ""
        if self.refusal:
            return self.refusal
        lost = [name for name, count in base.instructions.items() if count and not self.instructions[name]]
        return ", ".join([*(f"no {name}" for name in lost), *(["spills"] if self.spills > 0 == base.spills else [])])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", nargs=2, action="append", metavar=("VERSION", "PYTHON"), required=True)
    parser.add_argument("--target", action="append", choices=GPUS, default=[])
    parser.add_argument("--only", default="", help="subgraphs whose name contains this")
    arguments = parser.parse_args()
    lost = 0
    for target in arguments.target or ["sm_90", "sm_80"]:
        kernels = _corpus(GPUS[target], arguments.only)
        found = {version: _compiled(kernels, target, python) for version, python in arguments.version}
        lost += _report(target, kernels, found)
    return int(lost > 0)


def _corpus(gpu: str, only: str) -> dict[str, KernelModule]:
    """The kernels that the scheduler chooses, by name."""
    found: dict[str, KernelModule] = {}
    for subject in (subject for subject in subjects() if only in subject.name):
        for rows in ROWS:
            for kernel in _kernels(subject, rows, gpu):
                form = " warp-specialised" if TTGIR_TARGET in kernel.text else ""
                found[f"{subject.name} m={rows} {kernel.name.rpartition('__')[2]}{form}"] = kernel
    return found


def _kernels(subject: Subject, rows: int, gpu: str) -> Sequence[KernelModule]:
    options = ScheduleOptions(TARGETS[gpu], subject.at(rows))
    program = schedule(subject.graph.deduplicated(), options).program
    forms = [LowerToTriton(), LowerToTtgir()] if gpu == GPUS["sm_90"] else [LowerToTriton()]
    return [kernel for form in forms for kernel in lower(program, form)[1]]


def _compiled(kernels: Mapping[str, KernelModule], target: str, python: str) -> list[Outcome]:
    requests: list[Request] = [kernel.request(Target.parse(target)) for kernel in kernels.values()]
    with Workers(python=python) as workers:
        return [_outcome(outcome) for outcome in compile_many(requests, workers)]


def _outcome(compiled: Compiled | CleaveError) -> Outcome:
    if isinstance(compiled, CleaveError):
        return Outcome({}, refusal=str(compiled).splitlines()[0])
    counts = {name: compiled.ptx.count(name) for name in INSTRUCTIONS}
    seconds = sum(compiled.seconds.values())
    return Outcome(counts, compiled.registers, compiled.spills, compiled.shared, seconds)


def _report(target: str, kernels: Mapping[str, KernelModule], found: Mapping[str, list[Outcome]]) -> int:
    """Print the table of one target; how many compilations lost something."""
    versions = list(found)
    print(
        f"\n## {target}: registers / spilled bytes / KiB of shared memory [what the first version has, and this not]\n"
    )
    print("| kernel | " + " | ".join(versions) + " |\n|---" + "|---" * len(versions) + "|")
    lost = 0
    for index, name in enumerate(kernels):
        row = [found[version][index] for version in versions]
        losses = [outcome.loses(row[0]) for outcome in row]
        lost += sum(map(bool, losses))
        print(f"| {name} | " + " | ".join(_cell(*pair) for pair in zip(row, losses, strict=True)) + " |")
    for version in versions:
        seconds = sum(outcome.seconds for outcome in found[version])
        refused = sum(bool(outcome.refusal) for outcome in found[version])
        print(
            f"\n{version}: {len(kernels) - refused} of {len(kernels)} kernels compiled in {seconds:.0f} s of its stages"
        )
    return lost


def _cell(outcome: Outcome, loss: str) -> str:
    if outcome.refusal:
        return f"refused: {outcome.refusal}"
    text = f"{outcome.registers} / {outcome.spills} / {outcome.shared / 1024:.0f}"
    return f"{text} [{loss}]" if loss else text


if __name__ == "__main__":
    sys.exit(exit_code("triton_matrix.py", main))
