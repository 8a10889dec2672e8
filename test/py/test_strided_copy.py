"""Row-major copies, as rows at one distance from each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleave.runtime.layout import Layout
from cleave.runtime.strided_copy import row_copies


def copy(array: Any) -> tuple[Any, int]:
    """A copy made as the driver would, and by how many of its calls."""
    strides = tuple(stride // array.itemsize for stride in array.strides)
    found = list(row_copies(Layout(array.shape, strides), array.itemsize))
    target = np.zeros(array.shape, array.dtype)
    base, out = array.__array_interface__["data"][0], target.reshape(-1).view(np.uint8)
    for rows in found:
        assert rows.source_pitch >= rows.width and rows.target_pitch >= rows.width, "as the driver asks"
        for number in range(rows.count):
            start = rows.target + number * rows.target_pitch
            out[start : start + rows.width] = _bytes(base + rows.source + number * rows.source_pitch, rows.width)
    return target, len(found)


def _bytes(address: int, count: int) -> Any:
    holder = type("Memory", (), {"__array_interface__": {
        "shape": (count,), "typestr": "|u1", "data": (address, True), "version": 3,
    }})  # fmt: skip
    return np.asarray(holder())


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_each_element_is_there(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    array = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    steps = [data.draw(st.sampled_from([1, 2, -1])) for _ in shape]
    array = array[tuple(slice(None, None, step) for step in steps)]
    array = array.transpose(data.draw(st.permutations(range(array.ndim))))
    if data.draw(st.booleans()):
        array = np.broadcast_to(array, (3, *array.shape))
    np.testing.assert_array_equal(copy(array)[0], array)


@pytest.mark.parametrize(
    ("array", "calls"),
    [
        (np.arange(60).reshape(3, 4, 5), 1),
        (np.arange(60).reshape(12, 5)[:, 1:], 1),
        (np.arange(60).reshape(12, 5)[::2], 1),
        (np.arange(60).reshape(3, 4, 5)[:, 1:, 2:], 3),
        (np.arange(60).reshape(12, 5).T, 5),
        (np.arange(5)[:, None].repeat(1, 1), 1),
        (np.zeros((3, 0)), 0),
        (np.array(7), 1),
    ],
)
def test_few_calls_of_the_driver(array: Any, calls: int) -> None:
    made, found = copy(array)
    np.testing.assert_array_equal(made, array)
    assert found == calls
