"""The verifier of TTIR: what Triton accepts silently or aborts on is found, at its place, and good kernels pass."""

from __future__ import annotations

import pytest
from ttir_samples import attention, function, matmul

from cleave.bindings import context, ir
from cleave.errors import CleaveError, CleaveErrors
from cleave.lowering.ttir_race import hold_back_register_operands, races
from cleave.lowering.verify_ttir import check_kernel, verify_ttir

X = {"x": "!tt.ptr<f32>", "y": "!tt.ptr<i1>", "n": "i32"}
AT = 'loc("user.py":7:2)'


def problems(text: str, num_stages: int | None = None) -> list[CleaveError]:
    with context(allow_unregistered=True):
        return verify_ttir(ir.Module.parse(text).operation, num_stages=num_stages)


@pytest.mark.parametrize("text", [matmul(), attention(), function("", X)], ids=["matmul", "attention", "empty"])
def test_good_kernels_pass(text: str) -> None:
    assert problems(text) == []


R = '%r = "tt.make_range"() {start = 0 : i32, end = 64 : i32} : () -> tensor<64xi32>\n'
F = R + "%f = arith.sitofp %r : tensor<64xi32> to tensor<64xf32>\n"
P = F + '%p = "tt.splat"(%x) : (!tt.ptr<f32>) -> tensor<64x!tt.ptr<f32>>\n'
RMW = '%o = "tt.atomic_rmw"(%p, {value}) {{atomic_rmw_op = {code} : i32, sem = 1 : i32, scope = 1 : i32}} : '


def dot(a: str, b: str, c: str, shapes: tuple[str, str, str] = ("32x32", "32x32", "32x32"), attrs: str = "{}") -> str:
    ta, tb, tc = (f"tensor<{shape}x{element}>" for shape, element in zip(shapes, (a, b, c), strict=True))
    zero = "0" if c.startswith("i") else "0.0"
    one = "1" if a.startswith("i") else "1.0"
    return f"""
    %a = arith.constant dense<{one}> : {ta}
    %b = arith.constant dense<{one}> : {tb}
    %c = arith.constant dense<{zero}> : {tc}
    %d = "tt.dot"(%a, %b, %c) {attrs} : ({ta}, {tb}, {tc}) -> {tc} {AT}
"""


def reduction(axis: str) -> str:
    return f"""{F}
    %s = "tt.reduce"(%f) ({{
    ^bb0(%l: f32, %m: f32):
      %lm = arith.addf %l, %m : f32
      "tt.reduce.return"(%lm) : (f32) -> ()
    }}) {{axis = {axis}}} : (tensor<64xf32>) -> f32 {AT}
"""


def descriptor(strides: str = "%w, %one", block: str = "16x64xf16") -> str:
    return f"""
    %one = arith.constant 1 : i64
    %w = arith.constant 64 : i64
    %b = "tt.bitcast"(%x) : (!tt.ptr<f32>) -> !tt.ptr<f16>
    %d = "tt.make_tensor_descriptor"(%b, %n, %n, {strides})
       : (!tt.ptr<f16>, i32, i32, i64, i64) -> !tt.tensordesc<tensor<{block}>> {AT}
"""


LOAD_64 = (
    '%t = "tt.descriptor_load"(%d, {indices}) : (!tt.tensordesc<tensor<16x64xf16>>, {types}) -> tensor<16x64xf16> ' + AT
)
FOR = "%c = arith.constant 1 : i32\nscf.for %i = %c to %n step %c : i32 {{ scf.yield }} {{{hint}}} " + AT

BAD = {
    "axis of the grid": (f'%p = "tt.get_program_id"() {{axis = 3 : i32}} : () -> i32 {AT}', "axis must be 0, 1 or 2"),
    "reduce axis": (reduction("1 : i32"), "axis 1 is out of range for rank 1"),
    "negative reduce axis": (reduction("-1 : i32"), "axis -1 is out of range"),
    "reduce axis of i64": (reduction("0 : i64"), "'tt.reduce' attribute 'axis' must be i32, not 0 : i64"),
    "expand_dims": (
        R + f'%e = "tt.expand_dims"(%r) {{axis = 7 : i32}} : (tensor<64xi32>) -> tensor<1x64xi32> {AT}',
        "axis 7",
    ),
    "expand_dims type": (
        R + f'%e = "tt.expand_dims"(%r) {{axis = 1 : i32}} : (tensor<64xi32>) -> tensor<1x64xi32> {AT}',
        "at axis 1 of tensor<64xi32> is not tensor<1x64xi32>",
    ),
    "trans": (
        "%z = arith.constant dense<0> : tensor<8x16xi32>\n"
        f'%e = "tt.trans"(%z) {{order = array<i32: 1, 1>}} : (tensor<8x16xi32>) -> tensor<16x8xi32> {AT}',
        r"order \[1, 1\] is no permutation",
    ),
    "broadcast": (
        R + f'%e = "tt.broadcast"(%r) : (tensor<64xi32>) -> tensor<32xi32> {AT}',
        "cannot make tensor<32xi32>",
    ),
    "range": (
        f'%e = "tt.make_range"() {{start = 0 : i32, end = 32 : i32}} : () -> tensor<64xi32> {AT}',
        "does not fill",
    ),
    "power of two": (f"%z = arith.constant dense<0> : tensor<48xi32> {AT}", "must be powers of two"),
    "too large": (f"%z = arith.constant dense<0> : tensor<2048x1024xi32> {AT}", "more than 1048576 elements"),
    "rank 0": (f"%z = arith.constant dense<0> : tensor<i32> {AT}", "rank 0"),
    "misspelt": (
        '%l = "tt.load"(%x) {operandSegmentSizes = array<i32: 1, 0, 0>, cahce = 2 : i32} : (!tt.ptr<f32>) -> f32 ' + AT,
        "'tt.load' has no attribute 'cahce'; Triton would ignore it\nnote: known: cache, evict, isVolatile",
    ),
    "missing": (f'%l = "tt.load"(%x) : (!tt.ptr<f32>) -> f32 {AT}', "needs the attribute 'operandSegmentSizes'"),
    "hidden": (
        f'%p = "tt.get_program_id"() <{{axis = 2 : i32, axes = 3 : i32}}> : () -> i32 {AT}',
        "has no attribute 'axes'",
    ),
    "unknown op": (f'"tt.laod"(%x) : (!tt.ptr<f32>) -> () {AT}', "'tt.laod' is no op"),
    "i1 in memory": (
        f'%l = "tt.load"(%y) {{operandSegmentSizes = array<i32: 1, 0, 0>}} : (!tt.ptr<i1>) -> i1 {AT}',
        "pointer to i1",
    ),
    "load of a number": (
        f'%l = "tt.load"(%n) {{operandSegmentSizes = array<i32: 1, 0, 0>}} : (i32) -> i32 {AT}',
        "needs a pointer, not i32",
    ),
    "cache": (
        f'%l = "tt.load"(%x) {{operandSegmentSizes = array<i32: 1, 0, 0>, cache = 3 : i32, evict = 3 : i32}}'
        f" : (!tt.ptr<f32>) -> f32 {AT}",
        "ptxas takes a cache modifier or an eviction priority, not both",
    ),
    "no lowering": (F + f"%t = math.tanh %f : tensor<64xf32> {AT}", "no lowering of 'math.tanh' on tensors.*libdevice"),
    "negf": (F + f"%t = arith.negf %f : tensor<64xf32> {AT}", "no lowering of 'arith.negf'"),
    "fp8 cast": (F + f"%t = arith.truncf %f : tensor<64xf32> to tensor<64xf8E5M2> {AT}", "with fp8.*tt.fp_to_fp"),
    "constant": (f"%t = arith.constant dense<[0, 1]> : tensor<2xi32> {AT}", "different elements"),
    "dot mixed": (dot("f16", "bf16", "f32"), "operands are f16 and bf16"),
    "dot accumulator": (dot("bf16", "bf16", "bf16"), "bf16 cannot accumulate in bf16.*allowed: f32"),
    "dot shape": (dot("f16", "f16", "f32", ("32x64", "32x32", "32x32")), "shapes do not match"),
    "dot precision": (dot("f32", "f32", "f32", attrs="{inputPrecision = 7 : i32}"), "inputPrecision must be 0 to 4"),
    "dot attribute": (dot("f32", "f32", "f32", attrs="{allowTF32 = true}"), "no attribute 'allowTF32'"),
    "atomic add on floats": (
        P + RMW.format(value="%f", code=4) + f"(tensor<64x!tt.ptr<f32>>, tensor<64xf32>) -> tensor<64xf32> {AT}",
        r"add works on integers, not f32\nnote: use 5",
    ),
    "descriptor stride": (descriptor("%w, %w"), "last stride of a tensor descriptor must be the constant 1"),
    "descriptor tile": (
        descriptor()
        + '%t = "tt.descriptor_load"(%d, %n, %n) : (!tt.tensordesc<tensor<16x64xf16>>, i32, i32) -> tensor<64x16xf16> '
        + AT,
        "the tile does not fit",
    ),
    "descriptor index": (
        descriptor().replace(AT, "") + LOAD_64.format(indices="%w, %w", types="i64, i64"),
        "needs indices of i32",
    ),
    "descriptor rank": (
        '%h = "test.value"() : () -> !tt.tensordesc<tensor<1x1x1x1x8x8xf16>>\n'
        '%t = "tt.descriptor_load"(%h, %n, %n, %n, %n, %n, %n) : (!tt.tensordesc<tensor<1x1x1x1x8x8xf16>>, '
        "i32, i32, i32, i32, i32, i32) -> tensor<8x8xf16> " + AT,
        "has at most 5 dimensions",
    ),
    "descriptor block": (descriptor(block="16x4xf16"), "at least 16 bytes"),
    "descriptor indices": (
        descriptor().replace(AT, "") + LOAD_64.format(indices="%n", types="i32"),
        "needs 2 indices, not 1",
    ),
    "num_stages": (FOR.format(hint='tt.num_stages = "3"'), "hint 'tt.num_stages' must be i32"),
    "loop hint": (FOR.format(hint="tt.num_stage = 3 : i32"), "no hint 'tt.num_stage'"),
    "inline assembly": (
        '%v = "tt.elementwise_inline_asm"(%n) {asm_string = "mov.u32 $0, $1;", constraints = "=r", pure = true, '
        f"packed_element = 1 : i32}} : (i32) -> i32 {AT}",
        "1 results and 1 operands has 1 constraints",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_problem_is_found_at_its_place(case: str) -> None:
    body, message = BAD[case]
    (problem,) = problems(function(body, X))
    assert str(problem.location) == "user.py:7:2", problem
    with pytest.raises(CleaveError, match=f"(?s){message}"):
        raise problem


def test_good_descriptors_and_dots_pass() -> None:
    body = descriptor() + LOAD_64.format(indices="%n, %n", types="i32, i32")
    assert problems(function(body, X)) == []
    for types in (("f16", "f16", "f16"), ("f8E4M3FN", "f8E5M2", "f32"), ("f64", "f64", "f64"), ("i8", "i8", "i32")):
        assert problems(function(dot(*types), X)) == []


def test_names_and_the_number_of_functions() -> None:
    (bad_name,) = problems(function("", X, "k.x-y"))
    assert "'k.x-y' is no name for a kernel" in bad_name.message
    assert str(bad_name.location) == "sample.mlir:1:1"
    (none,) = problems("module {}")
    assert "exactly one public tt.func, not 0 (none)" in none.message
    two = function("", X).replace(
        "module {", "module {" + function("", X, "other").split("module {")[1].rsplit("}", 1)[0]
    )
    (many,) = problems(two)
    assert "not 2 (@other, @k)" in many.message


def test_argument_hints() -> None:
    (wrong,) = problems(function("", X).replace("tt.divisibility = 16 : i32", "tt.divisibility = 16 : i64", 1))
    assert "argument 0: hint 'tt.divisibility' must be i32" in wrong.message
    (unknown,) = problems(function("", X).replace("tt.divisibility = 16", "tt.divisible = 16", 1))
    assert "argument 0 has no hint 'tt.divisible'" in unknown.message


def test_all_problems_are_reported() -> None:
    body = dot("f16", "bf16", "f32") + f'%p = "tt.get_program_id"() {{axis = 3 : i32}} : () -> i32 {AT}'
    text = function(body, X, "k-1")
    assert len(problems(text)) == 3
    with context(allow_unregistered=True), pytest.raises(CleaveErrors) as caught:
        check_kernel(ir.Module.parse(text).operation)
    assert len(caught.value.errors) == 3


# --- the race ---------------------------------------------------------------------------------------------------------


def test_a_load_that_feeds_a_dot_and_registers_in_a_pipelined_loop() -> None:
    (race,) = problems(matmul(square_sum=True), num_stages=3)
    assert "one load feeds tt.dot and other code in a pipelined loop" in race.message
    assert str(race.location) == "sample.mlir:20:7"


def test_without_pipelining_there_is_no_race() -> None:
    assert problems(matmul(square_sum=True), num_stages=1) == []
    end = "tensor<64x128x!tt.ptr<f16>>\n    }"
    assert matmul(square_sum=True).count(end) == 1
    unpipelined = matmul(square_sum=True).replace(end, f"{end} {{tt.num_stages = 1 : i32}}")
    assert problems(unpipelined, num_stages=3) == []


def _second_load(attributes: str) -> str:
    """The matmul whose sum of squares has a load of its own."""
    first, rest = matmul(square_sum=True).split('      %tb = "tt.load"', 1)
    a, pointers = "tensor<128x64xf16>", "tensor<128x64x!tt.ptr<f16>>"
    again = f'      %again = "tt.load"(%qa) {{operandSegmentSizes = array<i32: 1, 0, 0>{attributes}}}'
    again += f" : ({pointers}) -> {a}\n"
    return first + again + '      %tb = "tt.load"' + rest.replace("arith.mulf %ta, %ta", "arith.mulf %again, %again")


def test_a_second_load_counts_only_if_triton_keeps_it_apart() -> None:
    assert len(problems(_second_load(""))) == 1  # merged by common subexpression elimination
    assert problems(_second_load(", cache = 2 : i32")) == []


def test_a_transposed_tile_still_feeds_the_dot() -> None:
    text = attention()
    assert problems(text) == []
    mixed = text.replace(
        "%ph = arith.truncf %p",
        "%kf = arith.extf %tk : tensor<64x64xf16> to tensor<64x64xf32>\n      %ph = arith.truncf %kf",
    )
    (race,) = problems(mixed)
    assert "one load feeds tt.dot" in race.message


def test_products_that_read_registers_of_the_next_iteration() -> None:
    """On an H200 with Triton 3.6 such loops gave results that varied; attention waits for its scores, and is right."""
    load = '%ta = "tt.load"(%qa) {operandSegmentSizes = array<i32: 1, 0, 0>}'
    text = matmul().replace(load, load.replace("%ta", "%tl"))
    at = text.index('      %dot = "tt.dot"')
    computed = text[:at] + "      %ta = arith.addf %tl, %tl : tensor<128x64xf16>\n" + text[at:]
    with context(allow_unregistered=True), ir.Location.unknown():
        module = ir.Module.parse(computed).operation
        assert ["wgmma" in str(error) for _, error in races(module, 3)] == [True]
        assert not races(module, 1)
        hold_back_register_operands(module, 3)
        assert not races(module, 3) and str(module).count("tt.num_stages = 1") == 1
        for right in (matmul(), attention()):
            assert not races(ir.Module.parse(right).operation, 3)
