"""What ``cleave-run`` prints: a page for people, or one JSON object."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cleave.reference.accuracy import Accuracy
from cleave.runtime.launch_plan import TensorSpec

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class LaunchReport:
    """A launch and its grid at this call, as the plan says it and in numbers."""

    kernel: str
    grid: tuple[str, ...]
    programs: tuple[int, ...]
    num_warps: int


@dataclass(frozen=True)
class CheckedOutput:
    """How near a result is to the source over the reals."""

    name: str
    accuracy: Accuracy

    @property
    def warning(self) -> str | None:
        """Where that says little, why, and what to do."""
        if not self.accuracy.says_little:
            return None
        why = f"as written the program is off by {self.accuracy.unoptimised:.2g} of its result, so zeros would pass"
        return f"{why}; give inputs of its use (--inputs), or compute in a wider type"


@dataclass(frozen=True)
class Report:
    """All there is to say of a run; ``asked``: the user named the program; ``chosen``: sizes that nobody gave."""

    file: str
    function: str
    stage: str
    superopt: bool
    alternatives: int
    program: int | None
    asked: bool
    sizes: dict[str, int]
    chosen: tuple[str, ...]
    inputs: str
    arguments: list[tuple[TensorSpec, Array]]
    results: list[tuple[TensorSpec, Array]]
    launches: list[LaunchReport]
    checked: list[CheckedOutput]
    seconds: dict[str, float]

    @property
    def passed(self) -> bool:
        return all(output.accuracy.holds for output in self.checked)

    def text(self) -> str:
        """For people."""
        lines = [f"{self.file}: @{self.function}", *self._sizes(), *self._arrays("in ", self.arguments, self.inputs)]
        lines += self._program()
        lines += self._arrays("out", self.results, "")
        lines.append("time     " + ", ".join(f"{what} {seconds:.2f} s" for what, seconds in self.seconds.items()))
        lines += self._check()
        return "\n".join(lines) + "\n"

    def _sizes(self) -> list[str]:
        parts = [f"{name}={value}{' (chosen)' if name in self.chosen else ''}" for name, value in self.sizes.items()]
        return [f"sizes    {', '.join(parts)}"] if parts else []

    @staticmethod
    def _arrays(head: str, pairs: list[tuple[TensorSpec, Array]], note: str) -> list[str]:
        lines: list[str] = []
        for spec, array in pairs:
            dims = ", ".join(f"{dim.partition('=')[0]}={n}" for dim, n in zip(spec.dims, array.shape, strict=True))
            lines.append(f"{head}      {spec.name}: {spec.dtype}[{dims}]" + (f"  {note}" if note else ""))
            note = ""
        return lines

    def _program(self) -> list[str]:
        if self.stage == "reference":
            return ["program  the source, by the reference executor in its declared types"]
        which = f"alternative {self.program}" if self.program else "the source"
        how = ", as asked," if self.asked else ", best" if self.alternatives and not self.program else ""
        among = f"{which}{how} of {_count(self.alternatives + 1, 'program')}"
        how = f"superoptimised, {among}" if self.superopt else "as written"
        how = "as it was scheduled" if self.program is None else how
        lines = [f"program  {how}; {_count(len(self.launches), 'kernel')} (TTIR interpreter)"]
        for launch in self.launches:
            grid = " x ".join(map(str, launch.programs))
            lines.append(
                f"kernel   {launch.kernel}: grid {grid} = ({', '.join(launch.grid)}), {launch.num_warps} warps"
            )
        return lines

    def _check(self) -> list[str]:
        if not self.checked:
            return []
        lines = ["check    ‖out−ref‖/‖ref‖     compiled  as written    allowed"]
        for output in self.checked:
            found = output.accuracy
            numbers = "  ".join(f"{x:>10.3g}" for x in (found.optimised, found.unoptimised, found.limit))
            lines.append(f"         {output.name:<15}  {numbers}  {found.problem or 'ok'}")
        lines += [f"warning  {output.name}: {output.warning}" for output in self.checked if output.warning]
        return lines

    def json(self) -> str:
        """For programs; what is no finite number is null."""
        data = {
            "file": self.file,
            "function": self.function,
            "stage": self.stage,
            "superopt": self.superopt,
            "alternatives": self.alternatives,
            "alternative": self.program,
            "sizes": self.sizes,
            "chosen_sizes": list(self.chosen),
            "inputs": {"from": self.inputs, "arrays": _described(self.arguments)},
            "kernels": [
                {
                    "name": launch.kernel,
                    "grid": list(launch.grid),
                    "programs": list(launch.programs),
                    "num_warps": launch.num_warps,
                }
                for launch in self.launches
            ],
            "outputs": _described(self.results),
            "check": {"passed": self.passed, "outputs": list(map(_checked, self.checked))} if self.checked else None,
            "seconds": self.seconds,
        }
        return json.dumps(data, indent=1) + "\n"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _described(pairs: list[tuple[TensorSpec, Array]]) -> list[dict[str, Any]]:
    return [
        {"name": spec.name, "dtype": spec.dtype, "dims": list(spec.dims), "shape": list(array.shape)}
        for spec, array in pairs
    ]


def _checked(output: CheckedOutput) -> dict[str, Any]:
    found = output.accuracy
    numbers = {"optimised": found.optimised, "unoptimised": found.unoptimised, "allowed": found.limit}
    finite = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
    return {"name": output.name, **finite, "ok": found.holds, "problem": found.problem, "warning": output.warning}
