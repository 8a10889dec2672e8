"""Tensors that are not row-major are taken as parts of row-major ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cleave
from cleave import Package
from cleave.errors import CleaveError
from cleave.language.annotations import f16
from cleave.lowering.pitches import with_pitches
from cleave.runtime.bind_sizes import bind_sizes
from cleave.runtime.call import Operands
from cleave.runtime.cuda_tensors import layout_of as gpu_layout
from cleave.runtime.execute import execute
from cleave.runtime.layout import Layout
from cleave.runtime.pitched import Around, Pitched
from cleave.tuner.store import Store
from cleave.wider import Wider

RNG = np.random.default_rng(0)


def plain(x: f16["m k"], w: f16["k n"]) -> f16:
    return cleave.contract(x, w, over="k").astype(f16)


product = cleave.jit(plain)


@cleave.jit
def attention(q: f16["a m d=16"], k: f16["a n d=16"], v: f16["a n e=16"]) -> f16:
    return cleave.contract(cleave.softmax(cleave.contract(q, k, over="d"), over="n"), v, over="n").astype(f16)


@cleave.jit
def passed_on(x: f16["m k"]) -> f16:
    return x.rename(k="n")


def layout_of(array: Any) -> Layout:
    return Layout(array.shape, tuple(stride // array.itemsize for stride in array.strides))


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float16)


def attended(q: Any, k: Any, v: Any) -> Any:
    s = q.astype(float) @ k.astype(float).swapaxes(1, 2)
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v.astype(float)


def called(function: Any, arrays: Sequence[Any]) -> Any:
    """As on a GPU, but for the kernels, which the interpreter runs: no array is copied in part."""
    found = {n: part for n, a in enumerate(arrays) if (part := Pitched.of(layout_of(a), "f16"))}
    assert found
    wider = function._around(tuple((number, part) for number, (part, _) in found.items()))
    whole = [
        np.lib.stride_tricks.as_strided(a, found[n][1].shape, [2 * s for s in found[n][1].strides]) if n in found else a
        for n, a in enumerate(arrays)
    ]
    return wider(*whole, sizes=function._bound(Operands.of(arrays)))


def _columns() -> list[Any]:
    return [normal(45, 3, 64)[:20, 1, :48], normal(48, 33)]


def _transposed() -> list[Any]:
    return [normal(20, 40), normal(24, 40).T]


def _both() -> list[Any]:
    return [normal(40, 24)[:, :17].T, normal(40, 16)[:, 3:][:, :9]]


@pytest.mark.parametrize("arrays", [_columns, _transposed, _both])
def test_products(arrays: Callable[[], list[Any]]) -> None:
    x, w = arrays()
    np.testing.assert_allclose(called(product, [x, w]), x.astype(float) @ w.astype(float), rtol=2e-3, atol=2e-2)


def test_heads_of_a_projection_that_has_queries_keys_and_values() -> None:
    q, k, v = (normal(33, 2, 3, 16)[:, :, number].transpose(1, 0, 2) for number in range(3))
    np.testing.assert_allclose(called(attention, [q, k, v]), attended(q, k, v), atol=4e-3)


def test_a_cache_that_is_longer_than_its_contents() -> None:
    q, k, v = normal(2, 5, 16), normal(2, 100, 16)[:, :37], normal(2, 100, 16)[:, :37]
    np.testing.assert_allclose(called(attention, [q, k, v]), attended(q, k, v), atol=4e-3)


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_each_element_is_where_it_was(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 4))
    shape = data.draw(st.lists(st.integers(1, 5), min_size=rank, max_size=rank))
    shape[-1] *= 8  # whole vectors
    order = data.draw(st.permutations(range(rank)))
    kept = [data.draw(st.integers(1, extent)) for extent in shape[:-1]] + [data.draw(st.integers(2, shape[-1]))]
    part = np.arange(np.prod(shape)).reshape(shape)[tuple(slice(n) for n in kept)].transpose(order)
    layout = Layout(part.shape, tuple(stride // 8 for stride in part.strides))
    found = Pitched.of(layout, "f16")
    assert found, "a slice whose rows start at whole vectors is one"
    pitched, whole = found
    assert whole.is_row_major
    sliced = np.lib.stride_tricks.as_strided(part, whole.shape, [8 * s for s in whole.strides])
    sliced = sliced[tuple(slice(part.shape[axis]) for axis in pitched.order)]
    np.testing.assert_array_equal(sliced.transpose(np.argsort(pitched.order)), part)
    assert pitched.padded == tuple(n != part.shape[a] for n, a in zip(whole.shape, pitched.order, strict=True))


@pytest.mark.parametrize(
    "layout",
    [
        Layout((4, 8), (32, 2)),  # no neighbours
        Layout((4, 8), (0, 1)),  # the same row again and again
        Layout((4, 8), (4, 1)),  # rows that overlap
        Layout((4, 8), (12, 1)),  # rows that start within a vector
        Layout((4, 0), (8, 1)),
        Layout((2, 16), (2**32, 1)),  # rows further apart than an extent can be
        Layout((), ()),
    ],
)
def test_others_are_none(layout: Layout) -> None:
    assert Pitched.of(layout, "f16") is None


def test_an_argument_that_is_a_result_keeps_its_own_memory() -> None:
    part = Pitched((0, 1), (False, True))
    assert with_pitches(passed_on.source, "passed_on", ((0, part),)) is None
    assert with_pitches(product.source, "plain", ((0, part),)) is not None


@dataclass(frozen=True)
class OnGpu:
    """An array as other libraries show one in a GPU's memory."""

    array: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        strides = None if self.array.flags.c_contiguous else self.array.strides
        address = 4096 + self.array.__array_interface__["data"][0] % 16
        return {"shape": self.array.shape, "typestr": "<f2", "strides": strides, "data": (address, False)}


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What calls on a GPU would launch: shapes, strides and sizes; without one."""
    found: list[Any] = []

    def run(variant: Any, program_of: Any, operands: Any, sizes: Any, stream: Any, remembered: Any, learnt: Any) -> Any:
        layouts = [gpu_layout("x", tensor)[0] for tensor in operands.in_memory]
        bind_sizes(variant.plan, [layout.shape for layout in layouts], {**learnt, **sizes})
        found.append((*(layout.shape for layout in layouts), {**learnt, **sizes}))
        return [0]

    monkeypatch.setattr("cleave.runtime.call.run", run)
    return found


def test_a_call_takes_parts_where_they_lie(launched: list[Any]) -> None:
    wide, w = np.zeros((20, 64), np.float16), np.zeros((48, 40), np.float16)
    product(OnGpu(wide[:, :48]), OnGpu(w))
    product(OnGpu(wide[:, :48]), OnGpu(np.zeros((40, 48), np.float16).T))
    assert launched == [
        ((20, 64), (48, 40), {"m": 20, "k": 48, "n": 40}),
        ((20, 64), (40, 48), {"m": 20, "k": 48, "n": 40}),
    ]


def test_sizes_that_are_given_must_be_those_of_the_part(launched: list[Any]) -> None:
    x = OnGpu(np.zeros((20, 64), np.float16)[:, :32])
    for size in (8, 48):
        with pytest.raises(CleaveError, match=f"dimension 'k' is {size} in the given sizes and 32 in x"):
            product(x, OnGpu(np.zeros((32, 16), np.float16)), sizes={"k": size})
    product(x, OnGpu(np.zeros((32, 16), np.float16)), sizes={"k": 32})
    assert len(launched) == 1


def test_a_symbol_that_only_facts_have_is_not_taken(launched: list[Any]) -> None:
    function = cleave.jit(facts=["k = 16*k_pitch0"])(plain)
    function(OnGpu(np.zeros((20, 64), np.float16)[:, :32]), OnGpu(np.zeros((32, 16), np.float16)))
    assert launched[0][:2] == ((20, 64), (32, 16))


def test_the_tensor_around_is_at_the_same_address() -> None:
    class Tensor:
        dtype = "torch.float16"

        def data_ptr(self) -> int:
            return 4096

    around = Around(Tensor(), (20, 192))
    assert (around.data_ptr(), around.stride(), around.dtype) == (4096, (192, 1), "torch.float16")


# --- packages and the ways in which arguments lie ---------------------------------------------------------------------


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Calls on a GPU, but for the kernels, which the interpreter runs; which tensors they took."""
    found: list[Any] = []

    def run(variant: Any, program_of: Any, operands: Any, sizes: Any, stream: Any, remembered: Any, learnt: Any) -> Any:
        layouts = [gpu_layout("x", tensor)[0] for tensor in operands.in_memory]
        arrays = [
            np.lib.stride_tricks.as_strided(value.array, layout.shape, [2 * stride for stride in layout.strides])
            for value, layout in zip(operands.values, layouts, strict=True)
        ]
        found.append(variant)
        return execute(variant.plan, variant.ttir, arrays, {**(learnt or {}), **sizes})

    monkeypatch.setattr("cleave.runtime.call.run", run)
    return found


def exactly(x: Any, w: Any) -> Any:
    return x.astype(float) @ w.astype(float)


@pytest.fixture(scope="module")
def packed() -> Package:
    """A program for each way, without binaries."""
    every = [{"x": "m k+"}, {"w": "n k+"}, {"x": "m k+", "w": "n k"}]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cleave.lowering.package.compiled_for", lambda variant, *_: variant)
        return product.package("sm_90", sizes=[{"m": 16, "n": 16, "k": 64}], layouts=every)


def test_a_package_reads_parts_where_they_lie(packed: Package, computed: list[Any], tmp_path: Path) -> None:
    packed.save(tmp_path / "product.cleave")
    again = Package.load(tmp_path / "product.cleave")
    assert again == packed and len(packed.variants) == 4
    cases = (
        (normal(20, 48), normal(48, 24), ""),
        (normal(20, 64)[:, :48], normal(48, 24), '"x": "m k+"'),
        (normal(20, 48), normal(24, 56).T[:48], '"w": "n k+"'),
        (normal(20, 48), normal(24, 48).T, '"w": "n k+"'),  # which takes what is not padded, too
        (normal(20, 64)[:, :48], normal(24, 48).T, '"x": "m k+", "w": "n k"'),
    )
    for x, w, way in cases:
        np.testing.assert_allclose(again(OnGpu(x), OnGpu(w)), exactly(x, w), rtol=2e-3, atol=2e-2)
        parts = computed[-1].parts
        assert (parts.spelt() if parts else "") == way


def test_a_package_says_once_which_layout_it_lacks(
    packed: Package, computed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cleave.runtime.call._readable", lambda n, value, stream: OnGpu(value.array.copy(order="C")))
    package, w = replace(packed, variants=packed.variants[:1]), normal(48, 24)
    x = normal(20, 64)[:, :48]
    with pytest.warns(UserWarning, match=r"copies arguments at each call; layouts=\[\{\"x\": \"m k\+\"\}\] of"):
        np.testing.assert_allclose(package(OnGpu(x), OnGpu(w)), exactly(x, w), rtol=2e-3, atol=2e-2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        package(OnGpu(x), OnGpu(w))
    only = replace(packed, variants=packed.variants[1:2])
    with pytest.raises(CleaveError, match=r'takes no row-major tensors\nnote: it takes: "x": "m k\+"'):
        only(OnGpu(normal(20, 48)), OnGpu(w))


def test_sizes_of_parts_are_checked(packed: Package, computed: list[Any]) -> None:
    with pytest.raises(CleaveError, match="dimension 'k' is 48 in x and 40 in w"):
        packed(OnGpu(normal(20, 64)[:, :48]), OnGpu(normal(40, 24)))
    part, w = OnGpu(normal(20, 64)[:, :48]), OnGpu(normal(48, 24))
    for function in (packed, product):
        with pytest.raises(CleaveError, match=r"no size 'k_pitch0'\nnote: its sizes: k, m, n(, \w)*$"):
            function(part, w, sizes={"k_pitch0": 64})
    with pytest.raises(CleaveError, match="x has rank 1"):
        packed(OnGpu(normal(20)), OnGpu(normal(40, 24)))
    assert not computed


@pytest.mark.parametrize(
    ("layouts", "message"),
    [
        ({"y": "m k"}, "'y' is no argument of plain"),
        ({"x": "m n"}, "the layout 'm n' is none of a tensor with the dims m, k"),
        ({"x": "m+ k"}, "a padded outermost dim, which makes no difference"),
    ],
)
def test_layouts_that_are_none(layouts: dict[str, str], message: str) -> None:
    with pytest.raises(CleaveError, match=message):
        product.package("sm_90", layouts=[layouts])
    with pytest.raises(CleaveError, match="a result of passed_on is one of x"):
        passed_on.package("sm_90", layouts=[{"x": "m k+"}])


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_a_layout_takes_all_that_lie_so(data: st.DataObject) -> None:
    """Elements are where they were in the tensor around; a stride of one element is any."""
    rank = data.draw(st.integers(1, 4))
    shape = data.draw(st.lists(st.integers(1, 4), min_size=rank, max_size=rank))
    order = data.draw(st.permutations(range(rank)))
    kept = [data.draw(st.integers(1, extent)) for extent in shape]
    kept[0] = shape[0]
    part = np.arange(np.prod(shape)).reshape(shape)[tuple(map(slice, kept))].transpose(np.argsort(order))
    padded = tuple(n != m for n, m in zip(kept, shape, strict=True))
    more = tuple(data.draw(st.booleans()) or pad for pad in padded[1:])
    strides = [stride // 8 if n > 1 else 77 for n, stride in zip(part.shape, part.strides, strict=True)]
    around = Pitched(tuple(order), (False, *more)).around(Layout(part.shape, tuple(strides)))
    if around is None:  # padding that only a dim of one element would show
        assert any(pad and all(part.shape[a] == 1 for a in order[:n]) for n, pad in enumerate(padded)) or 1 in kept
        return
    assert around.is_row_major
    whole = np.lib.stride_tricks.as_strided(part, around.shape, [8 * stride for stride in around.strides])
    sliced = whole[tuple(slice(part.shape[axis]) for axis in order)]
    np.testing.assert_array_equal(sliced.transpose(np.argsort(order)), part)


@pytest.mark.parametrize(
    "strides",
    [
        (33, 16, 1),  # no whole number of rows apart
        (16, 4, 1),  # rows that overlap
        (16, 32, 1),  # another order
        (32, 16, 2),
        (0, 16, 1),
    ],
)
def test_a_layout_takes_nothing_else(strides: tuple[int, ...]) -> None:
    layout = Pitched((0, 1, 2), (False, True, True))
    assert layout.around(Layout((2, 2, 8), (64, 16, 1))) == Layout.row_major((2, 4, 16))
    assert layout.around(Layout((2, 2, 8), strides)) is None


def test_few_functions_are_compiled_for_the_ways_in_which_arguments_lie() -> None:
    made: list[Any] = []

    def make(layouts: Any) -> Any:
        made.append(layouts)
        return object()

    wider = Wider(make)

    def operands(*extents: int, order: str = "abc") -> Operands:
        whole = np.zeros(tuple(n + -n % 8 * (n % 2) for n in extents), np.float16)
        part = whole[tuple(map(slice, extents))]
        return Operands.of([OnGpu(part.transpose(["abc".index(axis) for axis in order]))], parts=True)

    assert wider(operands(4, 3, 8)) and wider(operands(6, 5, 16)) and len(made) == 1
    assert wider(operands(1, 5, 16)) and wider(operands(4, 1, 16)) and len(made) == 1, "one element lies anywhere"
    assert wider(operands(4, 4, 9)) and made[-1][0][1].padded == (False, True, True), "for both"
    assert wider(operands(4, 3, 9)) and len(made) == 2
    for order in ("acb", "bac", "bca", "cab", "cba"):
        assert wider(operands(4, 3, 8, order=order))
    assert len(made) == 7


# --- tuning -----------------------------------------------------------------------------------------------------------


class _Driver:
    def architecture(self) -> str:
        return "sm_90"

    def device_name(self) -> str:
        return "stub"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, computed: list[Any]) -> None:
    """Tuning without a GPU: the second program is the fastest."""
    times = iter((9.0, 3.0))
    monkeypatch.setattr("cleave.tuned.current_driver", _Driver)
    timer = SimpleNamespace(microseconds=lambda call: next(times))
    monkeypatch.setattr("cleave.tuner.timing.Timer", lambda: timer)

    def like(wanted: Any) -> Any:
        return lambda results: "" if np.allclose(results[0], wanted, rtol=4e-3, atol=4e-2) else "wrong"

    monkeypatch.setattr("cleave.tuner.check.like", like)


def test_slices_are_tuned_as_they_lie(measured: None, computed: list[Any], tmp_path: Path) -> None:
    store, x, w = tmp_path / "tuned", normal(20, 64)[:, :48], normal(48, 24)
    tensors = OnGpu(x), OnGpu(w)
    progress = list(product.tune(*tensors, candidates=2, store=store))
    assert [each.measured.microseconds for each in progress] == [9.0, 3.0]
    tuned = cleave.jit(plain, tuned=store)
    for call in (tensors, (OnGpu(normal(20, 72)[:, :48]), OnGpu(w))):
        np.testing.assert_allclose(tuned(*call), exactly(call[0].array, w), rtol=2e-3, atol=2e-2)
        assert computed[-1].label == progress[1].label and computed[-1].parts.spelt() == '"x": "m k+"'
    tuned(OnGpu(normal(20, 48)), OnGpu(w))
    assert not computed[-1].label, "row-major ones were not measured"


def test_results_that_are_not_there_are_missed(measured: None, computed: list[Any], tmp_path: Path) -> None:
    tensors = OnGpu(normal(20, 48)), OnGpu(normal(48, 24))
    tuned = cleave.jit(plain, tuned=tmp_path / "none")
    with pytest.warns(UserWarning, match=r"there are no tuning results at .*none: the cost model decides; cleave-tune"):
        tuned(*tensors)
    assert not list(tmp_path.iterdir())
    Store(tmp_path / "none")
    tuned(*tensors)
    assert not computed[-1].label
    list(tuned.tune(*tensors, candidates=1))
    tuned(*tensors)
    assert computed[-1].label, "what was found is taken at once"
