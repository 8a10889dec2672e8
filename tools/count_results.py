"""Sum the results of checks in a folder that tools/test filled; print ``N passed, M failed``; exit 1 on failure."""

from __future__ import annotations

import argparse
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cleave.tools.exit_code import exit_code


def of_check(result: Path) -> tuple[int, int]:
    """(passed, failed) of a check that counts as one test: the file says ``pass`` or ``fail``."""
    passed = result.read_text().strip() == "pass"
    return int(passed), int(not passed)


def of_suites(report: Path) -> tuple[int, int]:
    """(passed, failed) of a JUnit report; skipped tests are neither."""
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
    skipped = sum(case.find("skipped") is not None for case in cases)
    return len(cases) - failed - skipped, failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    counts = [of_check(result) for result in folder.glob("*.check")] + [
        of_suites(report) for report in folder.glob("*.xml")
    ]
    passed, failed = (sum(column) for column in zip((0, 0), *counts, strict=True))
    broken = [mark.stem for mark in folder.glob("*.exit")]
    if broken and failed == 0:  # the runner itself failed
        print(f"without a failing test, these did not succeed: {', '.join(broken)}")
        failed = len(broken)
    if passed + failed == 0:
        print("no test ran")
        failed = 1
    print(f"{passed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(exit_code("count_results.py", main))
