"""Exponentials are one instruction each, without calls of a library's function."""

from __future__ import annotations

import pytest
from test_warp_specialised import SM_90, lowered
from test_warp_specialised_masks import attention

from cleave.lowering.compile_ttir import compile_ttir
from cleave.lowering.intrinsics import with_intrinsics

TILE = "tensor<64x128xf32, #ttg.nvidia_mma<{versionMajor = 3}>>"
OPS = """%1 = "math.exp2"(%0#1) <{fastmath = #arith.fastmath<none>}> : (TYPE) -> TYPE loc(unknown)"""


@pytest.mark.parametrize("type_", ["f32", "tensor<64xf32>", TILE])
@pytest.mark.parametrize(("version", "symbol"), [("3.6.0", "ftz.f"), ("3.9.1", "ftz.f32")])
def test_as_each_version_calls_it(type_: str, version: str, symbol: str) -> None:
    found = with_intrinsics(version, OPS.replace("TYPE", type_))
    what = f'libname = "", libpath = "", pure = true, symbol = "llvm.nvvm.ex2.approx.{symbol}"'  # pure: may be moved
    assert with_intrinsics(version, 2 * (OPS.replace("TYPE", type_) + "\n")) == 2 * f"{found}\n"
    assert found == f'%1 = "tt.extern_elementwise"(%0#1) <{{{what}}}> : ({type_}) -> {type_} loc(unknown)'


@pytest.mark.parametrize(("version", "type_"), [("3.6.0", "f64"), ("3.6.0", "tensor<64xf16>"), ("3.7.0", "f32")])
def test_what_stays(version: str, type_: str) -> None:
    text = OPS.replace("TYPE", type_)
    assert with_intrinsics(version, text) == text


def test_attention() -> None:
    _, (kernel,), _ = lowered(attention("plain", lambda b, z: z))
    compiled = compile_ttir(kernel.text, SM_90, stop="ptx")
    assert "ex2.approx.ftz.f32" in compiled.ptx and "exp2f" not in compiled.llir
