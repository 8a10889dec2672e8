"""Arguments that calls of the Python interface have not: CleaveErrors that say what is wanted."""

from __future__ import annotations

import copy
import inspect
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cleave
from cleave import CleaveError, Function, Package, f16
from cleave.language.trace import OF_CALLS
from cleave.tuner.store import Store

X, W = np.ones((5, 32), np.float16), np.ones((32, 24), np.float16)


@cleave.jit
def product(x: f16["m k"], w: f16["k n"]) -> f16["m n"]:
    return cleave.contract(x, w, over="k")


LAYOUTS = 'a list of dictionaries of texts\nnote: as in layouts=[{"x": "m k+", "w": "n k"}]'


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("f.explain(m='16')", "the size 'm' is '16'; sizes are integers from 0 on"),
        ("f.explain({'m': 3})", "f.explain: too many positional arguments\nnote: it is f.explain(m=16)"),
        ("f.ttir(m=3.5)", "the size 'm' is 3.5; sizes are integers from 0 on"),
        ("f.variant(3)", "f.variant: too many positional arguments"),
        ("f.specialised(k=-1)", "the size 'k' is -1; sizes are integers from 0 on"),
        ("f.ptx(90)", "90 is no name of a target\nnote: known targets: sm_80"),
        ("f.ptx('sm_90', 'm=3')", "f.ptx: too many positional arguments\nnote: it is f.ptx(target='sm_90', m=16)"),
        ("f.candidates('m=3')", "'m=3' candidates: a number from 1 on"),
        ("f.candidates(1, 'sm_90', q=3)", "product has no size 'q'\nnote: its sizes: k, m, n"),
        ("f.explain(m=np.int64(3))", "sizes are integers from 0 on\nnote: int(...) makes it one of Python's"),
        ("cleave.Package.load(3)", "3 is no path of a file"),
        ("f.candidates(1, 'sm_90', m='3')", "the size 'm' is '3'; sizes are integers from 0 on"),
        (
            "f.tune(1, stroe='x')",
            "f.tune has no argument 'stroe'; did you mean store?\nnote: its arguments: cand",
        ),
        ("f.package(['sm_90', 'sm_80'])", "['sm_90', 'sm_80'] is no name of a target"),
        ("f.package('sm_90', sizes={'m': 16})", "sizes={'m': 16}: a list of dictionaries"),
        ("f.package('sm_90', sizes='m=16')", "sizes='m=16': a list of dictionaries"),
        ("f.package('sm_90', sizes=[{'m': '16'}])", "the size 'm' is '16'; sizes are integers from 0 on"),
        ("f.package('sm_90', size=[{'m': 16}])", "f.package has no argument 'size'; did you mean sizes?"),
        ("f.package('sm_90', layouts={'x': 'm k'})", LAYOUTS),
        ("f.package('sm_90', layouts='x: m k')", LAYOUTS),
        ("f.package('sm_90', layouts=[{'x': 3}])", LAYOUTS),
        ("f.package('sm_90', layouts=3)", LAYOUTS),
        ("cleave.jit(sizes=3)(f.__wrapped__)", "sizes=3: a list of dictionaries"),
        ("cleave.jit(f.__wrapped__, 'd')", "cleave.jit: too many positional arguments"),
    ],
)
def test_what_a_call_does_not_take_is_refused(call: str, message: str) -> None:
    with pytest.raises(CleaveError) as caught:
        eval(call, {"f": product, "cleave": cleave, "np": np})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"superopt": "yes"}, "superopt='yes': either True or False"),
        ({"superopt": {"kep": 3}}, "superopt={'kep': 3}: either True or False"),
        ({"warp_specialise": "x"}, "warp_specialise='x': True, False or None"),
        ({"library": "yes"}, "library='yes': True, False or None"),
        ({"schedule": "split"}, "schedule='split': a dictionary of options"),
        ({"tuned": 3}, "tuned=3: the path of a file of tuning results"),
        ({"tuned": __file__}, "is no file of tuning results: file is not a database"),
        ({"tuned": str(Path(__file__).parent)}, "is no file of tuning results: Is a directory"),
        ({"sizes": {"m": 16}}, "sizes={'m': 16}: a list of dictionaries"),
        ({"static": "q"}, "product has no size 'q'"),
        ({"static": 3}, "static=3: names of sizes"),
        ({"facts": "n = "}, "a side of the fact is missing"),
        ({"facts": ["n = 16*j", "n = 3"]}, "the facts contradict each other"),
        ({"facts": ["q = 16*j"]}, "the fact 'q = 16*j' is about no size of product"),
        ({"facts": ""}, "facts='': a fact is not empty"),
        ({"empty_rows": "nan"}, "empty_rows='nan': either 'zero' or None"),
    ],
)
def test_options_that_are_none_are_refused_at_their_line(options: dict[str, Any], message: str) -> None:
    for make in (cleave.jit, cleave.compile):
        source: Any = product.__wrapped__ if make is cleave.jit else product.source  # type: ignore[attr-defined]
        with pytest.raises(CleaveError) as caught:
            make(source, **options)
        assert message in str(caught.value) and str(caught.value).startswith(f"{__file__}:")


def test_a_file_of_results_may_be_there_or_not_yet(tmp_path: Path) -> None:
    Store(tmp_path / "ours")
    (tmp_path / "empty").touch()
    for name in ("ours", "empty", "none"):
        cleave.jit(product.__wrapped__, tuned=tmp_path / name)  # type: ignore[attr-defined]
    assert not (tmp_path / "none").exists() and not (tmp_path / "empty").read_bytes()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sofmax", "module 'cleave' has no attribute 'sofmax'; did you mean softmax?"),
        ("matmul", "module 'cleave' has no attribute 'matmul'; use cleave.contract(x, y, over=...)"),
        ("float16", "module 'cleave' has no attribute 'float16'; did you mean f16?"),
        ("bool", "module 'cleave' has no attribute 'bool'; did you mean i1?"),
        ("wholly_other", "module 'cleave' has no attribute 'wholly_other'"),
    ],
)
def test_names_that_the_module_has_not(name: str, message: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(cleave, name)
    assert str(caught.value).startswith(message)


def test_what_calls_take_beside_tensors_is_no_name_of_a_parameter() -> None:
    for called in (Function.__call__, Package.__call__):
        names = [each.name for each in inspect.signature(called).parameters.values() if each.kind is each.KEYWORD_ONLY]
        assert tuple(names) == OF_CALLS
    for name in OF_CALLS:
        with pytest.raises(CleaveError) as caught:
            cleave.jit(_with_parameter(name))
        assert f"1:1: error: parameter '{name}' of doubled needs another name" in str(caught.value)


@pytest.mark.parametrize("name", ["self", "function", "tensors", "named"])
def test_every_other_name_is_a_parameter(name: str) -> None:
    doubled = cleave.jit(_with_parameter(name))
    np.testing.assert_array_equal(doubled(**{name: X}), 2 * X)


def test_functions_are_pickled_by_name_and_packages_whole() -> None:
    assert pickle.loads(pickle.dumps(product)) is product and copy.deepcopy(product) is product
    package = product.package("sm_90", sizes=[{"m": 16}])
    again = pickle.loads(pickle.dumps(package))
    assert again.to_bytes() == package.to_bytes()
    np.testing.assert_array_equal(again(X, W), package(X, W))
    for other in (cleave.compile(product.source), product.specialised(k=32)):
        with pytest.raises(CleaveError, match=r"would be pickled by name\nnote: f.package\(...\) is pickled"):
            pickle.dumps(other)


def _with_parameter(name: str) -> Any:
    space: dict[str, Any] = {"f16": f16}
    exec(f'def doubled({name}: f16["m k"]) -> f16["m k"]: return {name} * 2', space)
    return space["doubled"]
