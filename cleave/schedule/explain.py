"""What ``--schedule{explain}`` prints: the alternatives by predicted time, and the ranked table of schedules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cleave.schedule.block_cost import MOST_REGISTERS
from cleave.schedule.product import products
from cleave.schedule.scheduler import DEFAULT_SIZE, Candidate, Scheduled
from cleave.schedule.target import Target

_COLUMNS = (
    "",
    "tiles",
    "loads by",
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
LEGEND = f"""
tiles: elements of a thread block along dims of results | of one step of its loops (*: all at once) and the form
µs: predicted, of this launch; DRAM to latency: what each would take alone (tensor cores, special functions, other
    arithmetic; latency: the blocks of one multiprocessor after one another)
waves: rounds of thread blocks; shared: KiB of a block; regs: of a thread (of a consumer where warp-specialised)
sizes: dynamic ones that are not given, as in sizes=m=16,n=4096, are taken to be {DEFAULT_SIZE}
"""
"""What the columns of the tables are."""
ROWS = 12
"""Rows of each table beside those of candidates that the compiler rejected."""


@dataclass(frozen=True)
class Outlook:
    """What an alternative is predicted to take; ``refused``: why it cannot be scheduled, and takes forever.

    ``careful``: predicted on all tilings, not on few.
    """

    name: str
    seconds: float = math.inf
    careful: bool = False
    refused: str = ""


def alternatives(outlooks: Sequence[Outlook], chosen: str) -> str:
    """A line for each alternative, the fastest one first; empty where there is only one."""
    if len(outlooks) < 2:
        return ""
    ordered = sorted(outlooks, key=lambda outlook: (outlook.name != chosen, outlook.seconds))
    width = max(len(outlook.name) for outlook in outlooks)
    return "alternatives, predicted µs of all their launches:\n" + "".join(
        f"  {outlook.name.ljust(width)}  {_outlook(outlook)}{'  chosen' * (outlook.name == chosen)}\n"
        for outlook in ordered
    )


def _outlook(outlook: Outlook) -> str:
    if outlook.refused:
        return f"rejected: {outlook.refused}"
    return f"{outlook.seconds * 1e6:.1f}{'' if outlook.careful else ' (from few tilings)'}"


def table(scheduled: Scheduled, target: Target) -> str:
    """One table for each kernel, the chosen schedule first; times in microseconds, shared memory in KiB."""
    parts: list[str] = []
    launches = zip(scheduled.program.launches, scheduled.candidates, products(scheduled.program), strict=True)
    for launch, candidates, is_product in launches:
        rows, more = _rows(candidates, target)
        widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        title = f"{launch.kernel.name}: grid {' × '.join(map(str, launch.kernel.grid))}"
        lines = [title + ", a plain product" * is_product, *lines, *([f"  … and {more} more"] if more else [])]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _rows(candidates: Sequence[Candidate], target: Target) -> tuple[list[tuple[str, ...]], int]:
    """The first that differ in what is shown, and those that the compiler rejected; how many more there are."""
    found = {row[1:-1]: row for row in reversed([_row(*each, target) for each in enumerate(candidates)])}
    different = sorted(found.values(), key=lambda row: int(row[0]))
    shown = [row for place, row in enumerate(different) if place < ROWS or candidates[int(row[0])].rejected]
    return [_COLUMNS, *shown], len(different) - len(shown)


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
        " ".join(filter(None, (tiles, "|", loops, tiling.form))),
        _loads(candidate),
        str(candidate.num_warps),
        str(candidate.num_stages),
        *(f"{seconds * 1e6:.1f}" for seconds in times),
        str(cost.waves),
        f"{cost.shared / 1024:.0f}",
        str(cost.registers),
        note,
    )


def _loads(candidate: Candidate) -> str:
    """How matrices are loaded, where that is possible; in the warp-specialised form by descriptors, too."""
    if candidate.warp_specialised:
        return "warp-specialised"
    return "descriptors" if candidate.descriptors else "pointers"


def _prediction(candidate: Candidate, target: Target) -> str:
    """Why the candidate is not expected to fit a thread block; empty if it is."""
    if candidate.cost.registers > MOST_REGISTERS:
        return "registers"
    return "shared memory" if candidate.cost.shared > target.shared_per_block else ""
