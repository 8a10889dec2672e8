"""``cleave.jit`` and ``cleave.compile``: their options, and the places that later messages name."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cleave
from cleave import CleaveError, f16, f32, i32
from cleave.lowering.source import without_locations

RNG = np.random.default_rng(0)


def masked(x: f32["m n"], y: f32["n k=16"], length: i32[""]) -> f32["m k"]:
    """Softmax over the first elements of a row, none of them where ``length`` is 0."""
    x = cleave.where(cleave.index("n") < length, x, -float("inf"))
    return cleave.contract(cleave.softmax(x, over="n"), y, over="n")


def scaled(x: f16["m n"], w: f16["n k=16"]) -> f16["m k"]:
    return cleave.contract(x, w, over="n") * 0.5


LINALG = """
func.func @product(%x: tensor<?x?xf32>, %w: tensor<?x16xf32>, %out: tensor<?x16xf32>) -> tensor<?x16xf32> {
  %zero = arith.constant 0.0 : f32
  %start = linalg.fill ins(%zero : f32) outs(%out : tensor<?x16xf32>) -> tensor<?x16xf32>
  %y = linalg.matmul ins(%x, %w : tensor<?x?xf32>, tensor<?x16xf32>) outs(%start : tensor<?x16xf32>) -> tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}
"""


def test_both_have_the_same_options() -> None:
    jit, compiled = (dict(inspect.signature(made).parameters) for made in (cleave.jit, cleave.compile))
    jit.pop("function"), compiled.pop("function"), compiled.pop("source")
    assert jit == compiled


def test_what_compile_is_given_it_takes(tmp_path: Path) -> None:
    tuned = tmp_path / "tuned.sqlite"
    special = cleave.compile(cleave.jit(scaled).source, tuned=tuned, schedule={"iterative_tiling": False})
    assert special._tuned.path == tuned and special._compilation.schedule == {"iterative_tiling": False}
    with pytest.raises(CleaveError, match="nonsense"):
        cleave.compile(cleave.jit(scaled).source, schedule={"combine": "nonsense"}).variant()
    assert cleave.compile(cleave.jit(scaled).source, warp_specialise=True)._compilation.warp_specialise


@pytest.mark.parametrize("superopt", [True, False])
def test_facts_are_added_to_those_of_the_source(superopt: bool) -> None:
    stated = cleave.jit(scaled, facts=["n = 16*j"])
    later = cleave.compile(cleave.jit(scaled).source, facts=["n = 16*j"], superopt=superopt)
    both = cleave.compile(stated.source, facts="1 <= m", superopt=superopt)
    assert without_locations(later.source) == without_locations(stated.source)
    assert both.signature.facts == ("n = 16*j", "1 <= m")
    x, w = RNG.standard_normal((5, 32)).astype(np.float16), RNG.standard_normal((32, 16)).astype(np.float16)
    for function in (later, both):
        np.testing.assert_allclose(function(x, w), 0.5 * x.astype(float) @ w, rtol=2e-3, atol=2e-3)
        with pytest.raises(CleaveError, match="'n' of in0 is 20"):
            function(x[:, :20].copy(), w[:20].copy())


def test_facts_on_the_sizes_of_linalg() -> None:
    plain = cleave.compile(LINALG)
    n = plain.signature.arguments[0].dims[1]
    function = cleave.compile(LINALG, facts=[f"{n} = 8*j"])
    x, w, out = (RNG.standard_normal(shape).astype(np.float32) for shape in ((3, 24), (24, 16), (3, 16)))
    np.testing.assert_allclose(function(x, w, out), x @ w, rtol=1e-5, atol=1e-5)
    plain(x[:, :20].copy(), w[:20].copy(), out)
    with pytest.raises(CleaveError, match=f"'{n}' of in0 is 20"):
        function(x[:, :20].copy(), w[:20].copy(), out)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"facts": [3]}, "a list of texts"),
        ({"facts": ["n = "]}, "error"),
        ({"facts": ["j = 16*i"]}, "the fact 'j = 16[*]i' is about no size of scaled"),
        ({"facts": ["k = 3*j"]}, "k"),
        ({"empty_rows": "nan"}, "empty_rows='nan': either 'zero' or None"),
    ],
)
def test_what_is_no_option_is_refused(options: dict[str, Any], message: str) -> None:
    for make in (cleave.jit(scaled).source, scaled):
        with pytest.raises(CleaveError, match=message):
            cleave.compile(make, **options) if isinstance(make, str) else cleave.jit(make, **options)


@pytest.mark.parametrize("superopt", [True, False])
def test_rows_without_a_key_are_zero_if_that_is_asked_for(superopt: bool) -> None:
    x, y = RNG.standard_normal((3, 40)).astype(np.float32), RNG.standard_normal((40, 16)).astype(np.float32)
    plain = cleave.jit(masked, superopt=superopt)
    zero = cleave.jit(masked, empty_rows="zero", superopt=superopt)
    later = cleave.compile(plain.source, empty_rows="zero", superopt=superopt)
    again = cleave.compile(zero.source, facts=["1 <= m"], superopt=superopt)
    assert without_locations(later.source) == without_locations(zero.source)
    weights = np.exp(x[:, :7].astype(float))
    expected = weights @ y[:7] / weights.sum(1, keepdims=True)
    for function in (plain, zero, later, again, zero.specialised(n=40)):
        np.testing.assert_allclose(function(x, y, np.int32(7)), expected, rtol=1e-4, atol=1e-5)
        empty = function(x, y, np.int32(0))
        assert np.isnan(empty).all() if function is plain else (empty == 0).all()


# --- places ----------------------------------------------------------------------------------------------------------


def _line(function: Any, text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(lines) if text in line)


def picked(x: f32["m n"], rows: i32["j"]) -> f32["m a j"]:
    y = cleave.exp(x).split("n", "a b=4")
    return y.gather("b", rows)


def test_what_cannot_be_scheduled_names_a_file() -> None:
    """The line of the tensor that it would look at in parts."""
    function = cleave.jit(picked)
    text = without_locations(function.source)
    (number,) = (number for number, line in enumerate(text.splitlines(), 1) if "func.func" in line)
    for made, place in (
        (function, f"{__file__}:{_line(picked, 'def ')}:"),
        (cleave.compile(text), f"<source>:{number}:"),
    ):
        with pytest.raises(CleaveError, match=r"along 'b', a dimension made by cleave[.]split, cannot") as caught:
            made.variant()
        assert str(caught.value).startswith(place)


@pytest.mark.parametrize("superopt", [True, False])
def test_kernels_name_lines_of_the_function(superopt: bool) -> None:
    special = cleave.jit(scaled, superopt=superopt)
    places = {place for text in special.variant().ttir.values() for place in re.findall(r'loc\("(.*?)":(\d+)', text)}
    first = _line(scaled, "def ")
    assert places == {(__file__, str(first)), (__file__, str(first + 1))}
    assert "loc(" not in special.optimised and "loc(" in special.source


def test_the_cast_to_the_type_of_the_result_is_at_the_function() -> None:
    def ordered(x: f32["m n"]) -> f16["n m"]:
        return cleave.exp(x)

    def typed(x: f32["m n"]) -> f16:
        return cleave.exp(x)

    def same(x: f32["m n"]) -> f32["m n"]:
        return cleave.exp(x)

    for function in (scaled, ordered, typed):
        source = cleave.jit(function).source
        (number,) = re.findall(r"cleave.cast.*loc\(#(\w+)\)", source)
        assert f'#{number} = loc("{__file__}":{_line(function, "def ")}:1)' in source
    assert "cleave.cast" not in cleave.jit(same).source
