"""The ranked table of schedules that ``--schedule{explain}`` prints."""

from __future__ import annotations

from cleave.schedule.cost import MOST_REGISTERS
from cleave.schedule.scheduler import Candidate, Scheduled
from cleave.schedule.target import Target

_COLUMNS = (
    "",
    "tiles",
    "warps",
    "stages",
    "µs",
    "DRAM",
    "L2",
    "tensor",
    "special",
    "other",
    "latency",
    "waves",
    "shared",
    "regs",
    "",
)
ROWS = 12


def table(scheduled: Scheduled, target: Target) -> str:
    """One table for each kernel, the chosen schedule first; times in microseconds, shared memory in KiB."""
    parts: list[str] = []
    for launch, candidates in zip(scheduled.program.launches, scheduled.candidates, strict=True):
        rows = [_COLUMNS, *(_row(index, candidate, target) for index, candidate in enumerate(candidates[:ROWS]))]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        more = f"\n  … and {len(candidates) - ROWS} more" if len(candidates) > ROWS else ""
        parts.append(
            f"{launch.kernel.name}: grid {' × '.join(map(str, launch.kernel.grid))}\n" + "\n".join(lines) + more
        )
    return "\n\n".join(parts)


def _row(index: int, candidate: Candidate, target: Target) -> tuple[str, ...]:
    cost, tiling = candidate.cost, candidate.tiling
    tiles = " ".join(f"{name}={extent}" for name, extent in tiling.grid.items() if extent > 1)
    loops = " ".join(
        f"{name}={extent}{'*' if name in tiling.resident else ''}" for name, extent in tiling.reduced.items()
    )
    times = (cost.running, cost.dram, cost.l2, cost.tensor, cost.special, cost.alu, cost.latency)
    rejection = candidate.rejected or _prediction(candidate, target)
    note = "chosen" if index == 0 else f"rejected: {rejection}" if rejection else ""
    return (
        str(index),
        f"{tiles} | {loops} {tiling.form}".rstrip(),
        str(candidate.kernel.num_warps),
        str(candidate.kernel.num_stages),
        *(f"{seconds * 1e6:.1f}" for seconds in times),
        str(cost.waves),
        f"{cost.shared / 1024:.0f}",
        str(cost.registers),
        note,
    )


def _prediction(candidate: Candidate, target: Target) -> str:
    """Why the candidate is not expected to fit a thread block; empty if it is."""
    if candidate.cost.registers > MOST_REGISTERS:
        return "registers"
    return "shared memory" if candidate.cost.shared > target.shared_per_block else ""
