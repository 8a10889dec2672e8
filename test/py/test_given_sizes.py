"""Sizes that are given where the type says another, and sizes beyond what kernels count: the same error everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cleave
from cleave.bindings import context, ir
from cleave.dialects.given_sizes import LARGEST_EXTENT
from cleave.errors import CleaveError
from cleave.passes.schedule import Schedule
from cleave.tools import cleave_opt, cleave_run
from cleave.tools.cleave_tune import _inputs


def func(name: str, extent: str) -> str:
    type_ = f'tensor<?x{extent}xf32, #cleave.dims<["m", "d"]>>'
    return f"""func.func @{name}(%x: {type_}) -> {type_} {{
      %y = "cleave.exp"(%x) : ({type_}) -> {type_}
      return %y : {type_}
    }}
    """


FUNCTION = cleave.compile(func("f", "8"))
CONTRADICTION = "dimension 'd' is 8 in the function's type and 5 in the given sizes"
X = np.ones((3, 8), np.float32)
CALLS: dict[str, Callable[[int], Any]] = {
    "variant": lambda d: FUNCTION.variant(d=d),
    "ttir": lambda d: FUNCTION.ttir(m=16, d=d),
    "ptx": lambda d: FUNCTION.ptx("sm_90", d=d),
    "explain": lambda d: FUNCTION.explain(d=d),
    "candidates": lambda d: FUNCTION.candidates(1, d=d),
    "package": lambda d: FUNCTION.package("sm_90", sizes=[{"d": d}]),
    "specialised": lambda d: FUNCTION.specialised(d=d),
    "compile": lambda d: cleave.compile(FUNCTION.source, sizes=[{"d": d}]),
    "call": lambda d: FUNCTION(X, sizes={"d": d}),
}


@pytest.mark.parametrize("call", CALLS)
def test_functions(call: str) -> None:
    CALLS[call](8)
    with pytest.raises(CleaveError) as caught:
        CALLS[call](5)
    assert caught.value.message == CONTRADICTION


@pytest.mark.parametrize("call", ["ptx", "specialised", "call"])
def test_sizes_that_no_kernel_counts(call: str) -> None:
    with pytest.raises(CleaveError, match=f"size 'd' is {LARGEST_EXTENT + 1}; .* at most {LARGEST_EXTENT}"):
        CALLS[call](LARGEST_EXTENT + 1)


def test_commands(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "in.mlir"
    path.write_text(func("f", "8"))
    huge = "9" * 5000
    for main, before in ((cleave_opt.main, "--schedule{sizes="), (cleave_run.main, "--sizes=")):
        after = "}" * before.count("{")
        assert main([str(path), f"{before}d=8{after}"]) == 0
        capfd.readouterr()
        assert main([str(path), f"{before}d=5{after}"]) == 1
        place, _, rest = capfd.readouterr().err.partition(": error: ")
        assert place.startswith(f"{path}:") and rest.startswith(CONTRADICTION)
        assert main([str(path), f"{before}m={huge}{after}"]) == 1
        assert f"size 'm' is {huge}; an extent is at least 0 and at most {LARGEST_EXTENT}" in capfd.readouterr().err


def test_tuning_without_a_gpu() -> None:
    for sizes, told in (({"m": 4, "d": 5}, CONTRADICTION), ({}, "no argument gives size 'm' a value")):
        with pytest.raises(CleaveError, match=told) as caught:
            _inputs(FUNCTION, sizes)
    assert caught.value.notes == ("give it one in --sizes",)


def schedule(text: str, sizes: str) -> None:
    ctx = context()
    with ctx, ir.Location.unknown():
        Schedule(sizes=sizes).apply(ctx, ir.Module.parse(text))


def test_one_of_several_functions_is_enough() -> None:
    schedule(func("f", "8") + func("g", "?"), "d=5")
    schedule(func("f", "8") + func("g", "5"), "d=5")
    with pytest.raises(CleaveError, match=CONTRADICTION):
        schedule(func("f", "8") + func("g", "16"), "d=5")


def test_sizes_to_schedule_for_hold_for_the_static_size_that_is_met() -> None:
    """Schedules are asked for at two static sizes: each call has its own, and one of a third size a bucket's."""
    function = cleave.compile(func("f", "?"), static="d", sizes=[{"m": 16, "d": 8}, {"m": 64, "d": 16}])
    for d, sizes in ((8, {"m": 16, "d": 8}), (16, {"m": 64, "d": 16}), (4, {"m": 16})):
        np.testing.assert_allclose(function(np.ones((3, d), np.float32)), np.e, rtol=1e-6)
        assert [variant.sizes for variant in function.specialised(d=d)._variants.values()] == [sizes]
