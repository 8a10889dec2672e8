"""The TTIR interpreter on whole kernels (frozen Triton output) against NumPy in f64, and its errors."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cleave.errors import CleaveError
from cleave.runtime.ttir_interpreter import Buffer, TensorDescriptor, run_kernel
from cleave.runtime.ttir_text import parse_ttir

INPUTS = Path(__file__).parent / "inputs"


def load(name: str) -> Any:
    return parse_ttir((INPUTS / f"{name}.ttir").read_text(), f"{name}.ttir")


def normal(*shape: int, dtype: Any = np.float16, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def tiles(n: int, size: int = 32) -> int:
    return -(-n // size)


def f64(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


# Kernels


@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 64), (33, 47, 65), (1, 1, 1), (31, 96, 7), (128, 128, 128)])
@pytest.mark.parametrize(
    ("name", "dtype", "tolerance"),
    [
        ("matmul_f16", np.float16, 2**-10),
        ("matmul_bf16", ml_dtypes.bfloat16, 2**-8),
        ("matmul_fp8", ml_dtypes.float8_e4m3fn, 2**-3),
        ("matmul_tf32", np.float32, 2**-8),
    ],
)
def test_matmul(name: str, dtype: Any, tolerance: float, m: int, n: int, k: int) -> None:
    a, b = normal(m, k, dtype=dtype), normal(k, n, dtype=dtype, seed=1)
    c = Buffer.poisoned((m, n), dtype)
    run_kernel(load(name), (tiles(m), tiles(n)), [Buffer(a), Buffer(b), c, m, n, k, k, n, n])
    exact = f64(a) @ f64(b)
    error = np.abs(f64(c.array) - exact)
    assert (error <= tolerance * (np.abs(exact) + np.sqrt(k))).all()


def test_tf32_operands_lose_bits() -> None:
    """1 + 2^-11 is cut to 1, 1 + 2^-10 is kept."""
    a = np.full((32, 32), 1 + 2**-11, np.float32)
    a[1] = 1 + 2**-10
    c = Buffer.poisoned((32, 32), np.float32)
    run_kernel(load("matmul_tf32"), (1, 1), [Buffer(a), Buffer(np.eye(32, dtype=np.float32)), c, *[32] * 6])
    assert (c.array[0] == 1).all() and (c.array[1] == 1 + np.float32(2**-10)).all()


@pytest.mark.parametrize("length", [32, 45, 130])
@pytest.mark.parametrize("name", ["attention", "attention_causal"])
def test_attention(name: str, length: int) -> None:
    q, k, v = (normal(2, length, 32, seed=seed) for seed in range(3))
    o = Buffer.poisoned(q.shape, np.float16)
    scale = 1 / math.sqrt(32)
    run_kernel(load(name), (tiles(length), 2), [Buffer(q), Buffer(k), Buffer(v), o, length, scale])
    scores = f64(q) @ f64(k).swapaxes(1, 2) * scale
    if name == "attention_causal":
        scores[:, ~np.tri(length, dtype=bool)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ f64(v)
    np.testing.assert_allclose(f64(o.array), expected, atol=3e-3, rtol=3e-3)


def test_split_k_adds_up_over_programs() -> None:
    k = 200
    a, b = normal(16, k), normal(k, 16, seed=1)
    c = Buffer(np.zeros((16, 16), np.float32))
    run_kernel(load("split_k"), (tiles(k),), [Buffer(a), Buffer(b), c, k])
    np.testing.assert_allclose(c.array, f64(a) @ f64(b), atol=1e-4)


@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 64), (40, 56, 72)])
def test_device_descriptors(m: int, n: int, k: int) -> None:
    a, b = normal(m, k), normal(k, n, seed=1)
    c = Buffer.poisoned((m, n), np.float16)
    run_kernel(load("device_descriptors"), (tiles(m), tiles(n)), [Buffer(a), Buffer(b), c, m, n, k])
    np.testing.assert_allclose(f64(c.array), f64(a) @ f64(b), atol=2e-2, rtol=2e-3)


def test_host_descriptors() -> None:
    """Arguments are the descriptor alone in our kernels; Triton's front end adds extents and strides, unused here."""
    m, n, k = 40, 56, 72
    whole = normal(m, k + 8)
    a, b = whole[:, :k], normal(n, k, seed=1)  # The first with a row pitch.
    c = np.zeros((m, n), np.float32)
    descriptors = [value for x in (a, b, c) for value in (TensorDescriptor(x, (32, 32)), 0, 0, 0, 0)]
    run_kernel(load("host_descriptors"), (tiles(m), tiles(n)), [*descriptors, k])
    np.testing.assert_allclose(c, f64(a) @ f64(b).T, atol=1e-4)


def test_scans() -> None:
    x, gate = normal(128, dtype=np.float32), np.abs(normal(128, dtype=np.float32, seed=1))
    out = {name: Buffer.poisoned(128, np.float32) for name in ("total", "backward", "state")}
    last = Buffer.poisoned(2, np.float32)
    run_kernel(load("scans"), (2,), [Buffer(x), Buffer(gate), *out.values(), last])
    rows = f64(x).reshape(2, 64)
    np.testing.assert_allclose(out["total"].array, np.cumsum(rows, 1).reshape(-1), atol=1e-5)
    np.testing.assert_allclose(out["backward"].array, np.cumsum(rows[:, ::-1], 1)[:, ::-1].reshape(-1), atol=1e-5)
    state = np.zeros((2, 64))
    for i in range(64):
        state[:, i] = (state[:, i - 1] if i else 0) * f64(gate).reshape(2, 64)[:, i] + rows[:, i]
    np.testing.assert_allclose(out["state"].array, state.reshape(-1), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(last.array, out["state"].array[63::64])


def test_reductions() -> None:
    x = np.round(normal(16, 32, dtype=np.float32) * 4)  # With ties: the lowest index wins.
    top, low, product = (Buffer.poisoned(n, np.float32) for n in (16, 32, 1))
    where, bits = Buffer.poisoned(16, np.int32), Buffer.poisoned(16, np.int32)
    run_kernel(load("reductions"), (1,), [Buffer(x), top, where, low, product, bits])
    np.testing.assert_array_equal(top.array, x.max(1))
    np.testing.assert_array_equal(where.array, x.argmax(1))
    np.testing.assert_array_equal(low.array, x.min(0))
    np.testing.assert_allclose(product.array[0], np.prod(f64(x) * 0.25 + 1), rtol=1e-4)
    np.testing.assert_array_equal(bits.array, np.bitwise_xor.reduce(x.astype(np.int32), 1))


def test_calls_loops_and_branches() -> None:
    y = Buffer.poisoned(9, np.int32)
    run_kernel(load("calls"), (8,), [Buffer(np.arange(1, 9, dtype=np.int32)), y, 8])
    assert y.array.tolist()[:8] == [0, 1, 7, 2, 5, 8, 16, 3]
    assert y.array[8] == Buffer.poisoned(1, np.int32).array[0]


def test_failed_assertion_names_the_program() -> None:
    arguments = [Buffer(np.ones(9, np.int32)), Buffer.poisoned(9, np.int32), 8]
    with pytest.raises(CleaveError, match=r"more programs than elements.*\n.*program \(8, 0, 0\)"):
        run_kernel(load("calls"), (9,), arguments)


def test_rearranged() -> None:
    x = normal(32, dtype=np.float32)
    index = np.random.default_rng(3).integers(0, 32, 32, dtype=np.int32)
    y, z, counts = Buffer.poisoned(32, np.float32), Buffer.poisoned(32, np.float32), Buffer.poisoned(8, np.int32)
    run_kernel(load("rearranged"), (1,), [Buffer(x), Buffer(index), y, z, counts])
    picked = x[index].reshape(16, 2)
    np.testing.assert_array_equal(y.array, picked[:, ::-1].T.reshape(-1))
    wide = f64(x)
    squashed = np.tanh(np.clip(wide, -2, 2)) + [math.erf(v) for v in wide] + np.abs(wide) ** wide
    np.testing.assert_allclose(z.array, squashed * wide + np.sqrt(np.abs(wide)) + wide / 3, rtol=1e-5)
    whole = np.trunc(wide * 2)
    np.testing.assert_array_equal(counts.array, [(whole == i).sum() for i in range(8)])


def test_some_programs_only() -> None:
    a, b = normal(64, 64), normal(64, 64, seed=1)
    c = Buffer.poisoned((64, 64), np.float16)
    run_kernel(load("matmul_f16"), (2, 2), [Buffer(a), Buffer(b), c, *[64] * 6], programs=[(1, 0, 0)])
    assert np.isfinite(c.array[32:, :32]).all()
    assert np.isnan(c.array[:32]).all() and np.isnan(c.array[:, 32:]).all()
    with pytest.raises(CleaveError, match="outside the grid"):
        run_kernel(load("matmul_f16"), (2, 2), [Buffer(a), Buffer(b), c, *[64] * 6], programs=[(2, 0, 0)])


def test_speed() -> None:
    """CPU seconds, with much to spare: 128^3 in tiles of 32^3 (16 programs) takes about 0.01."""
    a, b, c = normal(128, 128), normal(128, 128, seed=1), Buffer.poisoned((128, 128), np.float16)
    kernel = load("matmul_f16")
    start = time.process_time()
    run_kernel(kernel, (4, 4), [Buffer(a), Buffer(b), c, *[128] * 6])
    assert time.process_time() - start < 0.3


# Errors


def test_out_of_bounds_names_everything() -> None:
    """The kernel is told that b has 64 rows, the buffer has 63."""
    a, b, c = normal(64, 64), normal(63, 64), Buffer.poisoned((64, 64), np.float16)
    with pytest.raises(CleaveError) as caught:
        run_kernel(load("matmul_f16"), (2, 2), [Buffer(a), Buffer(b), c, *[64] * 6])
    text = str(caught.value)
    line = int(text.split(":")[1])
    assert '"tt.load"' in (INPUTS / "matmul_f16.ttir").read_text().splitlines()[line - 1]
    assert text.startswith("matmul_f16.ttir:") and "'tt.load': argument 1: offset 4032 is outside" in text
    assert "the buffer of 4032 elements" in text and "program (0, 0, 0)" in text


def test_wrong_arguments() -> None:
    kernel = load("split_k")
    a, c = Buffer(normal(16, 32)), Buffer(np.zeros((16, 16), np.float32))
    cases: list[tuple[list[Any], str]] = [
        ([a, a, c], "takes 4 arguments, got 3"),
        ([c, a, c, 32], "argument 0: elements of float32, but the kernel takes f16"),
        ([a, a, c, 1.5], "argument 3: i32 takes an integer, not 1.5"),
        ([a, a, c, 2**40], "argument 3: 1099511627776 does not fit i32"),
        ([a, a, Buffer(np.zeros(256, np.int32)), 32], "argument 2: elements of int32, but the kernel takes f32"),
        ([a, 7, c, 32], "argument 1: !tt.ptr<f16> takes a Buffer, not 7"),
        ([a, a, c, a], "argument 3: i32 takes a number"),
        ([a, Buffer(normal(32, 32)[:, :16]), c, 32], "argument 1: the buffer's array is not contiguous"),
    ]
    for arguments, message in cases:
        with pytest.raises(CleaveError) as caught:
            run_kernel(kernel, (1,), arguments)
        assert message in str(caught.value)
    with pytest.raises(CleaveError, match="grid"):
        run_kernel(kernel, (1, -1), [a, a, c, 32])


def test_read_only_memory_is_not_written() -> None:
    c = np.zeros((16, 16), np.float32)
    c.flags.writeable = False
    with pytest.raises(CleaveError, match="argument 2: a write to a read-only array"):
        run_kernel(load("split_k"), (1,), [Buffer(normal(16, 32)), Buffer(normal(32, 16)), Buffer(c), 32])


def test_misaligned_and_wrong_descriptors() -> None:
    c = np.zeros((64, 64), np.float32)
    good, kernel = TensorDescriptor(normal(64, 64), (32, 32)), load("host_descriptors")
    cases: list[tuple[TensorDescriptor, str]] = [
        (TensorDescriptor(normal(64, 64), (32, 16)), "a descriptor of blocks \\(32, 16\\)"),
        (TensorDescriptor(normal(64, 65), (32, 32)), "outer strides must be multiples of 16 bytes"),
        (TensorDescriptor(normal(64, 64).T, (32, 32)), "last stride must be 1"),
        (TensorDescriptor(normal(64, 64, dtype=np.float32), (32, 32)), "elements of float32"),
    ]
    for wrong, message in cases:
        with pytest.raises(CleaveError, match=f"argument 0: .*{message}"):
            run_kernel(kernel, (2, 2), [wrong, *[0] * 4, good, *[0] * 4, TensorDescriptor(c, (32, 32)), *[0] * 4, 64])


# Agreement with the installed Triton


@pytest.mark.parametrize("name", sorted(path.stem for path in INPUTS.glob("*.ttir")))
def test_frozen_text_is_what_triton_prints(name: str) -> None:
    triton = pytest.importorskip("triton")
    if triton.__version__ != "3.7.1":
        pytest.skip("the texts were made with Triton 3.7.1")
    import triton_kernels

    assert triton_kernels.text(name) == (INPUTS / f"{name}.ttir").read_text()
