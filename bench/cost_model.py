"""How good is the cost model? Predicted against measured time of many schedules of subgraphs of ``cleave-bench``.

``prepare OUT_DIR`` (no GPU needed) compiles the schedules; ``run IN_DIR OUT_DIR`` (GPU and PyTorch, but neither MLIR
nor Triton's compiler) checks and times them; ``report RESULTS`` prints rank correlations and regrets as Markdown.
``predict RESULTS`` puts what the cost model of this working tree says into the rows.
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
    prepare = commands.add_parser("prepare", help="schedule, lower and compile")
    prepare.add_argument("out", type=Path)
    prepare.add_argument("--only", default="", help="subgraphs whose name contains this")
    prepare.add_argument("--seconds", type=float, default=600, help="after which nothing more is compiled")
    prepare.add_argument("--workers", type=int, default=2)
    run = commands.add_parser("run", help="check and time on the GPU")
    run.add_argument("cases", type=Path)
    run.add_argument("out", type=Path)
    run.add_argument("--seconds", type=float, default=240)
    predict = commands.add_parser("predict", help="predictions of this working tree's cost model into the rows")
    predict.add_argument("results", type=Path)
    report = commands.add_parser("report", help="correlations, regrets, worst mispredictions")
    report.add_argument("results", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "prepare":
        from cost_prepare import prepare as prepare_cases

        return prepare_cases(arguments.out, arguments.only, arguments.seconds, arguments.workers)
    if arguments.command == "run":
        from cost_measure import run_cases

        return run_cases(arguments.cases, arguments.out, arguments.seconds)
    if arguments.command == "predict":
        from cost_report import predict_rows

        return predict_rows(arguments.results)
    from cost_report import report_rows

    return report_rows(arguments.results)


if __name__ == "__main__":
    sys.exit(exit_code("cost_model.py", main))
