"""Tensors that are not row-major are taken as parts of row-major ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cleave
from cleave.errors import CleaveError
from cleave.language.annotations import f16
from cleave.lowering.pitches import with_pitches
from cleave.runtime.bind_sizes import bind_sizes
from cleave.runtime.cuda_tensors import layout_of as gpu_layout
from cleave.runtime.layout import Layout
from cleave.runtime.pitched import Around, Pitched

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
    wider = function._around({number: part for number, (part, _) in found.items()})
    whole = [
        np.lib.stride_tricks.as_strided(a, found[n][1].shape, [2 * s for s in found[n][1].strides]) if n in found else a
        for n, a in enumerate(arrays)
    ]
    return wider(*whole, sizes=function._bound(arrays))


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
    assert with_pitches(passed_on.source, "passed_on", {0: part}) is None
    assert with_pitches(product.source, "plain", {0: part}) is not None


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
