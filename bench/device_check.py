"""Are the kernels right on a real GPU?

``prepare OUT_DIR`` (no GPU needed) compiles every case; ``run IN_DIR OUT_DIR`` (GPU, PyTorch and this repository, but
neither MLIR nor Triton's compiler) runs them, compares with float64 and times the large ones. ``interpret CASES_DIR``
runs the small ones with the TTIR interpreter, which tells the compiler's mistakes from Triton's.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cleave.tools.exit_code import exit_code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    prepare = commands.add_parser("prepare", help="schedule, lower and compile the cases")
    prepare.add_argument("out", type=Path)
    prepare.add_argument("--only", default="", help="subjects whose name contains this")
    prepare.add_argument("--schedules", type=int, default=3, help="schedules for each graph and hint, best first")
    prepare.add_argument("--workers", type=int, default=2)
    prepare.add_argument("--warp-specialised", action="store_true", help="only programs that have that form, in it")
    prepare.add_argument("--seconds", type=float, default=math.inf, help="no subject is begun after these")
    run = commands.add_parser("run", help="run the cases on the GPU")
    run.add_argument("cases", type=Path)
    run.add_argument("out", type=Path)
    run.add_argument("--seconds", type=float, default=200, help="for all checks; timing comes after")
    run.add_argument("--timing-seconds", type=float, default=60)
    interpret = commands.add_parser("interpret", help="run the small cases with the TTIR interpreter")
    interpret.add_argument("cases", type=Path)
    interpret.add_argument("--only", default="", help="programs whose key contains this")
    arguments = parser.parse_args()
    if arguments.command == "prepare":
        from device_prepare import prepare_cases

        chosen = arguments.only, arguments.schedules, arguments.workers, arguments.warp_specialised, arguments.seconds
        return prepare_cases(arguments.out, *chosen)
    if arguments.command == "interpret":
        from device_interpret import interpret_cases

        return interpret_cases(arguments.cases, arguments.only)
    from device_run import run_cases

    return run_cases(arguments.cases, arguments.out, arguments.seconds, arguments.timing_seconds)


if __name__ == "__main__":
    sys.exit(exit_code("device_check.py", main))
