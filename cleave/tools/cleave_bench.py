"""``cleave-bench``: the subgraphs of the paper and others, on a GPU, beside what PyTorch offers."""

from __future__ import annotations

import argparse
import fnmatch
import math
import re
import sys
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from cleave import __version__
from cleave.bench.spread import VISIBLE, spread, visible
from cleave.errors import CleaveError
from cleave.tools.arguments import positive
from cleave.tools.exit_code import exit_code
from cleave.tuner.attempts import is_child, restarted, started, supervised

if TYPE_CHECKING:
    from cleave.bench.run import Row
    from cleave.bench.subgraphs import Subgraph

_MODULE = "cleave.tools.cleave_bench"
BASELINES = ("eager", "compile", "autotune", "flash", "cudnn")


def main(arguments: Sequence[str] | None = None) -> int:
    return exit_code("cleave-bench", lambda: _main(arguments), stopped="stopped")


def _main(arguments: Sequence[str] | None) -> int:
    parsed = _parser().parse_args(arguments)
    parsed.arguments = list(sys.argv[1:] if arguments is None else arguments)
    return _COMMANDS[parsed.command](parsed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cleave-bench", description=(__doc__ or "").replace("``", ""))
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the subgraphs and their shapes")
    prepare = commands.add_parser("prepare", help="compile packages; needs no GPU")
    run = commands.add_parser("run", help="check and time packages on the GPU; needs PyTorch, but no compiler")
    for command in (prepare, run):
        command.add_argument("folder", type=Path, help="of the packages")
        command.add_argument("--only", default="", help="subgraphs by name: matmul or mha_*,lora (default: all)")
        command.add_argument("--ablations", action="store_true", help="also without each part of the compiler")
    prepare.add_argument(
        "--shapes", default="", help="shapes by parts of their labels: prefill or 1024,4096 (default: all)"
    )
    prepare.add_argument("--target", default="sm_90", help="the GPU (default: %(default)s)")
    prepare.add_argument(
        "--candidates", type=positive, default=1, help="programs for each shape, to be measured (default: %(default)s)"
    )
    prepare.add_argument(
        "--warp-specialise", action=argparse.BooleanOptionalAction, help="default: only if there are several candidates"
    )
    prepare.add_argument(
        "--library",
        action=argparse.BooleanOptionalAction,
        help="cuBLAS for plain products (default: only if there are several candidates)",
    )
    prepare.add_argument("--jobs", type=positive, default=1, help="processes (default: %(default)s)")
    prepare.add_argument(
        "--seconds", type=_seconds, default=math.inf, help="after which no further package is begun (default: no limit)"
    )
    prepare.add_argument("--keep", action="store_true", help="leave packages that are there as they are")
    run.add_argument(
        "-o", "--output", type=Path, default=Path("results.jsonl"), help="results as JSON lines (default: %(default)s)"
    )
    run.add_argument(
        "--baselines", default="eager,compile,flash,cudnn", help=f"of {', '.join(BASELINES)} (default: %(default)s)"
    )
    run.add_argument(
        "--seconds", type=_seconds, default=600, help="after which no further shape is begun (default: %(default)s)"
    )
    run.add_argument(
        "--devices",
        type=_devices,
        default=(),
        help="GPUs, as in 0,1: shapes are measured on all of them at once (default: the first)",
    )
    run.add_argument("--resume", action="store_true", help="measure what the output has not yet")
    run.add_argument("--share", type=_share, default=(0, 1), help=argparse.SUPPRESS)
    run.add_argument("--command-line", default="", help=argparse.SUPPRESS)
    report = commands.add_parser("report", help="a table of results, and a page with --html")
    report.add_argument("results", type=Path)
    report.add_argument("--html", type=Path, help="write a page with bars and a roofline")
    compare = commands.add_parser("compare", help="two results: which shapes became faster or slower")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    return parser


def _share(text: str) -> tuple[int, int]:
    number, _, of = text.partition("/")
    return int(number), int(of)


def _seconds(text: str) -> float:
    """A time from 0 on; ``inf`` is one."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds, 0 or more")
    return seconds


def _devices(text: str) -> tuple[str, ...]:
    """Names of GPUs, as the driver takes them; none of the empty text."""
    names = tuple(text.split(",")) if text else ()
    for name in names:
        if not re.fullmatch(r"[0-9]+|(GPU|MIG)-[0-9A-Za-z/-]+", name):
            note = "give numbers, or uuids as nvidia-smi -L lists them, with commas between: 0,1"
            raise argparse.ArgumentTypeError(f"'{name}' names no GPU; {note}")
        if names.count(name) > 1:
            raise argparse.ArgumentTypeError(f"GPU {name} is named twice; give each once, as in 0,1")
    return names


def _chosen(only: str) -> list[Subgraph]:
    from cleave.bench.subgraphs import subgraphs

    known, wanted = subgraphs(), [part for part in only.split(",") if part]
    for part in wanted:
        if not fnmatch.filter(known, part):
            raise CleaveError(f"no subgraph is called '{part}'", notes=(f"subgraphs: {', '.join(known)}",))
    return [each for name, each in known.items() if not wanted or any(fnmatch.fnmatchcase(name, p) for p in wanted)]


def _list(parsed: argparse.Namespace) -> int:
    from cleave.bench.subgraphs import subgraphs

    for name, subgraph in subgraphs().items():
        print(f"{name}: {', '.join(subgraph.shapes)}")
    return 0


def _ablations(parsed: argparse.Namespace) -> list[str]:
    from cleave.bench.run import ABLATIONS

    return list(ABLATIONS) if parsed.ablations else [""]


def _prepare(parsed: argparse.Namespace) -> int:
    from cleave.bench.prepare import NOT_BEGUN, prepare, wanted
    from cleave.schedule.target import target_named

    chosen, lines = _chosen(parsed.only), list[str]()
    target_named(parsed.target)
    labels = dict.fromkeys(label for subgraph in chosen for label in subgraph.shapes)
    for part in parsed.shapes.split(","):
        if not any(wanted(label, part) for label in labels):
            raise CleaveError(f"no shape contains '{part}'", notes=(f"shapes: {', '.join(labels)}",))
    done = prepare(
        chosen,
        parsed.shapes,
        parsed.folder,
        parsed.target,
        _ablations(parsed),
        candidates=parsed.candidates,
        jobs=parsed.jobs,
        warp_specialise=parsed.warp_specialise,
        library=parsed.library,
        seconds=parsed.seconds,
        keep=parsed.keep,
    )
    without = [each.name for each in chosen if not any(wanted(label, parsed.shapes) for label in each.shapes)]
    if without:
        print(f"without a shape that contains '{parsed.shapes}': {', '.join(without)}", file=sys.stderr)
    for line in done:
        print(line, flush=True)
        lines.append(line)
    if lines and all(NOT_BEGUN in line for line in lines):
        raise CleaveError(f"no package was made in {parsed.seconds:g} s", notes=("--seconds says how long to go on",))
    return int(any("REFUSED" in line for line in lines))


def _run(parsed: argparse.Namespace) -> int:
    """In a child process: what a kernel takes along, the next one leaves out."""
    labels, chosen = parsed.baselines.split(","), _chosen(parsed.only)
    unknown = [label for label in labels if label and label not in BASELINES]
    if unknown:
        raise CleaveError(f"there is no baseline '{unknown[0]}'", notes=(f"baselines: {', '.join(BASELINES)}",))
    if not any(parsed.folder.glob("*.cleave")):
        raise CleaveError(f"{parsed.folder} has no packages", notes=("cleave-bench prepare FOLDER makes them",))
    if is_child():
        return _measure(parsed, chosen, labels)
    devices = parsed.devices
    if len(devices) > 1:
        return _run_on(devices, parsed)
    return supervised(_MODULE, parsed.arguments, {VISIBLE: visible(devices[0])} if devices else {})


def _run_on(devices: Sequence[str], parsed: argparse.Namespace) -> int:
    """A share of the shapes on each GPU, then on the first what is left of them, and whole layers."""
    deadline = time.monotonic() + parsed.seconds
    said = ["--command-line", " ".join(["cleave-bench", *parsed.arguments])]

    def command(number: int, part: Path) -> list[str]:
        share = ["--devices", "", "--resume", "--share", f"{number}/{len(devices)}", "-o", str(part)]
        return [sys.executable, "-m", _MODULE, *parsed.arguments, *share, *said]

    measured = spread(devices, parsed.output, command, resume=parsed.resume)
    rest = ["--devices", devices[0], "--seconds", f"{max(0.0, deadline - time.monotonic()):.0f}"]
    rest += ["--resume"] if measured else []
    return supervised(_MODULE, [*parsed.arguments, *rest, *said], {VISIBLE: visible(devices[0])})


def _measure(parsed: argparse.Namespace, chosen: Sequence[Subgraph], labels: Sequence[str]) -> int:
    from cleave.bench.report import table
    from cleave.bench.run import environment, measure, read_rows, write_rows
    from cleave.bench.whole_layer import measured_layers
    from cleave.tuner.timing import Timer

    where = environment(Timer(), parsed.command_line or " ".join(["cleave-bench", *parsed.arguments]))
    goes_on = (restarted() or parsed.resume) and parsed.output.exists()
    rows: list[Row] = read_rows(parsed.output)[1] if goes_on else []
    deadline, done, part = started() + parsed.seconds, {row.key for row in rows}, parsed.share[1] > 1
    shapes = measure(chosen, parsed.folder, labels, deadline, _ablations(parsed), done, parsed.share)
    layers = () if part else measured_layers(rows, parsed.folder, labels, done)
    for row in chain(shapes, layers):
        rows.append(row)
        write_rows(parsed.output, rows, where)
    if not part:
        print(table(rows, where["copy GB/s"] * 1e9))
    return int(any(row.wrong for row in rows))


def _report(parsed: argparse.Namespace) -> int:
    from cleave.bench.report import page, table
    from cleave.bench.run import read_rows

    where, rows = read_rows(parsed.results)
    print("\n".join(f"- {name}: {value}" for name, value in where.items()) + "\n")
    print(table(rows, float(where.get("copy GB/s", 4000)) * 1e9))
    if parsed.html:
        parsed.html.write_text(page(rows, where))
    return 0


def _compare(parsed: argparse.Namespace) -> int:
    from cleave.bench.run import read_rows

    before, after = (
        {(row.subgraph, row.shape, row.ablation): row.microseconds.get("cleave") for row in read_rows(path)[1]}
        for path in (parsed.before, parsed.after)
    )
    for key in before.keys() & after.keys():
        one, other = before[key], after[key]
        if one and other:
            print(f"{' '.join(filter(None, key))}: {one:.1f} → {other:.1f} µs ({one / other:.2f} ×)")
    return 0


_COMMANDS = {"list": _list, "prepare": _prepare, "run": _run, "compare": _compare, "report": _report}


if __name__ == "__main__":
    sys.exit(main())
