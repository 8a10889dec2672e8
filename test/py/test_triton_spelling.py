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
