"""What each part of the warp-specialised form is worth (docs/hopper.md): programs with and without it, by turns.

    cleave-bench prepare FOLDER --warp-specialise --candidates 3 --only NAMES --shapes SHAPES
    python bench/forms.py FOLDER -o forms.jsonl        # on a GPU, with PyTorch

The first warp-specialised program of each package is measured in its usual form, in those in which one switch of
``cleave/lowering/form.py`` is the other way, in the one that is measured beside the usual one, and as TTIR where the
package has that: numbers first, against f64, then times of all by turns, with a cold L2 cache.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from cleave.bench.numbers import numbers
from cleave.bench.run import by_turns, environment, package_path, programs
from cleave.bench.subgraphs import Subgraph, subgraphs
from cleave.lowering.form import MARK
from cleave.runtime.package import Package
from cleave.tools.exit_code import exit_code
from cleave.tuner.timing import Timer


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
            if package and forms([variant.label for variant in package.variants]):
                found = _measured(subgraph, package, sizes, timer)
                rows.append({"subgraph": subgraph.name, "shape": shape, **found})
                _print(rows[-1])
    lines = [{"environment": environment(timer, f"bench/forms.py FOLDER -o {parsed.output.name}")}, *rows]
    parsed.output.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return 0


def forms(labels: Sequence[str]) -> dict[str, str]:
    """What is different in programs that are the first warp-specialised one, if there is one; "" is the usual form."""
    usual = next((label for label in labels if MARK in label), "")
    if not usual:
        return {}
    known, others = {usual: "", usual.replace(MARK, ""): "as TTIR"}, f"{usual}, "
    same = [label for label in labels if label in known or label.startswith(others)]
    return {label: known.get(label, label.removeprefix(others)) for label in same}


def _measured(subgraph: Subgraph, package: Package, sizes: Mapping[str, int], timer: Any) -> dict[str, Any]:
    names = forms([variant.label for variant in package.variants])
    chosen = replace(package, variants=tuple(each for each in package.variants if each.label in names))
    found = programs(chosen, numbers(timer.torch, subgraph, package, sizes), timer)
    times = {names[label]: us for label, us in by_turns(found.timed, timer).items()}
    wrong = {names[label]: problem for label, problem in found.wrong.items()}
    return {"program": next(iter(names)).replace(MARK, ""), "microseconds": times, "wrong": wrong}


def _print(row: Mapping[str, Any]) -> None:
    times = row["microseconds"]
    usual = times.get("", float("nan"))
    print(f"{row['subgraph']} {row['shape']}: {row['program']}")
    for form, us in times.items():
        print(f"  {us:8.1f} µs  {us / usual:.3f}  {form or 'usual'}")
    for form, problem in row["wrong"].items():
        print(f"  {form or 'usual'}: {problem}", flush=True)


if __name__ == "__main__":
    sys.exit(exit_code("forms.py", main))
