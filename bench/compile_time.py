"""Times the whole compilation of every subgraph: superoptimiser, scheduler, candidates compiled, PTX of the chosen.

Usage: python bench/compile_time.py [NAME...]. At one prefill and one decode shape of each subgraph, each in fresh
processes. Without names: all, and bench/results/compile-times.md is written anew. Exits 1 where the bar is not met.
Seconds are those of the processor, of all processes together, which other work on the machine hardly disturbs; on a
machine of two cores with nothing else to do the clock says about half where candidates are compiled, and the same
elsewhere.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from cleave.tools.exit_code import exit_code  # noqa: E402

PAGE = ROOT / "bench" / "results" / "compile-times.md"
BAR = 60.0  # seconds for a subgraph by the clock, with COMPILED candidates on two cores
COMPILED = 16
PREFILL, DECODE = "prefill_1024", "decode_16"
INTRODUCTION = """# What a compilation takes

Written by `bench/compile_time.py`; do not edit. Each subgraph of `cleave/bench/subgraphs.py` at one prefill and one
decode shape, each in fresh processes on {model}, {cores} cores, Python {python}, Triton {triton}, for an H200. Load of
the machine by other work when this was written: {load}.

Seconds of the processor, all processes together: the pass `cleave-superopt`; `cleave-schedule` as it is by default,
where the cost model is trusted; `cleave-schedule{{compile={compiled}}}`, where the best {compiled} candidates of each
kernel are compiled before one is chosen; the lowering and the PTX of what was chosen. `CPU` is superopt, the schedule
with compiled candidates, and PTX together; `clock` is what the clock said of the same.

The bar is {bar:g} s of the clock for each on two cores with nothing else to do.

For comparison, minutes for a subgraph on 12 cores as the paper *Cleave* reports them: its own compiler 1 to 5 without
split and 8 to 14 with; Mirage 3 to 11 and 121 to 224.

"""
HEAD = f"| subgraph | shape | superopt | schedule | compile={COMPILED} | PTX | CPU | clock |\n"
RULE = "|---|---|---|---|---|---|---|---|\n"


def shapes_of(subgraph: Any) -> list[str]:
    """One prefill and one decode shape, or what comes nearest to them."""
    found = [
        label if label in subgraph.shapes else next((each for each in subgraph.shapes if each.startswith(kind)), "")
        for label, kind in ((PREFILL, "prefill"), (DECODE, "decode"))
    ]
    return [label for label in found if label]


def measure(name: str, shape: str, compiled: int) -> dict[str, float]:
    """In this process: seconds of each step, and of the clock for all of them."""
    import cleave
    from cleave.bench.subgraphs import subgraphs
    from cleave.lowering.emit import emit
    from cleave.lowering.source import parsed
    from cleave.passes import pipelines, registry

    subgraph = subgraphs()[name]
    sizes, static = subgraph.shapes[shape], subgraph.static.split()
    source = cleave.jit(subgraph.function).specialised(**{symbol: sizes[symbol] for symbol in static})
    dynamic = ",".join(f"{symbol}={size}" for symbol, size in sorted(sizes.items()) if symbol not in static)
    ctx, module = parsed(source.source)

    def run(name: str, **options: Any) -> None:
        pipelines.run([registry.create(name, **options)], module)

    steps: dict[str, float] = {}
    clock = time.perf_counter()
    with ctx:
        steps["superopt"] = _timed(lambda: run("cleave-superopt"))
        steps["schedule"] = _timed(lambda: run("cleave-schedule", sizes=dynamic, compile=compiled))
        steps["ptx"] = _timed(lambda: (run("cleave-lower-to-triton"), emit(module, "ptx", "sm_90")))
    return {**steps, "clock": time.perf_counter() - clock}


def _timed(step: Any) -> float:
    before = _processor()
    step()
    return _processor() - before


def _processor() -> float:
    """Seconds of this process and of the compilers that it started, which may still run."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    running = [pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]
    ticks = sum(_ticks(pid) for pid in running)
    return sum(each.ru_utime + each.ru_stime for each in used) + ticks / os.sysconf("SC_CLK_TCK")


def _ticks(pid: str) -> int:
    """Of a process and the children that it waited for, in user and system mode."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, after_name[11:15]))


def in_a_process(name: str, shape: str, compiled: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", name, shape, str(compiled)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        return {"failure": result.stderr.strip().rpartition("\n")[2]}
    return json.loads(result.stdout)


def row(name: str, shape: str) -> tuple[str, str]:
    """A row of the table, and what is wrong with it."""
    plain, full = in_a_process(name, shape, 0), in_a_process(name, shape, COMPILED)
    failure = plain.get("failure") or full.get("failure")
    if failure:
        return f"| {name} | {shape} | failed |  |  |  |  |  |\n", f"{name} {shape}: {failure}"
    together = full["superopt"] + full["schedule"] + full["ptx"]
    seconds = (full["superopt"], plain["schedule"], full["schedule"], full["ptx"], together, full["clock"])
    late = f"{name} {shape}: {full['clock']:.0f} s, the bar is {BAR:g} s" if full["clock"] > BAR else ""
    return f"| {name} | {shape} | {' | '.join(f'{each:.1f}' for each in seconds)} |\n", late


def machine() -> Mapping[str, object]:
    from importlib.metadata import version

    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "a CPU")
    python = ".".join(map(str, sys.version_info[:2]))
    return {"model": model, "cores": os.cpu_count(), "python": python, "triton": version("triton")}


def main() -> int:
    arguments = sys.argv[1:]
    if arguments[:1] == ["--one"]:
        print(json.dumps(measure(arguments[1], arguments[2], int(arguments[3]))))
        return 0
    return table(arguments)


def table(arguments: list[str]) -> int:
    from cleave.bench.subgraphs import subgraphs
    from cleave.tools.arguments import chosen

    load = f"{os.getloadavg()[0]:.0f} processes"
    found = subgraphs()
    names = chosen(arguments, found, "subgraph", __doc__)
    print(HEAD + RULE, end="", flush=True)
    rows: list[tuple[str, str]] = []
    for name in names or found:
        for shape in shapes_of(found[name]):
            rows.append(row(name, shape))
            print(rows[-1][0], end="", flush=True)
    late = [text for _, text in rows if text]
    summary = "\n" + ("".join(f"- not met: {text}\n" for text in late) or "All are below the bar.\n")
    print(summary, end="")
    if not names:
        introduction = INTRODUCTION.format(compiled=COMPILED, bar=BAR, load=load, **machine())
        PAGE.write_text(introduction + HEAD + RULE + "".join(text for text, _ in rows) + summary)
    return int(bool(late))


if __name__ == "__main__":
    sys.exit(exit_code("compile_time.py", main))
