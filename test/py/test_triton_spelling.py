"""TTIR in the spelling of each Triton. What each version makes of it is ``tools/triton-matrix``'s to find out."""

from __future__ import annotations

import pytest
from ttir_samples import matmul

from cleave.lowering.compile_ttir import compile_ttir
from cleave.lowering.targets import Target
from cleave.lowering.triton_spelling import SUPPORTED, parse_version, spelled_for

DESCRIPTOR = '"tt.descriptor_load"(%d, %i, %j) : (!tt.tensordesc<tensor<64x64xf16>>, i32, i32) -> tensor<64x64xf16>'
LOAD = '%x = "tt.load"(%p) <{cache = 2 : i32, operandSegmentSizes = array<i32: 1, 0, 0>}> : (!tt.ptr<f16>) -> f16'


def test_what_is_known_is_left_alone() -> None:
    for version in ("3.6.0", "3.7.1"):
        assert spelled_for(version, DESCRIPTOR + LOAD) == DESCRIPTOR + LOAD


@pytest.mark.parametrize("version", ["3.8.0", "3.9.0", "3.10.1"])
def test_the_block_of_a_descriptor(version: str) -> None:
    assert "(!tt.tensordesc<64x64xf16>, i32, i32) -> tensor<64x64xf16>" in spelled_for(version, DESCRIPTOR)


@pytest.mark.parametrize(
    ("hints", "policy"),
    [
        ("cache = 2 : i32", "cache_modifier = ca, eviction_policy = evict_normal"),
        ("evict = 3 : i32", "cache_modifier = none, eviction_policy = evict_last"),
        ("evict = 2 : i32, isVolatile = false", "cache_modifier = none, eviction_policy = evict_first"),
    ],
)
def test_hints_become_a_policy(hints: str, policy: str) -> None:
    text = f'"tt.store"(%p, %x) {{{hints}}} : (!tt.ptr<f16>, f16) -> ()'
    spelled = spelled_for("3.9.0", text)
    rest = ", isVolatile = false" if "isVolatile" in hints else ""
    assert (
        spelled == f'"tt.store"(%p, %x) {{cachePolicy = #tt.cache_policy<{policy}>{rest}}} : (!tt.ptr<f16>, f16) -> ()'
    )


def test_other_attributes_stay_and_positions_do_not_move() -> None:
    spelled = spelled_for("3.9.0", f"{LOAD}\n{LOAD}")
    assert spelled.count("operandSegmentSizes = array<i32: 1, 0, 0>}>") == 2 and len(spelled.splitlines()) == 2
    assert "cache =" not in spelled


def test_the_installed_triton_keeps_loads_with_different_hints_apart() -> None:
    load = '%ta = "tt.load"(%qa) {operandSegmentSizes = array<i32: 1, 0, 0>}'
    types = ": (tensor<128x64x!tt.ptr<f16>>) -> tensor<128x64xf16>"
    second = load.replace("%ta", "%tz").replace("{op", "{cache = 2 : i32, op")
    text = matmul(square_sum=True).replace(load, f"{second} {types}\n      {load}").replace("%ta, %ta", "%tz, %tz")
    compiled = compile_ttir(text, Target.parse("sm_90"), stop="ttir")
    assert sum("tt.load" in line for line in compiled.ttir.splitlines()) == 3


def test_the_installed_triton_is_one_that_was_compared() -> None:
    from importlib.metadata import version

    assert SUPPORTED[0] <= parse_version(version("triton")) <= SUPPORTED[1]


TYPE = "!ttg.memdesc<1xi64, #ttg.swizzled_shared<{order = [0]}>, #ttg.shared_memory, mutable>"
COPY = f'"ttng.async_tma_copy_global_to_local"(%d, %i, %j, %b, %t, %p) : (i32, i32, i32, {TYPE}, i32, i1) -> ()'
PARTITIONS = f"""\
"ttg.warp_specialize"(%a, %b) ({{
  "ttg.warp_yield"() : () -> () loc(unknown)
}}, {{
  "ttg.warp_specialize.partitions"() ({{
  ^bb0(%x: i32 loc(unknown), %y: {TYPE} loc(unknown)):
    "ttg.warp_return"() : () -> () loc(unknown)
  }}) : () -> () loc(unknown)
}}) {{partitionNumWarps = array<i32: 1>, requestedRegisters = array<i32: 24>}} : (i32, {TYPE}) -> () loc(unknown)
"""


def test_operands_of_copies_are_counted() -> None:
    assert spelled_for("3.6.0", COPY) == COPY
    for version in ("3.7.1", "3.9.0"):
        assert "%p) {operandSegmentSizes = array<i32: 1, 2, 0, 1, 1, 1>} :" in spelled_for(version, COPY)


def test_captures_stand_with_the_partitions() -> None:
    assert spelled_for("3.6.0", PARTITIONS) == PARTITIONS
    for version in ("3.7.1", "3.9.0"):
        spelled = spelled_for(version, PARTITIONS)
        assert '"ttg.warp_specialize"() ({' in spelled and '"ttg.warp_specialize.partitions"(%a, %b) ({' in spelled
        assert f"  }}) : (i32, {TYPE}) -> () loc(unknown)\n}}) {{partitionNumWarps" in spelled
        assert "requestedRegisters = array<i32: 24>} : () -> () loc(unknown)" in spelled
