"""The interpreter's elementwise operations against Python's integers and f64 arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ttir_one_op import WIDTH, run, signed, unsigned

from cleave.errors import CleaveError
from cleave.runtime.ttir_libdevice import LIBDEVICE
from cleave.runtime.ttir_numbers import DTYPES, convert_float

# Integers: Python's unbounded ones are the oracle.


def numbers(element: str, seed: int, nonzero: bool = False) -> np.ndarray:
    """Random and extreme values of an integer type."""
    rng = np.random.default_rng(seed)
    if element == "i1":
        return np.ones(16, bool) if nonzero else rng.integers(0, 2, 16).astype(bool)
    dtype = DTYPES[element]
    info = np.iinfo(dtype)
    edges = [info.min, info.max, 1, -1, 7, -7, 0, info.min + 1]
    wide = rng.integers(info.min, info.max, 12, dtype, endpoint=True)
    small = rng.integers(-9, 10, 12).astype(dtype)
    values = rng.permutation(np.concatenate((np.array(edges, dtype), wide, small)))
    return np.where(values == 0, dtype.type(3), values) if nonzero else values


def quotient(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def shifted(a: int, amount: int, bits: int) -> int:
    return a << amount if amount < bits else 0


SIGNED: dict[str, Callable[[int, int], int]] = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.divsi": quotient,
    "arith.remsi": lambda a, b: a - quotient(a, b) * b,
    "arith.floordivsi": lambda a, b: a // b,
    "arith.ceildivsi": lambda a, b: -(-a // b),
    "arith.minsi": min,
    "arith.maxsi": max,
    "arith.andi": lambda a, b: a & b,
    "arith.ori": lambda a, b: a | b,
    "arith.xori": lambda a, b: a ^ b,
}
UNSIGNED: dict[str, Callable[[int, int], int]] = {
    "arith.divui": lambda a, b: a // b,
    "arith.remui": lambda a, b: a % b,
    "arith.ceildivui": lambda a, b: -(-a // b),
    "arith.minui": min,
    "arith.maxui": max,
}


@pytest.mark.parametrize("element", ["i1", "i8", "i16", "i32", "i64", "index"])
@pytest.mark.parametrize("op", [*SIGNED, *UNSIGNED])
def test_integer_arithmetic(op: str, element: str) -> None:
    divides = "div" in op or "rem" in op
    a, b = numbers(element, 1), numbers(element, 2, nonzero=divides)
    (result,) = run(op, "", [(element, a), (element, b)], [element])
    read = signed if op in SIGNED else unsigned
    oracle = {**SIGNED, **UNSIGNED}[op]
    expected = [
        signed(oracle(read(int(x), element), read(int(y), element)), element) for x, y in zip(a, b, strict=True)
    ]
    assert [signed(int(x), element) for x in result] == expected


@pytest.mark.parametrize("element", ["i8", "i32", "i64"])
@pytest.mark.parametrize("op", ["arith.shli", "arith.shrsi", "arith.shrui"])
def test_shifts(op: str, element: str) -> None:
    """Amounts of the width or more give 0 (or the sign), as on the hardware."""
    bits = WIDTH[element]
    a = numbers(element, 1)
    amounts = np.resize(np.array([0, 1, 3, bits - 1, bits, bits + 3], DTYPES[element]), a.shape)
    (result,) = run(op, "", [(element, a), (element, amounts)], [element])
    oracle = {
        "arith.shli": lambda x, n: shifted(x, n, bits),
        "arith.shrsi": lambda x, n: x >> n,
        "arith.shrui": lambda x, n: unsigned(x, element) >> n,
    }[op]
    assert result.tolist() == [signed(oracle(int(x), int(n)), element) for x, n in zip(a, amounts, strict=True)]


@pytest.mark.parametrize("element", ["i1", "i32", "i64"])
@pytest.mark.parametrize("predicate", range(10))
def test_compare_integers(predicate: int, element: str) -> None:
    a, b = numbers(element, 1), numbers(element, 2)
    (result,) = run("arith.cmpi", f"predicate = {predicate} : i64", [(element, a), (element, b)], ["i1"])
    names = ["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__lt__", "__le__", "__gt__", "__ge__"]
    read = unsigned if predicate >= 6 else signed
    pairs = zip(a, b, strict=True)
    expected = [getattr(read(int(x), element), names[predicate])(read(int(y), element)) for x, y in pairs]
    assert result.tolist() == expected


@pytest.mark.parametrize("element", ["i8", "i32", "i64"])
def test_wide_products_and_sums(element: str) -> None:
    a, b, bits = numbers(element, 1), numbers(element, 2), WIDTH[element]
    pairs = [(int(x), int(y)) for x, y in zip(a, b, strict=True)]
    u = [(unsigned(x, element), unsigned(y, element)) for x, y in pairs]
    inputs = [(element, a), (element, b)]
    low, high = run("arith.mulsi_extended", "", inputs, [element] * 2)
    assert low.tolist() == [signed(x * y, element) for x, y in pairs]
    assert high.tolist() == [signed(x * y >> bits, element) for x, y in pairs]
    low, high = run("arith.mului_extended", "", inputs, [element] * 2)
    assert low.tolist() == [signed(x * y, element) for x, y in u]
    assert high.tolist() == [signed(x * y >> bits, element) for x, y in u]
    assert run("tt.mulhiui", "", inputs, [element])[0].tolist() == high.tolist()
    total, carry = run("arith.addui_extended", "", inputs, [element, "i1"])
    assert total.tolist() == [signed(x + y, element) for x, y in u]
    assert carry.tolist() == [(x + y) >> bits == 1 for x, y in u]


def test_absolute_value_of_integers() -> None:
    a = numbers("i32", 1)
    assert run("math.absi", "", [("i32", a)], ["i32"])[0].tolist() == [signed(abs(int(x)), "i32") for x in a]


@pytest.mark.parametrize("op", ["divsi", "divui", "remsi", "remui", "floordivsi", "ceildivsi", "ceildivui"])
def test_division_by_zero(op: str) -> None:
    zero = np.array([1, 0, 2], np.int32)
    with pytest.raises(CleaveError, match=f"'arith.{op}': integer division by zero"):
        run(f"arith.{op}", "", [("i32", zero), ("i32", zero)], ["i32"])


# Floats: f64 arithmetic, rounded once by ml_dtypes or NumPy


FLOATS = ["f16", "bf16", "f32", "f64"]
EPSILON = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52}


def reals(element: str, seed: int, low: float = -4, high: float = 4, special: bool = True) -> np.ndarray:
    values = np.random.default_rng(seed).uniform(low, high, 32)
    if special:
        values[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0]
        values = np.random.default_rng(seed).permutation(values)
    return values.astype(DTYPES[element])


def close(result: np.ndarray, expected: Any, element: str, ulps: float = 1) -> None:
    with np.errstate(all="ignore"):
        rounded = np.asarray(expected, np.float64).astype(DTYPES[element]).astype(np.float64)
    np.testing.assert_allclose(result.astype(np.float64), rounded, rtol=ulps * EPSILON[element], atol=1e-300)


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "arith.addf": np.add,
    "arith.subf": np.subtract,
    "arith.mulf": np.multiply,
    "arith.divf": np.divide,
    "arith.remf": np.fmod,
    "tt.precise_divf": np.divide,
    "arith.maximumf": lambda a, b: np.where(np.isnan(a) | np.isnan(b), np.nan, np.where(a > b, a, b)),
    "arith.minimumf": lambda a, b: np.where(np.isnan(a) | np.isnan(b), np.nan, np.where(a < b, a, b)),
    "arith.maxnumf": lambda a, b: np.where(np.isnan(b) | (a > b), a, b),
    "arith.minnumf": lambda a, b: np.where(np.isnan(b) | (a < b), a, b),
    "math.atan2": np.arctan2,
    "math.copysign": lambda a, b: np.where(np.signbit(b), -np.abs(a), np.abs(a)),
}


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("op", BINARY)
def test_float_arithmetic(op: str, element: str) -> None:
    """Correctly rounded: an f64 result of narrow operands is exact or far from a tie."""
    a, b = reals(element, 1), reals(element, 2)
    (result,) = run(op, "", [(element, a), (element, b)], [element])
    with np.errstate(all="ignore"):
        expected = BINARY[op](a.astype(np.float64), b.astype(np.float64))
    close(result, expected, element, ulps=4 if op.startswith("math.") else 0)


UNARY: dict[str, tuple[Callable[[float], float], float, float]] = {
    "arith.negf": (lambda x: -x, -4, 4),
    "math.absf": (abs, -4, 4),
    "math.ceil": (math.ceil, -4, 4),
    "math.floor": (math.floor, -4, 4),
    "math.trunc": (math.trunc, -4, 4),
    "math.round": (lambda x: math.copysign(math.floor(abs(x) + 0.5), x), -4, 4),
    "math.roundeven": (round, -4, 4),
    "math.sqrt": (math.sqrt, 0.1, 9),
    "tt.precise_sqrt": (math.sqrt, 0.1, 9),
    "math.rsqrt": (lambda x: 1 / math.sqrt(x), 0.1, 9),
    "math.cbrt": (math.cbrt, -9, 9),
    "math.exp": (math.exp, -4, 4),
    "math.exp2": (math.exp2, -4, 4),
    "math.expm1": (math.expm1, -4, 4),
    "math.log": (math.log, 1.5, 9),
    "math.log2": (math.log2, 1.5, 9),
    "math.log10": (math.log10, 1.5, 9),
    "math.log1p": (math.log1p, 0.1, 9),
    "math.sin": (math.sin, 0.1, 3),
    "math.cos": (math.cos, 0, 1.5),
    "math.tan": (math.tan, 0.1, 1.4),
    "math.asin": (math.asin, -1, 1),
    "math.acos": (math.acos, -1, 0.9),
    "math.atan": (math.atan, -4, 4),
    "math.sinh": (math.sinh, -4, 4),
    "math.cosh": (math.cosh, -4, 4),
    "math.tanh": (math.tanh, -4, 4),
    "math.asinh": (math.asinh, -4, 4),
    "math.acosh": (math.acosh, 1.5, 9),
    "math.atanh": (math.atanh, -0.9, 0.9),
    "math.erf": (math.erf, -3, 3),
    "math.erfc": (math.erfc, -3, 3),
}


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("op", UNARY)
def test_float_functions(op: str, element: str) -> None:
    oracle, low, high = UNARY[op]
    x = reals(element, 1, low, high, special=False)
    x = np.clip(x.astype(np.float64), low, high).astype(DTYPES[element])
    (result,) = run(op, "", [(element, x)], [element])
    close(result, [oracle(float(v)) for v in x], element, ulps=4)


def test_fma_rounds_once() -> None:
    a = np.full(4, 1 + 2**-12, np.float32)
    c = np.full(4, -1 - 2**-11, np.float32)
    assert run("math.fma", "", [("f32", a), ("f32", a), ("f32", c)], ["f32"])[0].tolist() == [2.0**-24] * 4
    assert run("math.powf", "", [("f32", a * 3), ("f32", a * 2)], ["f32"])[0] == pytest.approx([9.0075] * 4, rel=1e-3)


@pytest.mark.parametrize("propagate", [0, 65535])
def test_clamp(propagate: int) -> None:
    x = np.array([-3, 0.5, 9, np.nan], np.float32)
    low, high = np.full(4, -1, np.float32), np.full(4, 2, np.float32)
    (y,) = run("tt.clampf", f"propagateNan = {propagate} : i32", [("f32", x), ("f32", low), ("f32", high)], ["f32"])
    np.testing.assert_array_equal(y, [-1, 0.5, 2, np.nan if propagate else -1])


@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "f64", "f8E5M2", "f8E4M3FN"])
@pytest.mark.parametrize("predicate", range(16))
def test_compare_floats(predicate: int, element: str) -> None:
    a = np.array([1, 2, 2, np.nan, 1, np.nan], DTYPES[element])
    b = np.array([2, 1, 2, 1, np.nan, np.nan], DTYPES[element])
    (result,) = run("arith.cmpf", f"predicate = {predicate} : i64", [(element, a), (element, b)], ["i1"])
    # LLVM numbers predicates by bits: 1 equal, 2 greater, 4 less, 8 unordered; MLIR orders them by name.
    bits = [0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 8, 15][predicate]
    relations = [4, 2, 1, 8, 8, 8]
    assert result.tolist() == [bool(bits & relation) for relation in relations]


def test_select() -> None:
    condition = np.array([True, False, True])
    a, b = np.array([1, 2, 3], np.float16), np.array([4, 5, 6], np.float16)
    (y,) = run("arith.select", "", [("i1", condition), ("f16", a), ("f16", b)], ["f16"])
    assert y.tolist() == [1, 5, 3]


# Conversions


@pytest.mark.parametrize(
    ("source", "target"), [("i1", "i8"), ("i1", "i64"), ("i8", "i16"), ("i8", "i64"), ("i32", "i64")]
)
def test_extend(source: str, target: str) -> None:
    x = numbers(source, 1)
    assert run("arith.extsi", "", [(source, x)], [target])[0].tolist() == [signed(int(v), source) for v in x]
    assert run("arith.extui", "", [(source, x)], [target])[0].tolist() == [unsigned(int(v), source) for v in x]


@pytest.mark.parametrize("target", ["i1", "i8", "i32"])
def test_truncate(target: str) -> None:
    x = numbers("i64", 1)
    (y,) = run("arith.trunci", "", [("i64", x)], [target])
    assert [signed(int(v), target) for v in y] == [signed(int(v), target) for v in x]


def test_index_casts() -> None:
    x = numbers("i32", 1)
    assert run("arith.index_cast", "", [("i32", x)], ["index"])[0].tolist() == x.tolist()
    assert run("arith.index_castui", "", [("i32", x)], ["index"])[0].tolist() == [unsigned(int(v), "i32") for v in x]
    wide = numbers("i64", 1)
    for op in ("arith.index_cast", "arith.index_castui"):
        assert run(op, "", [("index", wide)], ["i32"])[0].tolist() == [signed(int(v), "i32") for v in wide]


@pytest.mark.parametrize("target", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("source", ["i1", "i8", "i32"])
def test_integers_to_floats(source: str, target: str) -> None:
    x = numbers(source, 1)
    close(run("arith.sitofp", "", [(source, x)], [target])[0], [signed(int(v), source) for v in x], target, 0)
    close(run("arith.uitofp", "", [(source, x)], [target])[0], [unsigned(int(v), source) for v in x], target, 0)


@pytest.mark.parametrize("target", ["i8", "i32", "i64"])
@pytest.mark.parametrize("source", ["f16", "f32", "f64"])
def test_floats_to_integers_saturate(source: str, target: str) -> None:
    x = np.array([0, 1.9, -1.9, 127.5, -300, 6e4, -6e4, np.inf, -np.inf, np.nan], DTYPES[source])
    if source != "f16":
        x = np.concatenate((x, np.array([3e9, -3e9, 2.0**63, -(2.0**63), 1e30], DTYPES[source])))
    bits = WIDTH[target]

    def saturated(value: float, low: int, high: int) -> int:
        return 0 if math.isnan(value) else high if value >= high else low if value <= low else math.trunc(value)

    y = run("arith.fptosi", "", [(source, x)], [target])[0].tolist()
    assert y == [saturated(float(v), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for v in x]
    y = run("arith.fptoui", "", [(source, x)], [target])[0].tolist()
    assert y == [signed(saturated(float(v), 0, 2**bits - 1), target) for v in x]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("f16", "f32"),
        ("bf16", "f32"),
        ("f16", "f64"),
        ("f8E5M2", "f16"),
        ("f8E5M2", "f32"),
        ("f8E4M3FN", "f16"),
        ("f8E4M3FN", "bf16"),
    ],
)
def test_widening(source: str, target: str) -> None:
    x = np.arange(256 if source.startswith("f8") else 65536, dtype=np.uint16)
    x = x.astype(np.uint8).view(DTYPES[source]) if source.startswith("f8") else x.view(DTYPES[source])
    for op in ("arith.extf", "tt.fp_to_fp"):
        (y,) = run(op, "", [(source, x)], [target])
        np.testing.assert_array_equal(y.astype(np.float64), x.astype(np.float64))


def nearest(value: float, candidates: np.ndarray) -> float:
    """The candidate nearest to ``value`` (the sorted finite numbers of a format), ties to the even one."""
    i = int(np.searchsorted(candidates, value))
    if i in (0, len(candidates)):
        return float(candidates[min(i, len(candidates) - 1)])
    low, high = float(candidates[i - 1]), float(candidates[i])
    if value - low != high - value:
        return low if value - low < high - value else high
    return low if i % 2 == 1 else high  # Zero is even, and its index (of the magnitudes) too.


@pytest.mark.parametrize("target", ["f8E5M2", "f8E4M3FN", "f16", "bf16"])
def test_narrowing(target: str) -> None:
    """To nearest even, or toward zero; 8-bit targets saturate."""
    dtype = DTYPES[target]
    bits = np.arange(2 ** (8 * dtype.itemsize - 1), dtype=f"u{dtype.itemsize}")
    magnitudes = bits.view(dtype).astype(np.float64)
    magnitudes = magnitudes[np.isfinite(magnitudes)]
    x = np.random.default_rng(0).standard_normal(200).astype(np.float32) * np.float32(3)
    ties = ((magnitudes[:60] + magnitudes[1:61]) / 2).astype(np.float32)
    x = np.concatenate((x, ties, -ties)).astype(np.float32)
    expected = [math.copysign(nearest(abs(float(v)), magnitudes), v) for v in x]
    for op, attributes in (("arith.truncf", ""), ("tt.fp_to_fp", "rounding = 1 : i32")):
        (y,) = run(op, attributes, [("f32", x)], [target])
        assert y.astype(np.float64).tolist() == expected
    toward_zero = [math.copysign(magnitudes[np.searchsorted(magnitudes, abs(float(v)), "right") - 1], v) for v in x]
    for op, attributes in (("arith.truncf", "roundingmode = 3 : i32"), ("tt.fp_to_fp", "rounding = 0 : i32")):
        (y,) = run(op, attributes, [("f32", x)], [target])
        assert y.astype(np.float64).tolist() == toward_zero


def test_saturation_and_infinities() -> None:
    x = np.array([1e30, -1e30, np.inf, np.nan, 460, 70000], np.float32)
    e4m3 = run("tt.fp_to_fp", "rounding = 1 : i32", [("f32", x)], ["f8E4M3FN"])[0].astype(np.float64)
    np.testing.assert_array_equal(e4m3, [448, -448, 448, np.nan, 448, 448])
    e5m2 = run("tt.fp_to_fp", "rounding = 1 : i32", [("f32", x)], ["f8E5M2"])[0].astype(np.float64)
    np.testing.assert_array_equal(e5m2, [57344, -57344, 57344, np.nan, 448, 57344])
    half = run("arith.truncf", "", [("f32", x)], ["f16"])[0].astype(np.float64)
    np.testing.assert_array_equal(half, [np.inf, -np.inf, np.inf, np.nan, 460, np.inf])
    assert convert_float(np.float32(1e30), DTYPES["f16"], toward_zero=True) == 65504
    with pytest.raises(CleaveError, match="rounding mode 1 is not supported"):
        run("arith.truncf", "roundingmode = 1 : i32", [("f32", x)], ["f16"])


@pytest.mark.parametrize("op", ["arith.bitcast", "tt.bitcast"])
def test_bitcast(op: str) -> None:
    x = np.array([1.0, -2.0, np.inf], np.float32)
    assert run(op, "", [("f32", x)], ["i32"])[0].tolist() == [0x3F800000, signed(0xC0000000, "i32"), 0x7F800000]
    back = np.array([0x3C00, 0x8000], np.uint16).view(np.int16)
    assert run(op, "", [("i16", back)], ["f16"])[0].tolist() == [1.0, -0.0]
    with pytest.raises(CleaveError, match="of different sizes"):
        run(op, "", [("f32", x)], ["i16"])


# Library functions


LIBRARY: dict[str, tuple[Callable[..., float], int, float, float]] = {
    **{f"__nv_{op.removeprefix('math.')}": (oracle, 1, low, high) for op, (oracle, low, high) in UNARY.items()
       if op.startswith("math.") and op not in ("math.absf", "math.roundeven")},
    "__nv_fabs": (abs, 1, -4, 4),
    "__nv_rint": (round, 1, -4, 4),
    "__nv_nearbyint": (round, 1, -4, 4),
    "__nv_exp10": (lambda x: 10**x, 1, -2, 2),
    "__nv_tgamma": (math.gamma, 1, 0.5, 5),
    "__nv_lgamma": (math.lgamma, 1, 3, 9),
    "__nv_sinpi": (lambda x: math.sin(math.pi * x), 1, 0.1, 0.9),
    "__nv_cospi": (lambda x: math.cos(math.pi * x), 1, 0, 0.4),
    "__nv_pow": (math.pow, 2, 0.1, 4),
    "__nv_atan2": (math.atan2, 2, -4, 4),
    "__nv_fmod": (math.fmod, 2, 0.5, 9),
    "__nv_hypot": (math.hypot, 2, -4, 4),
    "__nv_copysign": (math.copysign, 2, -4, 4),
    "__nv_fmin": (min, 2, -4, 4),
    "__nv_fmax": (max, 2, -4, 4),
    "__nv_fdim": (lambda x, y: max(x - y, 0), 2, -4, 4),
    "__nv_fma": (lambda x, y, z: x * y + z, 3, 1, 4),
}  # fmt: skip


@pytest.mark.parametrize("name", LIBRARY)
def test_library_functions(name: str) -> None:
    oracle, arity, low, high = LIBRARY[name]
    for element, symbol in (("f32", name + "f"), ("f64", name)):
        inputs = [(element, reals(element, seed, low, high, special=False)) for seed in range(arity)]
        attributes = f'libname = "", libpath = "", pure = true, symbol = "{symbol}"'
        (y,) = run("tt.extern_elementwise", attributes, inputs, [element])
        expected = [oracle(*map(float, values)) for values in zip(*(x for _, x in inputs), strict=True)]
        close(y, expected, element, ulps=16)


def test_other_library_functions() -> None:
    x = np.array([1.5, -2.25, np.inf, np.nan], np.float32)
    n = np.array([2, 3, 1, 0], np.int32)

    def call(symbol: str, *inputs: tuple[str, np.ndarray], result: str = "f32") -> list[Any]:
        return run("tt.extern_elementwise", f'symbol = "{symbol}"', list(inputs), [result])[0].tolist()

    assert call("__nv_isnanf", ("f32", x), result="i32") == [0, 0, 0, 1]
    assert call("__nv_isinff", ("f32", x), result="i32") == [0, 0, 1, 0]
    assert call("__nv_finitef", ("f32", x), result="i32") == [1, 1, 0, 0]
    assert call("__nv_signbitf", ("f32", x[:3]), result="i32") == [0, 1, 0]
    assert call("__nv_powif", ("f32", x[:2]), ("i32", n[:2])) == [2.25, -11.390625]
    assert call("__nv_ldexpf", ("f32", x[:2]), ("i32", n[:2])) == [6.0, -18.0]
    assert call("__nv_nextafterf", ("f32", x[:1]), ("f32", x[2:3])) == [1.5 + 2**-23]
    assert call("__nv_frcp_rn", ("f32", x[:3])) == [
        np.float32(1) / np.float32(1.5),
        np.float32(1) / np.float32(-2.25),
        0,
    ]
    assert call("__nv_fsqrt_rn", ("f32", x[:1])) == [float(np.float32(math.sqrt(1.5)))]
    assert call("__nv_fdiv_rn", ("f32", x[:2]), ("f32", x[:2])) == [1, 1]
    assert call("__nv_fadd_rn", ("f32", x[:2]), ("f32", x[:2])) == [3, -4.5]
    assert call("__nv_fmul_rn", ("f32", x[:2]), ("f32", x[:2])) == [2.25, 5.0625]
    assert call("__nv_saturatef", ("f32", x[:3])) == [1, 0, 1]
    assert call("__nv_fast_expf", ("f32", np.zeros(1, np.float32))) == [1]
    with pytest.raises(CleaveError, match="the library function '__nv_tanhq' is not known"):
        call("__nv_tanhq", ("f32", x))
    assert len(LIBDEVICE) > 100
