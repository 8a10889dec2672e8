"""Triton kernels whose TTIR the interpreter's tests run; ``KERNELS`` says how each is specialised.

``python test/py/triton_kernels.py`` writes their generic text to ``test/py/inputs/``, so that tests need no Triton.
"""
# pyright: basic

from __future__ import annotations

from pathlib import Path

import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton_text import generic_ttir

INPUTS = Path(__file__).parent / "inputs"


@triton.jit
def matmul(a, b, c, M, N, K, sam, sbk, scn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    rn = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        ka = k + tl.arange(0, BK)[None, :]
        kb = k + tl.arange(0, BK)[:, None]
        x = tl.load(a + rm * sam + ka, mask=(rm < M) & (ka < K), other=0.0)
        y = tl.load(b + kb * sbk + rn, mask=(kb < K) & (rn < N), other=0.0)
        acc = tl.dot(x, y, acc)
    tl.store(c + rm * scn + rn, acc.to(c.dtype.element_ty), mask=(rm < M) & (rn < N))


@triton.jit
def attention(q, k, v, o, S, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr):
    head = tl.program_id(1).to(tl.int64) * S * D
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rd = tl.arange(0, D)
    x = tl.load(q + head + rm[:, None] * D + rd[None, :], mask=rm[:, None] < S, other=0.0)
    m = tl.full((BM,), float("-inf"), tl.float32)
    norm = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    end = tl.minimum(S, (tl.program_id(0) + 1) * BM) if CAUSAL else S
    for n in range(0, end, BN):
        rn = n + tl.arange(0, BN)
        y = tl.load(k + head + rn[None, :] * D + rd[:, None], mask=rn[None, :] < S, other=0.0)
        s = tl.dot(x, y) * (scale * 1.4426950408889634)
        keep = rn[None, :] < S
        if CAUSAL:
            keep = keep & (rn[None, :] <= rm[:, None])
        s = tl.where(keep, s, float("-inf"))
        new = tl.maximum(m, tl.max(s, 1))
        alpha = tl.exp2(m - new)
        p = tl.exp2(s - new[:, None])
        norm = norm * alpha + tl.sum(p, 1)
        z = tl.load(v + head + rn[:, None] * D + rd[None, :], mask=rn[:, None] < S, other=0.0)
        acc = tl.dot(p.to(z.dtype), z, acc * alpha[:, None])
        m = new
    acc = acc / norm[:, None]
    tl.store(o + head + rm[:, None] * D + rd[None, :], acc.to(o.dtype.element_ty), mask=rm[:, None] < S)


@triton.jit
def split_k(a, b, c, K, N: tl.constexpr, BK: tl.constexpr):
    r, k = tl.arange(0, N), tl.program_id(0) * BK + tl.arange(0, BK)
    x = tl.load(a + r[:, None] * K + k[None, :], mask=k[None, :] < K, other=0.0)
    y = tl.load(b + k[:, None] * N + r[None, :], mask=k[:, None] < K, other=0.0)
    tl.atomic_add(c + r[:, None] * N + r[None, :], tl.dot(x, y), sem="relaxed")


@triton.jit
def device_descriptors(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    da = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    db = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN])
    dc = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(da.load([m, k]), db.load([k, n]), acc)
    dc.store([m, n], acc.to(tl.float16))


@triton.jit
def host_descriptors(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a.load([m, k]), b.load([n, k]).T, acc)
    c.atomic_add([m, n], acc)


@triton.jit
def _first_order(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def scans(x, gate, total, backward, state, last, N: tl.constexpr):
    r = tl.program_id(0) * N + tl.arange(0, N)
    value, g = tl.load(x + r), tl.load(gate + r)
    tl.store(total + r, tl.cumsum(value, 0))
    tl.store(backward + r, tl.cumsum(value, 0, reverse=True))
    _, h = tl.associative_scan((g, value), 0, _first_order)
    tl.store(state + r, h)
    tl.store(last + tl.program_id(0), tl.sum(tl.where(tl.arange(0, N) == N - 1, h, 0.0)))


@triton.jit
def reductions(x, top, where, low, product, bits, R: tl.constexpr, N: tl.constexpr):
    r, n = tl.arange(0, R), tl.arange(0, N)
    tile = tl.load(x + r[:, None] * N + n[None, :])
    best, at = tl.max(tile, 1, return_indices=True)
    tl.store(top + r, best)
    tl.store(where + r, at)
    tl.store(low + n, tl.min(tile, 0))
    tl.store(product, tl.reduce(tl.reduce(tile * 0.25 + 1.0, 1, _multiply), 0, _multiply))
    tl.store(bits + r, tl.xor_sum(tile.to(tl.int32), 1))


@triton.jit
def _multiply(a, b):
    return a * b


@triton.jit(noinline=True)
def _collatz(n):
    steps = 0
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps


@triton.jit
def calls(x, y, N):
    i = tl.program_id(0)
    tl.device_assert(i < N, "more programs than elements")
    if i < N:
        tl.store(y + i, _collatz(tl.load(x + i)))


@triton.jit
def rearranged(x, index, y, z, counts, N: tl.constexpr):
    r = tl.arange(0, N)
    tile = tl.load(x + r)
    picked = tl.gather(tile, tl.load(index + r), 0)
    even, odd = tl.split(tl.reshape(picked, (N // 2, 2)))
    both = tl.join(odd, even)
    tl.store(y + r, tl.reshape(tl.trans(both), (N,)))
    squashed = libdevice.tanh(tl.clamp(tile, -2.0, 2.0)) + tl.erf(tile) + libdevice.pow(tl.abs(tile), tile)
    tl.store(z + r, tl.math.fma(squashed, tile, tl.sqrt_rn(tl.abs(tile))) + tl.div_rn(tile, 3.0))
    tl.store(counts + tl.arange(0, 8), tl.histogram((tile * 2).to(tl.int32), 8))


_MATMUL = {"M": "i32", "N": "i32", "K": "i32", "sam": "i32", "sbk": "i32", "scn": "i32"}
_TILES = {"BM": 32, "BN": 32, "BK": 32}
_ATTENTION = {"q": "*fp16", "k": "*fp16", "v": "*fp16", "o": "*fp16", "S": "i32", "scale": "fp32"}
_ATTENTION_TILES = {"D": 32, "BM": 32, "BN": 16}
_BLOCK = "tensordesc<fp16[32, 32]>"

# file: kernel, signature, constants, and whether Triton's own passes (the inliner above all) are run
KERNELS = {
    "matmul_f16": (matmul, {"a": "*fp16", "b": "*fp16", "c": "*fp16", **_MATMUL}, _TILES, True),
    "matmul_bf16": (matmul, {"a": "*bf16", "b": "*bf16", "c": "*bf16", **_MATMUL}, _TILES, True),
    "matmul_fp8": (matmul, {"a": "*fp8e4nv", "b": "*fp8e4nv", "c": "*fp8e4nv", **_MATMUL}, _TILES, True),
    "matmul_tf32": (matmul, {"a": "*fp32", "b": "*fp32", "c": "*fp32", **_MATMUL}, _TILES, True),
    "attention": (attention, _ATTENTION, {**_ATTENTION_TILES, "CAUSAL": False}, True),
    "attention_causal": (attention, _ATTENTION, {**_ATTENTION_TILES, "CAUSAL": True}, False),
    "split_k": (split_k, {"a": "*fp16", "b": "*fp16", "c": "*fp32", "K": "i32"}, {"N": 16, "BK": 32}, True),
    "device_descriptors": (
        device_descriptors,
        {"a": "*fp16", "b": "*fp16", "c": "*fp16", "M": "i32", "N": "i32", "K": "i32"},
        _TILES,
        True,
    ),
    "host_descriptors": (
        host_descriptors,
        {"a": _BLOCK, "b": _BLOCK, "c": "tensordesc<fp32[32, 32]>", "K": "i32"},
        _TILES,
        True,
    ),
    "scans": (scans, dict.fromkeys(("x", "gate", "total", "backward", "state", "last"), "*fp32"), {"N": 64}, False),
    "reductions": (
        reductions,
        {"x": "*fp32", "top": "*fp32", "where": "*i32", "low": "*fp32", "product": "*fp32", "bits": "*i32"},
        {"R": 16, "N": 32},
        True,
    ),
    "calls": (calls, {"x": "*i32", "y": "*i32", "N": "i32"}, {}, True),
    "rearranged": (
        rearranged,
        {"x": "*fp32", "index": "*i32", "y": "*fp32", "z": "*fp32", "counts": "*i32"},
        {"N": 32},
        True,
    ),
}


def text(name: str) -> str:
    kernel, signature, constants, optimised = KERNELS[name]
    return generic_ttir(kernel, signature, constants, optimised, debug=name == "calls")


def write_all() -> None:
    INPUTS.mkdir(exist_ok=True)
    for name in KERNELS:
        (INPUTS / f"{name}.ttir").write_text(text(name))


if __name__ == "__main__":
    import triton_kernels  # Symbols hold the module's name, which must not be __main__.

    triton_kernels.write_all()
