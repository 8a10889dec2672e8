"""Run the programs of packages once each, for a profiler's hardware counters, and say in which order their kernels run.

    cleave-bench prepare FOLDER --warp-specialise --candidates 3 --only NAME --shapes SHAPE
    ncu --clock-control none -k regex:function__k --csv --metrics METRICS python bench/counters.py FOLDER

Cycles say more of a kernel than its time where the GPU is at its limit of power: then its clock is lower for programs
that keep the tensor cores busier.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cleave.bench.numbers import inputs
from cleave.bench.run import package_path
from cleave.bench.subgraphs import subgraphs
from cleave.runtime.package import Package
from cleave.tools.exit_code import exit_code
from cleave.tuner.timing import torch_on_gpu


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="programs whose label contains this")
    parsed = parser.parse_args()
    torch = torch_on_gpu()
    for subgraph in subgraphs().values():
        for shape, sizes in subgraph.shapes.items():
            path = package_path(parsed.folder, subgraph.name, shape, "")
            if path.exists():
                package = Package.load(path)
                tensors = inputs(torch, package, sizes)
                for variant in package.variants:
                    if parsed.only in variant.label:
                        replace(package, variants=(variant,))(*tensors)
                        torch.cuda.synchronize()
                        kernels = ", ".join(launch.kernel for launch in variant.plan.launches)
                        print(f"{subgraph.name} {shape}: {kernels}: {variant.label}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(exit_code("counters.py", main))
