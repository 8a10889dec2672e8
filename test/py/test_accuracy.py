"""The accuracy contract: hand-made results on both sides of the line."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from cleave.reference.accuracy import compare, floor, same_bits

INF, NAN = np.inf, np.nan
REF = np.array([3.0, 4.0])  # of norm 5


def test_errors_are_relative_to_the_norm_of_the_reference() -> None:
    found = compare(REF, REF + np.array([0, 0.05]), REF + np.array([0.03, 0.04]), "f32")
    assert found.unoptimised == pytest.approx(0.01)
    assert found.optimised == pytest.approx(0.01)
    assert found.limit == pytest.approx(0.02)
    assert found.holds


@pytest.mark.parametrize(("error", "holds"), [(0.0, True), (0.019, True), (0.021, False)])
def test_twice_the_sources_own_error_is_allowed(error: float, holds: bool) -> None:
    found = compare(REF, REF + np.array([0, 0.05]), REF + np.array([5 * error, 0]), "f32")
    assert found.holds is holds
    assert holds or "its error is 0.021, more than 0.02" in str(found.problem)


@pytest.mark.parametrize(("error", "says_little"), [(0.0, False), (0.49, False), (0.51, True), (30.0, True)])
def test_where_zeros_would_pass_it_says_little(error: float, says_little: bool) -> None:
    plain = REF + np.array([5 * error, 0])
    assert compare(REF, plain, REF, "f32").says_little is says_little
    assert compare(REF, plain, 0 * REF, "f32").holds is says_little
    assert not compare(REF, plain, REF + np.array([5000, 0]), "f32").says_little, "which is wrong"


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "f8E4M3FN", "f8E5M2"])
def test_an_exact_source_leaves_room_for_the_last_place(dtype: str) -> None:
    unit = floor(dtype)
    assert compare(REF, REF, REF * (1 + 0.5 * unit), dtype).holds
    assert not compare(REF, REF, REF * (1 + 1.5 * unit), dtype).holds


def test_the_floors_are_units_in_the_last_place() -> None:
    assert floor("f16") == np.finfo(np.float16).eps
    assert floor("bf16") == ml_dtypes.finfo(ml_dtypes.bfloat16).eps
    assert floor("f32") == 4 * np.finfo(np.float32).eps
    assert floor("f64") == 4 * np.finfo(np.float64).eps


def test_integers_have_no_floor() -> None:
    numbers = np.array([1, 2, 3])
    assert compare(numbers, numbers, numbers, "i32").holds
    assert not compare(numbers, numbers, numbers + np.array([0, 0, 1]), "i32").holds
    assert not compare(numbers > 1, numbers > 1, numbers > 2, "i1").holds


def test_a_reference_of_zeros() -> None:
    zeros = np.zeros(4)
    assert compare(zeros, zeros, zeros, "f32").holds
    assert not compare(zeros, zeros, zeros + 1e-3, "f32").holds


def test_where_all_is_nan_there_is_no_error_to_show() -> None:
    found = compare(REF, REF, REF * NAN, "f32")
    assert not found.holds and np.isnan(found.optimised) and "element [0] is nan" in str(found.problem)
    assert compare(REF, REF, np.array([NAN, 4.0]), "f32").optimised == 0


def test_no_elements() -> None:
    empty = np.zeros((0, 5))
    assert compare(empty, empty, empty, "f16").holds


def test_magnitudes_beyond_the_range_of_squares() -> None:
    huge = np.array([1e200, 1e200])
    found = compare(huge, huge, huge * 1.5, "f64")
    assert found.optimised == pytest.approx(0.5)
    assert not found.holds


@pytest.mark.parametrize(("ref", "plain", "out", "holds"), [
    (INF, INF, INF, True),
    (NAN, NAN, NAN, True),
    (INF, INF, -INF, False),
    (NAN, NAN, 1.0, False),
    (1.0, 1.0, NAN, False),
    (1.0, 1.0, INF, False),
    (70000.0, INF, 70000.0, True),  # the source overflows f16, the optimised program does not
    (70000.0, INF, INF, True),  # both do
    (70000.0, INF, NAN, False),
    (NAN, 1.0, NAN, False),  # where the source as written is finite, so must the result be
])  # fmt: skip
def test_infinities_and_nan(ref: float, plain: float, out: float, holds: bool) -> None:
    arrays = [np.array([1.0, x]) for x in (ref, plain, out)]
    found = compare(*arrays, "f16")
    assert found.holds is holds
    assert holds or "element [1] is" in str(found.problem)


def test_a_shape_that_differs() -> None:
    assert "its shape is (3,)" in str(compare(REF, REF, np.zeros(3), "f32").problem)


def test_narrow_types_are_compared_in_f64() -> None:
    narrow = REF.astype(ml_dtypes.bfloat16)
    assert compare(REF, narrow, narrow, "bf16").optimised == 0


def test_same_bits() -> None:
    a = np.array([1.0, NAN, 0.0], np.float32)
    assert same_bits(a, a.copy(), "f32")
    assert not same_bits(a, np.array([1.0, NAN, -0.0], np.float32), "f32")
    assert not same_bits(a, a[:2], "f32")
    assert same_bits(np.array([1, 2]), np.array([1, 2]), "i64")
    assert not same_bits(np.array([True]), np.array([False]), "i1")
