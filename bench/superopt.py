"""Times the pass cleave-superopt, MLIR in and alternatives out, in a fresh process for each input.

Usage: python bench/superopt.py [NAME...]. Without names: all inputs, and docs/superopt-times.md is written anew. Exits
1 where a bar is not met. Seconds are those of the processor, which other work on the machine does not disturb (the pass
runs on one thread; NumPy starts idle ones, so where the clock says less it counts). What the pass imports counts.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "test" / "py")]

from cleave.tools.exit_code import exit_code  # noqa: E402

PAGE = ROOT / "docs" / "superopt-times.md"
BARS = {"attention": (0.2, 0.5)}  # seconds without and with split
EACH, ALL, MEGABYTES = 5.0, 20.0, 1000.0
LARGE_BAR = 120.0  # seconds for a graph beyond the bound, which is searched in parts
SAME = ("attention_n128", "attention_n131072")
INTRODUCTION = """# What the superoptimiser takes

Written by `bench/superopt.py`; do not edit. The whole pass `cleave-superopt`, MLIR in and alternatives out, each input
in a fresh process, on a machine with {cores} cores (one is used), Python {python}. Seconds are those of the processor,
or of the clock where more than one thread ran, and count what the pass imports on its way.
`whole` is without `split`. The other columns are with it: the classes and nodes of all spaces, the alternatives beside
the source, the reduction chain of the source and the shortest one found (as depth: how many reductions depend on each
other), and the peak memory of the process.

Bars: attention ≤ {bar[0]} s whole and ≤ {bar[1]} s with split, each ≤ {each:g} s, all together ≤ {all:g} s, \
≤ {megabytes:g} MB. `layers` is a decoder of three layers, over 200 ops, searched in parts: ≤ {large:g} s, and not in
the sum.

"""
HEAD = """| input | whole | with split | classes | nodes | alternatives | depth | shortest chain | MB |
|---|---|---|---|---|---|---|---|---|
"""


def source_text(graph: Any) -> str:
    from cleave.bindings import context, ir
    from cleave.passes.graph_io import from_graph

    with context(), ir.Location.unknown():
        module = ir.Module.create()
        from_graph(graph, module)
        return str(module)


def measure(text: str, split: bool) -> dict[str, Any]:
    """In this process: run the pass on one module."""
    from cleave.bindings import context, ir
    from cleave.passes.superopt import Superopt

    ctx = context()
    with ctx, ir.Location.unknown():
        module = ir.Module.parse(text)
    clock, processor = time.perf_counter(), time.process_time()
    (result,) = Superopt(split=split).run(ctx, module).values()
    seconds = min(time.process_time() - processor, time.perf_counter() - clock)
    statistics, alternatives = result.statistics, result.alternatives
    best = min(alternatives, key=lambda a: a.cost.depth)
    return {
        "seconds": seconds,
        "classes": statistics.classes,
        "nodes": statistics.nodes,
        "complete": statistics.complete,
        "alternatives": len(alternatives) - 1,
        "depth": f"{alternatives[0].cost.depth} → {best.cost.depth}",
        "chain": str(best.cost.length),
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def in_a_process(text: str, split: bool) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", str(int(split))]
    result = subprocess.run(command, input=text, capture_output=True, text=True)
    if result.returncode:
        return {"failure": result.stderr.strip().rpartition("\n")[2]}
    return json.loads(result.stdout)


def row(name: str, whole: dict[str, Any], split: dict[str, Any]) -> str:
    if "failure" in whole or "failure" in split:
        return f"| {name} | failed |  |  |  |  |  |  |  |\n"
    times = [f"{run['seconds']:.2f}" for run in (whole, split)]
    cells = [name, *times, split["classes"], split["nodes"], split["alternatives"], split["depth"], split["chain"]]
    return f"| {' | '.join(map(str, cells))} | {split['megabytes']:.0f} |\n"


def offenders(runs: dict[str, tuple[dict[str, Any], dict[str, Any]]]) -> list[str]:
    """Every bar that is not met, in words."""
    from discovery_programs import LARGE

    found: list[str] = []
    for name, pair in runs.items():
        each = LARGE_BAR if name in LARGE else EACH
        for run, bar, kind in zip(pair, BARS.get(name, (each, each)), ("whole", "with split"), strict=True):
            if "failure" in run:
                found.append(f"{name} {kind}: {run['failure']}")
                continue
            if run["seconds"] > bar:
                found.append(f"{name} {kind}: {run['seconds']:.2f} s, the bar is {bar:g} s")
            if run["megabytes"] > MEGABYTES:
                found.append(f"{name} {kind}: {run['megabytes']:.0f} MB, the bar is {MEGABYTES:g} MB")
            if not run["complete"]:
                found.append(f"{name} {kind}: the search stopped early")
    total = sum(pair[1].get("seconds", 0.0) for name, pair in runs.items() if name not in LARGE)
    if total > ALL:
        found.append(f"all with split: {total:.1f} s, the bar is {ALL:g} s")
    if all(name in runs for name in SAME):
        short, long = (runs[name][1] for name in SAME)
        if long["classes"] != short["classes"] or long["seconds"] > 1.5 * short["seconds"] + 0.1:
            found.append(f"the time depends on sizes: {short['seconds']:.2f} s and {long['seconds']:.2f} s")
    return found


def main() -> int:
    arguments = sys.argv[1:]
    if arguments[:1] == ["--one"]:
        print(json.dumps(measure(sys.stdin.read(), arguments[1] == "1")))
        return 0
    return table(arguments)


def table(arguments: list[str]) -> int:
    from discovery_programs import LARGE, PROGRAMS

    from cleave.tools.arguments import chosen

    programs = {**PROGRAMS, **LARGE}
    names = chosen(arguments, programs, "program", __doc__)
    print(HEAD, end="")
    lines: list[str] = []
    runs: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    for name in names or programs:
        text = source_text(programs[name]())
        runs[name] = (in_a_process(text, False), in_a_process(text, True))
        lines.append(row(name, *runs[name]))
        print(lines[-1], end="", flush=True)
    small = [pair for name, pair in runs.items() if name not in LARGE]
    whole, split = (sum(pair[i].get("seconds", 0.0) for pair in small) for i in (0, 1))
    found = offenders(runs)
    summary = f"\nAll together: {whole:.1f} s whole, {split:.1f} s with split.\n\n"
    summary += "".join(f"- not met: {text}\n" for text in found) or "All bars are met.\n"
    print(summary, end="")
    if not names:
        python = ".".join(map(str, sys.version_info[:2]))
        bars = {"bar": BARS["attention"], "each": EACH, "all": ALL, "megabytes": MEGABYTES, "large": LARGE_BAR}
        introduction = INTRODUCTION.format(cores=os.cpu_count(), python=python, **bars)
        PAGE.write_text(introduction + HEAD + "".join(lines) + summary)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(exit_code("superopt.py", main))
