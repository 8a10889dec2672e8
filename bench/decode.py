"""Few rows on a GPU: the first schedules of each decode workload, checked and timed beside PyTorch in the same run.

``prepare OUT_DIR`` (no GPU needed) schedules and lowers; ``run IN_DIR OUT_DIR`` (GPU, PyTorch and Triton, no MLIR)
compiles, checks and times; ``predict RESULTS`` puts this working tree's predictions into the rows; ``report
RESULTS [ANCHORS]`` prints the tables as Markdown.
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
    prepare = commands.add_parser("prepare", help="schedule and lower")
    prepare.add_argument("out", type=Path)
    prepare.add_argument("--only", default="", help="workloads whose name/rows contains this")
    run = commands.add_parser("run", help="compile, check and time on the GPU")
    run.add_argument("cases", type=Path)
    run.add_argument("out", type=Path)
    run.add_argument("--seconds", type=float, default=200)
    predict = commands.add_parser("predict", help="predictions of this working tree's cost model into the rows")
    predict.add_argument("results", type=Path)
    report = commands.add_parser("report", help="best and first schedules, baselines, correlations")
    report.add_argument("results", type=Path)
    report.add_argument("anchors", type=Path, nargs="?")
    arguments = parser.parse_args()
    if arguments.command == "prepare":
        from decode_prepare import prepare_cases

        return prepare_cases(arguments.out, arguments.only)
    if arguments.command == "run":
        from decode_measure import run_cases

        return run_cases(arguments.cases, arguments.out, arguments.seconds)
    from decode_report import predict_rows, report_rows

    if arguments.command == "predict":
        return predict_rows(arguments.results)
    return report_rows(arguments.results, arguments.anchors)


if __name__ == "__main__":
    sys.exit(exit_code("decode.py", main))
