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


def with_facts(extent: str, *facts: str) -> str:
    type_ = f'tensor<?x?x{extent}xf32, #cleave.dims<["m", "n", "d"]>>'
    texts = ", ".join(f'"{fact}"' for fact in facts)
    return f"""func.func @f(%x: {type_}) -> {type_} attributes {{cleave.facts = [{texts}]}} {{
      %y = "cleave.exp"(%x) : ({type_}) -> {type_}
      return %y : {type_}
    }}
    """


BY_FACTS = {
    "n=7": (("n = d",), "n = d, which does not hold for d = 8 (the function's type), n = 7 (the given sizes)"),
    "n=10": (
        ("m <= 100", "n = 2*k", "k = d"),
        "n = 2*k and k = d, which does not hold for d = 8 (the function's type), n = 10 (the given sizes)",
    ),
    "m=3,n=63": (("1 <= m", "64 <= n"), "64 <= n, which does not hold for n = 63 (the given sizes)"),
    "m=8,n=9": (("n <= m",), "n <= m, which does not hold for m = 8 (the given sizes), n = 9 (the given sizes)"),
    "n=24": (("n = 16*q",), "n = 16*q, which does not hold for n = 24 (the given sizes)"),
}


@pytest.mark.parametrize("sizes", BY_FACTS)
def test_facts_refuse_sizes(sizes: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    facts, told = BY_FACTS[sizes]
    path, pairs = tmp_path / "in.mlir", (size.partition("=") for size in sizes.split(","))
    path.write_text(with_facts("8", *facts))
    for words in ([f"--schedule{{sizes={sizes}}}"], [f"--sizes={sizes}"], [f"--sizes={sizes}", "--stage=reference"]):
        main = cleave_opt.main if "{" in words[0] else cleave_run.main
        assert main([str(path), *words]) == 1
        assert f"{path}:1:1: error: the function requires {told}\n" in capfd.readouterr().err
    function, given = cleave.compile(path), {name: int(value) for name, _, value in pairs}
    known = {name: size for name, size in given.items() if name in function._compilation.known_sizes}
    calls: list[Callable[[], Any]] = [
        lambda: function.variant(**given),
        lambda: function.explain(**given),
        lambda: function.specialised(**given),
        lambda: cleave.compile(function.source, sizes=[given]),
        *([lambda: function.candidates(1, **given)] if known == given else []),
    ]
    for call in calls:
        with pytest.raises(CleaveError) as caught:
            call()
        assert caught.value.message == f"the function requires {told}"


def test_sizes_that_facts_admit() -> None:
    text = with_facts("8", "n = 16*q", "m <= n", "q <= 4")
    schedule(text, "m=3,n=64")
    schedule(text, "m=3,q=4")
    with pytest.raises(CleaveError, match=r"requires n = 16[*]q and q <= 4, which does not hold for n = 80 "):
        schedule(text, "m=3,n=80")


def test_schedules_are_for_sizes_that_facts_admit() -> None:
    """A bucket is a larger size than the one that is met: no larger than a bound, and with others as facts say."""
    function = cleave.compile(with_facts("8", "m <= 100", "n <= 2*m", "1 <= n"))
    for (m, n), expected in (((90, 3), {"m": 100, "n": 16}), ((10, 20), {"m": 16}), ((20, 40), {"m": 64, "n": 64})):
        function(np.zeros((m, n, 8), np.float32))
        assert [*function._variants.values()][-1].sizes == expected


def test_sizes_to_schedule_for_are_left_out_where_facts_refuse_them() -> None:
    sizes = [{"m": 16, "n": 8}, {"m": 64, "n": 16}]
    function = cleave.compile(with_facts("?", "n = d"), static="d", sizes=sizes)
    np.testing.assert_array_equal(function(np.zeros((3, 8, 8), np.float32)), 1)
    assert [variant.sizes for variant in function.specialised(d=8)._variants.values()] == [{"m": 16, "n": 8}]


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
