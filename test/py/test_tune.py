"""Candidates of a function and their measurement, with a clock of our own in place of a GPU's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cleave
from cleave.errors import CleaveError
from cleave.language.annotations import f16
from cleave.runtime.package import Package
from cleave.tools import cleave_bench
from cleave.tools.cleave_tune import _parser, _tune, main
from cleave.tuner.store import Measured, Store
from cleave.tuner.tune import fastest, tune

COUNT = 4


@cleave.jit
def product(x: f16["m k=64"], w: f16["k n=32"]) -> f16:
    return cleave.contract(x, w, over="k")


@pytest.fixture(scope="module")
def package() -> Package:
    return product.candidates(COUNT, m=64)


@pytest.fixture(scope="module")
def tensors() -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float16) for shape in ((21, 64), (64, 32))]


def _right(tensors: Sequence[Any]) -> Callable[[Sequence[Any]], str]:
    wanted = tensors[0].astype(float) @ tensors[1].astype(float)
    return lambda results: "" if np.allclose(results[0], wanted, atol=2e-2) else "wrong"


class Clock:
    """Gives the times in turn, and counts the calls."""

    def __init__(self, times: Sequence[float]) -> None:
        self.times, self.calls = list(times), 0

    def __call__(self, call: Callable[[], Any]) -> float:
        call()
        self.calls += 1
        return self.times[self.calls - 1]


def test_candidates_are_different_programs_for_the_same_function(package: Package, tensors: list[Any]) -> None:
    labels = [variant.label for variant in package.variants]
    assert 2 <= len(labels) <= COUNT and len(set(labels)) == len(labels)
    assert len({tuple(variant.ttir.values()) for variant in package.variants}) >= 2
    for variant in package.variants:
        single = Package(package.name, (variant,))
        assert not _right(tensors)([single(*tensors)])


def test_no_two_candidates_have_one_label() -> None:
    """Results are kept by label; forms for aligned sizes make programs that differ where labels say nothing."""

    @cleave.jit
    def symbolic(x: f16["m k"], w: f16["k n"]) -> f16:
        return cleave.contract(x, w, over="k")

    labels = [variant.label for variant in symbolic.candidates(COUNT, m=128, k=256, n=192).variants]
    assert len(set(labels)) == COUNT


def test_each_is_measured_once_and_the_fastest_is_kept(package: Package, tensors: list[Any], tmp_path: Path) -> None:
    store, clock = Store(tmp_path / "tuned.sqlite"), Clock([4.0, 2.0, 3.0, 5.0])
    run = tune(package, tensors, _right(tensors), clock, store=store, key="k", what="product")
    first = next(run)
    assert str(first).startswith(f"1/{len(package.variants)}  4.0 µs  alternative 0: ")
    run.close()  # stopped: it goes on where it was
    steps = list(tune(package, tensors, _right(tensors), clock, store=store, key="k", what="product"))
    assert clock.calls == len(package.variants) == len(steps) and steps[0].measured == first.measured
    assert steps[-1].left == 0
    kept = store.best("k")
    assert kept and Package.from_bytes(kept).variants == (package.variants[1],)
    list(tune(package, tensors, _right(tensors), clock, store=store, key="k", what="product"))
    assert clock.calls == len(package.variants)


def test_what_is_wrong_is_not_timed(package: Package, tensors: list[Any]) -> None:
    clock = Clock([1.0] * COUNT)
    steps = list(tune(package, tensors, lambda results: "error 1.0e-01", clock))
    assert clock.calls == 0 and all(step.measured == Measured(None, "error 1.0e-01") for step in steps)
    assert fastest([(package.variants[0], step.measured) for step in steps]) is None


def test_tuning_needs_a_file_and_a_gpu(tensors: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CleaveError, match="tuning needs a file"):
        next(product.tune(*tensors))
    assert main(["--store", str(tmp_path / "t.sqlite")]) == 1 and "no input" in capsys.readouterr().err
    path = tmp_path / "t.sqlite"
    assert main(["--store", str(path), "--list"]) == 1 and not path.exists()
    assert "there is no file" in capsys.readouterr().err
    Store(path)
    assert main(["--store", str(path), "--list"]) == 0 and "has no results" in capsys.readouterr().err
    Store(path).keep("k", "product", 2.0, b"")
    assert main(["--store", str(path), "--list"]) == 0
    assert capsys.readouterr().out == "      2.0 µs  product\n"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    for tool, start in (("cleave-tune", main), ("cleave-bench", cleave_bench.main)):
        with pytest.raises(SystemExit) as ended:
            start(["--version"])
        assert ended.value.code == 0 and capsys.readouterr().out == f"{tool} {cleave.__version__}\n"


@pytest.mark.parametrize(
    ("sizes", "message"), [("", "size 'm' a value\nnote: give it one in --sizes"), ("m=-3", "is no size")]
)
def test_sizes_are_looked_at_before_the_gpu(sizes: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "in.mlir").write_text(product.source)
    flags = ["--sizes", sizes, "--store", str(tmp_path / "tuned")]
    with pytest.raises(CleaveError, match=message):
        _tune(_parser().parse_args([str(tmp_path / "in.mlir"), *flags]))
