"""How far into the cost model's ranking one must measure: ``python bench/best_of.py RESULTS``.

RESULTS are rows of ``cleave-bench run`` over packages of many candidates (``cleave-bench prepare --candidates 200``),
which stand in the order of the model's ranking. Prints a table as Markdown.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cleave.bench.run import read_rows
from cleave.tools.exit_code import exit_code

FIRST = (1, 4, 8, 16, 32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    _, rows = read_rows(parser.parse_args().results)
    print(f"| subgraph | shape | programs | best µs | {' | '.join(f'best of {n} / best' for n in FIRST)} | place |")
    print(f"|---|---|---:|---:|{'---:|' * len(FIRST)}---:|")
    for row in rows:
        times = list(row.programs.values())
        best = min(times)
        shares = " | ".join(f"{min(times[:n]) / best:.3f}" for n in FIRST)
        place = times.index(best) + 1
        print(f"| {row.subgraph} | {row.shape} | {len(times)} | {best:.1f} | {shares} | {place} |")


if __name__ == "__main__":
    sys.exit(exit_code("best_of.py", main))
