"""Schedules of large contractions on a GPU: which tiles, stages, warps, loads and block orders are best?

``prepare OUT_DIR`` (no GPU needed) compiles the schedules of ``contraction_cases.py``; ``run IN_DIR OUT_DIR`` (GPU and
PyTorch, but neither MLIR nor Triton's compiler) checks each against PyTorch in float64, then times it with a cold L2
cache, in turn with what PyTorch takes for the same.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cleave.tools.exit_code import exit_code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    preparation = commands.add_parser("prepare", help="lower and compile")
    preparation.add_argument("out", type=Path)
    preparation.add_argument("--workers", type=int, default=2)
    running = commands.add_parser("run", help="check and time on the GPU")
    running.add_argument("cases", type=Path)
    running.add_argument("out", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "prepare":
        from contraction_prepare import prepare

        return prepare(arguments.out, arguments.workers)
    from contraction_measure import run

    return run(arguments.cases, arguments.out)


if __name__ == "__main__":
    sys.exit(exit_code("contractions.py", main))
