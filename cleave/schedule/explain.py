"""The ranked table of schedules that ``--schedule{explain}`` prints."""

from __future__ import annotations

from cleave.schedule.scheduler import Candidate, Scheduled

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


def table(scheduled: Scheduled) -> str:
    """One table for each kernel, the chosen schedule first; times in microseconds, shared memory in KiB."""
    parts: list[str] = []
    for launch, candidates in zip(scheduled.program.launches, scheduled.candidates, strict=True):
        rows = [_COLUMNS, *(_row(index, candidate) for index, candidate in enumerate(candidates[:ROWS]))]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        more = f"\n  … and {len(candidates) - ROWS} more" if len(candidates) > ROWS else ""
        parts.append(
            f"{launch.kernel.name}: grid {' × '.join(map(str, launch.kernel.grid))}\n" + "\n".join(lines) + more
        )
    return "\n\n".join(parts)


def _row(index: int, candidate: Candidate) -> tuple[str, ...]:
    cost, tiling = candidate.cost, candidate.tiling
    tiles = " ".join(f"{name}={extent}" for name, extent in tiling.grid.items() if extent > 1)
    loops = " ".join(
        f"{name}={extent}{'*' if name in tiling.resident else ''}" for name, extent in tiling.reduced.items()
    )
    times = (cost.running, cost.dram, cost.l2, cost.tensor, cost.special, cost.alu, cost.latency)
    note = "chosen" if index == 0 else _rejection(candidate)
    return (
        str(index),
        f"{tiles} | {loops}",
        str(candidate.kernel.num_warps),
        str(candidate.kernel.num_stages),
        *(f"{seconds * 1e6:.1f}" for seconds in times),
        str(cost.waves),
        f"{cost.shared / 1024:.0f}",
        str(cost.registers),
        note,
    )


def _rejection(candidate: Candidate) -> str:
    if candidate.cost.registers > 255:
        return "rejected: registers"
    return "rejected: shared memory" if candidate.cost.waves and candidate.cost.shared > 227 * 1024 else ""
