"""What ``cleave-bench run`` and ``bench/forms.py`` make of a package, whose programs are interpreted, with
arrays in place of PyTorch's tensors and times that are made up."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cleave
from cleave.bench.numbers import TOLERANCE, Numbers
from cleave.bench.run import LONG, measure, package_path
from cleave.bench.subgraphs import Subgraph, matmul
from cleave.lowering.form import BESIDE_THE_USUAL, MARK, Form, ablations
from cleave.runtime.package import Package

FORMS = run_path(str(Path(__file__).parents[2] / "bench" / "forms.py"))
SIZES = {"m": 20, "k": 64, "n": 32}


class Tensor(np.ndarray):
    """An array with what is used of PyTorch's tensors."""

    def double(self) -> Tensor:
        return self.astype(np.float64)

    def norm(self) -> float:
        return float(np.linalg.norm(self))

    def to(self, dtype: Any) -> Tensor:
        return self.astype(dtype)

    def numel(self) -> int:
        return self.size

    def element_size(self) -> int:
        return self.itemsize


class OfTensors(Package):
    def __call__(self, /, *tensors: Any, **more: Any) -> Any:
        return super().__call__(*tensors, **more).view(Tensor)


class Doubled(OfTensors):
    def __call__(self, /, *tensors: Any, **more: Any) -> Any:
        return 2 * super().__call__(*tensors, **more)


def randn(shape: Sequence[int], generator: np.random.Generator, device: str) -> Tensor:
    return generator.standard_normal(shape).view(Tensor)


TORCH = SimpleNamespace(
    Generator=lambda device: SimpleNamespace(manual_seed=np.random.default_rng),
    randn=randn,
    float16=np.float16,
    float32=np.float32,
)


class Clock:
    """A timer: ``alone`` are the times of calls one by one, ``together`` those of each group that takes turns."""

    torch = TORCH

    def __init__(self, alone: Sequence[float], together: Sequence[Sequence[float]] = ()) -> None:
        self.alone, self.together = iter(alone), iter(together)

    def microseconds(self, call: Callable[[], Any]) -> float:
        call()
        return next(self.alone)

    def in_turn(self, calls: Sequence[Callable[[], Any]]) -> list[float]:
        times = list(next(self.together))
        assert len([call() for call in calls]) == len(times)
        return times


SUBGRAPH = Subgraph("matmul", matmul, {"small": SIZES}, lambda sizes: 2.0 * math.prod(sizes.values()), "matmul", "")


@pytest.fixture(scope="module")
def package() -> OfTensors:
    made = cleave.jit(matmul).candidates(3, **SIZES)
    return OfTensors(made.name, made.variants)


def rows(
    package: Package, folder: Path, clock: Clock, names: Sequence[str], patch: pytest.MonkeyPatch
) -> Iterator[Any]:
    for name in names:
        package_path(folder, SUBGRAPH.name, "small", name).touch()
    patch.setattr("cleave.tuner.timing.Timer", lambda: clock)
    patch.setattr("cleave.runtime.package.Package.load", lambda path: package)
    return measure([SUBGRAPH], folder, ["eager"], math.inf, names)


def test_long_times_are_taken_by_turns_in_all_rows(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model's choice and the slowest one, too, and in the row of the ablation, which alone would count as short:
    none of the times on a cooler GPU is left."""
    first, second, third = (variant.label for variant in package.variants)
    clock = Clock(
        [100.0, 101.0, 120.0, 110.0, 1.0, 2.0, 3.0], [[107.0, 108.0, 106.0, 109.0], [70.0, 60.0, 80.0, 111.0]]
    )
    whole, ablated = rows(package, tmp_path, clock, ("", "no-split"), monkeypatch)
    assert whole.microseconds == {"cleave": 106.0, "model": 107.0, "eager": 109.0} and whole.program == third
    assert whole.programs == {first: 107.0, second: 108.0, third: 106.0}
    assert ablated.microseconds == {"cleave": 60.0, "model": 70.0, "eager": 111.0} and ablated.program == second
    assert not list(clock.alone) and not list(clock.together)
    assert (whole.wrong, whole.traffic) == ("", 2 * (20 * 64 + 64 * 32 + 20 * 32)) and 0 < whole.error < TOLERANCE


def test_short_times_are_taken_one_by_one(package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock([LONG, LONG - 1, LONG, 2 * LONG, 2 * LONG, 2 * LONG, 2 * LONG])
    whole, ablated = rows(package, tmp_path, clock, ("", "no-split"), monkeypatch)
    assert whole.microseconds == {"cleave": LONG - 1, "model": LONG, "eager": 2 * LONG}
    assert set(ablated.microseconds.values()) == {2 * LONG}, "as the other row of the shape"


def test_what_is_wrong_is_not_timed(package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    doubled = Doubled(package.name, package.variants)
    (row,) = rows(doubled, tmp_path, Clock([2 * LONG]), ("",), monkeypatch)
    assert (row.microseconds, row.programs, row.program) == ({"eager": 2 * LONG}, {}, "")
    assert row.error == pytest.approx(1.0, abs=1e-3)
    assert row.wrong == "; ".join(f"{each.label}: error 1.0e+00, 4.0e-03 is allowed" for each in package.variants)


def test_errors_that_are_allowed() -> None:
    """Twice that of the eager program where it is less accurate than f16 results are; no NaN."""
    wanted = np.ones(100).view(Tensor)
    known = Numbers([], [wanted], [1.01 * wanted])
    assert known.allowed == pytest.approx(0.02) and Numbers([], [wanted], [wanted]).allowed == TOLERANCE
    assert not known.problem(known.error([0.981 * wanted]))
    assert known.problem(known.error([0.979 * wanted])) == "error 2.1e-02, 2.0e-02 is allowed"
    broken = wanted.copy()
    broken[0] = np.nan
    assert math.isnan(Numbers([], [wanted, wanted], []).error([wanted, broken])) and known.problem(math.nan)


def test_all_forms_of_one_program_are_measured_by_turns(package: OfTensors) -> None:
    """Of the first warp-specialised one, not those of another one that has its name, with a number."""
    usual = f"alternative 1: tiles{MARK}"
    forms = [form.label for form in ablations()]
    assert Form(masks_first=False).label in forms and {form.label for form in BESIDE_THE_USUAL} <= {*forms}
    same = [usual, *(usual + form for form in forms), "alternative 1: tiles"]
    others = [f"{usual} (2)", f"{usual} (2){forms[0]}", f"alternative 0: tiles{MARK}", "alternative 0: tiles"]
    variant = package.variants[0]
    many = replace(
        package, variants=tuple(replace(variant, label=label) for label in ("alternative 2", *same, *others))
    )
    times = [100.0 + number for number in range(len(same))]
    found: Mapping[str, Any] = FORMS["_measured"](SUBGRAPH, many, SIZES, Clock([1.0] * len(same), [times]))
    names = ["", *(form.removeprefix(", ") for form in forms), "as TTIR"]
    assert found == {
        "program": "alternative 1: tiles", "microseconds": dict(zip(names, times, strict=True)), "wrong": {}
    }  # fmt: skip
    assert not FORMS["forms"](["", "alternative 0: tiles"])
