"""Times the superoptimiser on the plain programs of the tests; prints the table of docs/search.md.

python bench/superopt.py
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "test" / "py")]

from search_programs import PROGRAMS  # noqa: E402

from cleave.search import SearchOptions, superoptimise  # noqa: E402


def seconds(name: str, split: bool) -> tuple[float, int, int]:
    start = time.process_time()
    result = superoptimise(PROGRAMS[name](), SearchOptions(split=split))
    return time.process_time() - start, result.statistics.classes, len(result.alternatives) - 1


def main() -> None:
    superoptimise(PROGRAMS["attention"]())  # imports
    print("| program | CPU s without split | with split | classes | alternatives |")
    print("|---|---|---|---|---|")
    total = 0.0
    for name in PROGRAMS:
        whole, _, _ = seconds(name, split=False)
        both, classes, alternatives = seconds(name, split=True)
        total += both
        print(f"| {name} | {whole:.2f} | {both:.2f} | {classes} | {alternatives} |")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\nAll together, with split: {total:.1f} s; memory {memory:.0f} MiB.")


if __name__ == "__main__":
    main()
