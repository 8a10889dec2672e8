"""What each part of the warp-specialised form is worth (docs/hopper.md): programs with and without it, by turns.

    cleave-bench prepare FOLDER --warp-specialise --candidates 3 --only NAMES --shapes SHAPES
    python bench/forms.py FOLDER -o forms.jsonl        # on a GPU, with PyTorch

The first warp-specialised program of each package is measured in its usual form and in those in which one switch of
``cleave/lowering/form.py`` is the other way, and as TTIR where the package has that: numbers first, against f64, then
times of all by turns, with a cold L2 cache.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from cleave.bench.baselines import EAGER, reference
from cleave.bench.run import TOLERANCE, environment, error_of, inputs, listed, package_path
from cleave.bench.subgraphs import Subgraph, subgraphs
from cleave.runtime.package import Package, Variant
from cleave.tuner.timing import Timer
from cleave.tuner.tune import measure

MARK = ", warp-specialised"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("forms.jsonl"))
    parsed = parser.parse_args()
    timer, rows = Timer(), list[Mapping[str, Any]]()
    for subgraph in subgraphs().values():
        for shape, sizes in subgraph.shapes.items():
            path = package_path(parsed.folder, subgraph.name, shape, "")
            package = Package.load(path) if path.exists() else None
            if package and forms(package.variants):
                found = _measured(subgraph, package, sizes, timer)
                rows.append({"subgraph": subgraph.name, "shape": shape, **found})
                _print(rows[-1])
    lines = [{"environment": environment(timer, f"bench/forms.py FOLDER -o {parsed.output.name}")}, *rows]
    parsed.output.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return 0


def forms(variants: Sequence[Variant]) -> dict[str, Variant]:
    """Of the first warp-specialised program, if there is one, by what is different: "" is the usual form."""
    parts = [(variant.label.partition(MARK), variant) for variant in variants]
    program = next((label for (label, mark, _), _ in parts if mark), None)
    same = [(mark, form, variant) for (label, mark, form), variant in parts if label == program]
    return {form.removeprefix(", ") if mark else "as TTIR": variant for mark, form, variant in same}


def _measured(subgraph: Subgraph, package: Package, sizes: Mapping[str, int], timer: Any) -> dict[str, Any]:
    variants = forms(package.variants)
    tensors = inputs(timer.torch, package, sizes)
    wanted = reference(subgraph.torch, tensors, dict(subgraph.settings))
    eager = EAGER[subgraph.torch](*tensors, **subgraph.settings)
    allowed = max(TOLERANCE, 2 * error_of(listed(eager), wanted))
    calls, wrong = dict[str, Any](), dict[str, str]()
    for form, variant in variants.items():
        result = measure(package, variant, tensors, partial(_problem, wanted, allowed), partial(_kept, calls, form))
        if result.refused:
            wrong[form] = result.refused
    times = timer.in_turn(list(calls.values()))
    program = next(iter(variants.values())).label.partition(MARK)[0]
    return {"program": program, "microseconds": dict(zip(calls, times, strict=True)), "wrong": wrong}


def _problem(wanted: Sequence[Any], allowed: float, results: Sequence[Any]) -> str:
    error = error_of(results, wanted)
    return "" if error <= allowed else f"error {error:.1e}, {allowed:.1e} is allowed"


def _kept(calls: dict[str, Any], form: str, call: Any) -> float:
    """In place of a time: what is right is timed with all others."""
    calls[form] = call
    return 0.0


def _print(row: Mapping[str, Any]) -> None:
    times = row["microseconds"]
    usual = times.get("", float("nan"))
    print(f"{row['subgraph']} {row['shape']}: {row['program']}")
    for form, us in times.items():
        print(f"  {us:8.1f} µs  {us / usual:.3f}  {form or 'usual'}")
    for form, problem in row["wrong"].items():
        print(f"  {form or 'usual'}: {problem}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
