"""Scheduled kernels lowered to TTIR compute what the reference executor says of the source."""

from __future__ import annotations

import random
import re
from typing import Literal

import graphs
import numpy as np
import one_kernel
import pytest
from lowered import NUMPY, lower, run_lowered

from cleave.bindings import context, ir
from cleave.dialects.dims import parse
from cleave.dialects.given_sizes import LARGEST_EXTENT
from cleave.dialects.graph import Graph, GraphBuilder
from cleave.errors import CleaveError
from cleave.lowering.emit import KernelModule, kernel_modules
from cleave.passes.graph_io import from_graph
from cleave.passes.tile_io import from_tile_program
from cleave.reference import run
from cleave.schedule.scheduler import ScheduleOptions, schedule

TOLERANCE = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 3e-6, "f64": 1e-13}


def texts(graph: Graph, sizes: dict[str, int]) -> tuple[str, str]:
    """The graph as a function, and its schedule."""
    graph = graph.deduplicated()
    scheduled = schedule(graph, ScheduleOptions(sizes=sizes, max_tilings=4))
    with context(), ir.Location.unknown():
        plain, tiled = ir.Module.create(), ir.Module.create()
        from_graph(graph, plain)
        from_tile_program(scheduled.program, tiled)
        return str(plain), str(tiled)


def inputs_for(graph: Graph, sizes: dict[str, int], scale: float = 1.0) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    known = {**sizes, **graph.extents}
    shapes = [[dim.size.evaluate(known) for dim in value.dims] for value in graph.inputs]
    arrays = [rng.standard_normal(shape) * scale for shape in shapes]
    return [array.astype(NUMPY[value.dtype]) for array, value in zip(arrays, graph.inputs, strict=True)]


def expected_results(plain: str, name: str, inputs: list[np.ndarray], sizes: dict[str, int]) -> list[np.ndarray]:
    with context(), ir.Location.unknown():
        return run(ir.Module.parse(plain), name, inputs, precision="f64", sizes=sizes)


def assert_same(graph: Graph, sizes: dict[str, int], schedule_sizes: dict[str, int] | None = None) -> None:
    sizes = {name: n for name, n in sizes.items() if name not in graph.extents}
    plain, tiled = texts(graph, schedule_sizes or sizes)
    inputs = inputs_for(graph, sizes)
    expected = expected_results(plain, graph.name, inputs, sizes)
    actual = run_lowered(lower(tiled), graph.name, inputs, sizes)
    for one, other, value in zip(expected, actual, graph.outputs, strict=True):
        scale = np.nanmax(np.abs(one), initial=1e-30)
        np.testing.assert_allclose(other.astype(np.float64), one, rtol=0, atol=TOLERANCE[value.dtype] * scale)


SMALL = {"h": 2, "m": 37, "n": 70, "k": 45, "f": 40, "o": 33}


@pytest.mark.parametrize(
    "name", ["matmul", "matmul_rowsum", "attention", "rmsnorm_matmul", "softmax", "variance", "gated_mlp"]
)
def test_graphs(name: str) -> None:
    assert_same(getattr(graphs, name)(), SMALL)


# --- single ops -------------------------------------------------------------------------------------------------------

UNARY = {
    "neg": "any", "abs": "any", "exp": "any", "exp2": "any", "log": "positive", "sqrt": "positive", "rsqrt": "positive",
    "tanh": "any", "erf": "any", "sin": "any", "cos": "any", "sigmoid": "any",
}  # fmt: skip
FLOATS = ["f16", "bf16", "f32", "f64"]
SINGLE = {
    "f16": 1e-3,
    "bf16": 8e-3,
    "f32": 2e-6,
    "f64": 1e-14,
}  # relative, for each element: one rounding and a few ulp
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 100.0, -100.0]


def random_array(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == "i1":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.startswith("i"):
        return rng.integers(-100, 100, shape).astype(NUMPY[dtype])
    array = rng.standard_normal(shape) * 3
    array.flat[: len(SPECIAL)] = SPECIAL[: array.size]
    return array.astype(NUMPY[dtype])


def check(
    text: str,
    inputs: list[np.ndarray],
    *,
    precision: Literal["f64", "declared"] = "f64",
    rtol: float = 0.0,
    sizes: dict[str, int] | None = None,
) -> None:
    sizes = sizes or {"m": one_kernel.M, "n": one_kernel.N}
    with context(), np.errstate(all="ignore"):
        expected = run(ir.Module.parse(text), "f", inputs, precision=precision, sizes=sizes)
    actual = run_lowered(lower(text), "f", inputs, sizes)
    for one, other in zip(expected, actual, strict=True):
        np.testing.assert_allclose(other.astype(np.float64), one.astype(np.float64), rtol=rtol, atol=1e-30)


def unary_module(dtype: str) -> str:
    names = ("m", "n")
    body = "".join(one_kernel.op(f"o{i}", name, [("t0", names, dtype)], names, dtype) for i, name in enumerate(UNARY))
    return one_kernel.module([(names, dtype)], [(names, dtype)] * len(UNARY), body)


@pytest.mark.parametrize("dtype", FLOATS)
def test_unary_ops(dtype: str) -> None:
    check(
        unary_module(dtype),
        [random_array((one_kernel.M, one_kernel.N), dtype)],
        precision="declared",
        rtol=SINGLE[dtype],
    )


BINARY = ["add", "sub", "mul", "div", "max", "min", "pow"]
PREDICATES = ["lt", "le", "eq", "ne", "gt", "ge"]


def binary_module(dtype: str) -> str:
    """Operands of different dims: [n, m] is transposed, [n] broadcast."""
    names = ("m", "n")
    operands = [("t0", ("n", "m"), dtype), ("t1", ("n",), dtype)]
    ops = [name for name in BINARY if dtype.startswith(("f", "b")) or name != "pow"]
    body = "".join(one_kernel.op(f"o{i}", name, operands, names, dtype) for i, name in enumerate(ops))
    first = len(ops)
    for i, predicate in enumerate(PREDICATES):
        body += one_kernel.op(f"o{first + i}", "cmp", operands, names, "i1", f'predicate = "{predicate}"')
    last = first + len(PREDICATES)
    body += one_kernel.op(f"o{last}", "select", [(f"o{first}", names, "i1"), *operands], names, dtype)
    outputs = [(names, dtype)] * len(ops) + [(names, "i1")] * len(PREDICATES) + [(names, dtype)]
    return one_kernel.module([(("n", "m"), dtype), (("n",), dtype)], outputs, body)


@pytest.mark.parametrize("dtype", [*FLOATS, "i8", "i16", "i32", "i64"])
def test_binary_ops(dtype: str) -> None:
    a, b = random_array((one_kernel.N, one_kernel.M), dtype), random_array((one_kernel.N,), dtype, 1)
    if dtype.startswith("i"):
        b[b == 0] = 7
    check(binary_module(dtype), [a, b], precision="declared", rtol=SINGLE.get(dtype, 0.0))


def test_booleans() -> None:
    names = ("m", "n")
    operands = [("t0", names, "i1"), ("t1", ("m",), "i1")]
    body = "".join(one_kernel.op(f"o{i}", name, operands, names, "i1") for i, name in enumerate(["mul", "min", "max"]))
    body += one_kernel.op("o3", "reduce", [("t0", names, "i1")], ("m",), "i1", 'kind = "min", over = ["n"]')
    body += one_kernel.op("o4", "reduce", [("t0", names, "i1")], ("n",), "i1", 'kind = "max", over = ["m"]')
    text = one_kernel.module(
        [(names, "i1"), (("m",), "i1")], [(names, "i1")] * 3 + [(("m",), "i1"), (("n",), "i1")], body
    )
    check(text, [random_array((one_kernel.M, one_kernel.N), "i1"), random_array((one_kernel.M,), "i1", 1)])


CAST_TYPES = ["f16", "bf16", "f32", "f64", "f8E4M3FN", "f8E5M2", "i1", "i8", "i16", "i32", "i64"]


def cast_module(source: str) -> tuple[str, list[str]]:
    targets = [dtype for dtype in CAST_TYPES if dtype != source]
    names = ("m", "n")
    body = "".join(
        one_kernel.op(f"o{i}", "cast", [("t0", names, source)], names, dtype) for i, dtype in enumerate(targets)
    )
    return one_kernel.module([(names, source)], [(names, dtype) for dtype in targets], body), targets


@pytest.mark.parametrize("dtype", CAST_TYPES)
def test_casts(dtype: str) -> None:
    array = random_array((one_kernel.M, one_kernel.N), dtype)
    if not dtype.startswith("i"):  # what an integer makes of inf and NaN, and i8 of 100, is not defined
        array = np.where(np.isfinite(array.astype(np.float64)), array.astype(np.float64), 3.0).astype(array.dtype)
    check(cast_module(dtype)[0], [array], precision="declared")


@pytest.mark.parametrize("dtype", [*FLOATS, "i32", "i64"])
def test_reductions(dtype: str) -> None:
    names = ("m", "n")
    kinds = ["sum", "max", "min", "prod"]
    outputs = []
    body = ""
    for kind in kinds:
        for over, kept in ((["n"], ("m",)), (["m"], ("n",)), (["m", "n"], ())):
            attrs = f'kind = "{kind}", over = {over}'.replace("'", '"')
            body += one_kernel.op(f"o{len(outputs)}", "reduce", [("t0", names, dtype)], kept, dtype, attrs)
            outputs.append((kept, dtype))
    array = random_array((one_kernel.M, one_kernel.N), dtype)
    if not dtype.startswith("i"):
        array = (np.random.default_rng(0).random((one_kernel.M, one_kernel.N)) + 0.5).astype(NUMPY[dtype])
    check(
        one_kernel.module([(names, dtype)], outputs, body),
        [array],
        precision="declared",
        rtol=4 * SINGLE.get(dtype, 0.0),
    )


# --- contractions -----------------------------------------------------------------------------------------------------

SIZES = {"p": 50, "q": 27, "k": 31, "l": 2, "g": 4, "b": 2, "m": 3, "s": 15}
# operand dims, operand dtypes, over, result dims, result dtype, whether it becomes a tt.dot
CONTRACTIONS = {
    "plain": ("pk", "kq", "f16", "f16", "k", "pq", "f32", True),
    "transposed operands": ("kp", "qk", "f16", "f16", "k", "pq", "f16", True),
    "transposed result": ("pk", "kq", "bf16", "bf16", "k", "qp", "f32", True),
    "bf16": ("pk", "kq", "bf16", "bf16", "k", "pq", "bf16", True),
    "f32": ("pk", "kq", "f32", "f32", "k", "pq", "f32", True),
    "f64": ("pk", "kq", "f64", "f64", "k", "pq", "f64", True),
    "mixed": ("pk", "kq", "f16", "bf16", "k", "pq", "f32", True),
    "widened": ("pk", "kq", "f16", "f32", "k", "pq", "f32", True),
    "fp8": ("pk", "kq", "f8E4M3FN", "f8E5M2", "k", "pq", "f32", True),
    "fp8 with f16": ("pk", "kq", "f8E4M3FN", "f16", "k", "pq", "f32", True),
    "packed rows": ("gsk", "kq", "f16", "f16", "k", "gsq", "f32", True),
    "packed rows, mixed order": ("gsk", "kq", "f16", "f16", "k", "gqs", "f32", True),
    "two dims summed": ("plk", "kql", "f16", "f16", "kl", "pq", "f32", True),
    "few rows": ("mk", "kq", "f16", "f16", "k", "mq", "f32", True),  # 8 rows: as columns of the transposed product
    "too few rows": ("gk", "kq", "f16", "f16", "k", "gq", "f32", False),
    "a vector": ("pk", "k", "f16", "f16", "k", "p", "f16", False),
    "vectors": ("k", "k", "f16", "f16", "k", "", "f32", False),
    "batch": ("bsk", "bkq", "f16", "f16", "k", "bsq", "f32", False),
    "elementwise": ("pq", "pq", "f16", "f16", "q", "p", "f32", False),
    "summed in one only": ("pk", "q", "f16", "f16", "k", "pq", "f32", False),
    "integers": ("sk", "kq", "i8", "i8", "k", "sq", "i32", False),
    "wide integers": ("sk", "kq", "i32", "i32", "k", "sq", "i32", False),
}


def contraction_module(case: str) -> str:
    a, b, left, right, over, result, dtype, _ = CONTRACTIONS[case]
    attrs = "over = [" + ", ".join(f'"{name}"' for name in over) + "]"
    body = one_kernel.op("o0", "contract", [("z0", a, left), ("z1", b, right)], result, dtype, attrs)
    text = one_kernel.module([(a, left), (b, right)], [(result, dtype)], body)
    # A product over padding must not see the fill value.
    return text.replace("%t0 =", "%z0 =").replace("%t1 =", "%z1 =").replace("fill = 1", "fill = 0")


@pytest.mark.parametrize("case", CONTRACTIONS)
def test_contractions(case: str) -> None:
    a, b, left, right, _, result, dtype, dot = CONTRACTIONS[case]
    text = contraction_module(case)
    inputs = [
        random_array(tuple(SIZES[n] for n in dims), kind, i) for i, (dims, kind) in enumerate(((a, left), (b, right)))
    ]
    for array in inputs:
        if array.dtype.kind != "i":
            array[~np.isfinite(array.astype(np.float64))] = 1
            array[np.abs(array.astype(np.float64)) > 50] = 2
    module = lower(text)
    with module.context:
        assert ('"tt.dot"' in str(module)) == dot
    (actual,) = run_lowered(module, "f", inputs, SIZES)
    exact = [array.astype(np.int64 if dtype.startswith("i") else np.float64) for array in inputs]
    expected = np.einsum(f"{a},{b}->{result}", *exact)
    tolerance = {"f16": 1e-3, "bf16": 8e-3, "f32": 2e-6, "f64": 1e-14}.get(dtype, 0)
    np.testing.assert_allclose(actual.astype(np.float64), expected, rtol=0, atol=tolerance * np.abs(expected).max())


def test_tf32_operands_are_rounded_to_nearest() -> None:
    body = "".join(
        one_kernel.op(f"w{i}", "cast", [(f"t{i}", dims, "f32")], dims, "tf32") for i, dims in enumerate(("pk", "kq"))
    )
    body += one_kernel.op("o0", "contract", [("w0", "pk", "tf32"), ("w1", "kq", "tf32")], "pq", "f32", 'over = ["k"]')
    text = one_kernel.module([("pk", "f32"), ("kq", "f32")], [("pq", "f32")], body).replace("fill = 1.0", "fill = 0.0")
    rng = np.random.default_rng(0)
    a, b = rng.random((50, 31)).astype(np.float32), rng.random((31, 27)).astype(np.float32)
    (actual,) = run_lowered(lower(text), "f", [a, b], SIZES)

    def rounded(x: np.ndarray) -> np.ndarray:
        fraction, exponent = np.frexp(x.astype(np.float64))
        return np.ldexp(np.rint(fraction * 2**11) / 2**11, exponent)

    np.testing.assert_allclose(actual, rounded(a) @ rounded(b), rtol=2e-6)


# --- around the kernel ------------------------------------------------------------------------------------------------


def test_a_load_that_feeds_a_dot_and_a_reduction_is_loaded_twice() -> None:
    graph = graphs.matmul_and_rowsum()
    sizes = {"m": 70, "k": 90, "n": 80}
    assert_same(graph, sizes)
    module = lower(texts(graph, {"m": 65536, "k": 4096, "n": 64})[1])  # long and narrow: x is read once, in one loop
    with module.context:
        loads = [line for line in str(module).splitlines() if '"tt.load"' in line]
    assert len(loads) == 3
    assert sum("cache = 2 : i32" in line for line in loads) == 1


def test_other_graphs() -> None:
    assert_same(graphs.attention(mask=True, lse=True, division_last=True), SMALL)
    assert_same(graphs.split_attention(), {**SMALL, "s": 3})
    assert_same(graphs.split_matmul(), {**SMALL, "s": 4})
    assert_same(graphs.rmsnorm_matmul(scale_last=True), SMALL)


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs(seed: int) -> None:
    graph = graphs.random_graph(seed, narrow=False)
    names = {symbol for value in graph.inputs for dim in value.dims for symbol in dim.size.symbols}
    assert_same(graph, {name: 3 + (7 * i + seed) % 20 for i, name in enumerate(sorted(names))})


@pytest.mark.parametrize("empty", [{"m": 0}, {"n": 0}, {"k": 0}])
def test_empty_dims(empty: dict[str, int]) -> None:
    assert_same(graphs.matmul(), {**SMALL, **empty}, {"m": 64, "n": 64, "k": 64})


def test_strides_known_at_run_time_only() -> None:
    text = one_kernel.module(
        [(("m", "n"), "f32")],
        [(("n", "m"), "f32")],
        one_kernel.op("o0", "neg", [("t0", ("m", "n"), "f32")], ("n", "m"), "f32"),
    )
    text = text.replace(
        'private @k(%a0: tensor<?x?xf32, #cleave.dims<["m", "n"]>>',
        'private @k(%a0: tensor<?x?xf32, #cleave.dims<["m", "n"]>> {cleave.strides = "dynamic"}',
    )
    module = lower(text)
    (kernel,) = kernels_of(module)
    assert kernel.arguments == ("in:0", "in:1", "stride:0:0", "stride:0:1", "size:m", "size:n")
    assert "arg_attrs = [{}, {tt.divisibility = 16 : i32}" in kernel.text
    array = random_array((one_kernel.M, one_kernel.N), "f32")
    (result,) = run_lowered(module, "f", [array], {"m": one_kernel.M, "n": one_kernel.N})
    np.testing.assert_array_equal(result, -array.T)


def test_facts_give_divisibility_and_bounds() -> None:
    names = ("m", "n")
    text = one_kernel.module(
        [(names, "f32")], [(names, "f32")], one_kernel.op("o0", "neg", [("t0", names, "f32")], names, "f32")
    )
    (plain,) = kernels_of(lower(text))
    assert "tensor<8x32xi64>" in plain.text  # rows may be 2^31 elements long
    facts = text.replace(
        '-> (tensor<?x?xf32, #cleave.dims<["m", "n"]>>) {',
        '-> (tensor<?x?xf32, #cleave.dims<["m", "n"]>>) attributes {cleave.facts = ["n = 16*n1", "n <= 65536"]} {',
    )
    assert facts != text
    (known,) = kernels_of(lower(facts))
    assert known.arguments == ("in:0", "in:1", "size:n", "size:m")
    assert (
        "arg_attrs = [{tt.divisibility = 16 : i32}, {tt.divisibility = 16 : i32}, {tt.divisibility = 16 : i32}, {}]"
        in known.text
    )
    assert "tensor<8x32xi64>" not in known.text


def kernels_of(module: ir.Module) -> list[KernelModule]:
    with module.context:
        return kernel_modules(module)


REFUSED = {
    "48 rows": (
        lambda text: text.replace('tensor<8x32xf32, #cleave.dims<["m=8"', 'tensor<24x32xf32, #cleave.dims<["m=24"'),
        "dimension 'm' of a tile has extent 24; Triton's tiles are powers of two",
    ),
    "too large": (
        lambda text: text.replace(
            'tensor<8x32xf32, #cleave.dims<["m=8"', 'tensor<65536x32xf32, #cleave.dims<["m=65536"'
        ),
        "has 2097152 elements; Triton's tiles have at most 2\\^20",
    ),
    "a view": (
        lambda text: text.replace('"cleave.neg"(%t0) {}', '"cleave.rename"(%t0) {from = "m", to = "m"}'),
        "'cleave.rename' cannot be lowered to Triton: does not occur in kernels",
    ),
    "axis": (
        lambda text: text.replace(
            "%c0 = arith", '%p = "cleave.program_id"() {axis = 3 : i64} : () -> index\n%c0 = arith'
        ),
        "the grid has axes 0 to 2, not 3",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_lowered_says_so_at_its_place(case: str) -> None:
    names = ("m", "n")
    text = one_kernel.module(
        [(names, "f32")], [(names, "f32")], one_kernel.op("o0", "neg", [("t0", names, "f32")], names, "f32")
    )
    change, message = REFUSED[case]
    changed = change(text)
    assert changed != text
    with pytest.raises(CleaveError, match=message) as caught:
        lower(changed)
    assert re.fullmatch(r"-:\d+:\d+", str(caught.value.location))


# --- widths of indices ------------------------------------------------------------------------------------------------

INDEX_OPS = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
    "divui": lambda a, b: a // b,
    "remui": lambda a, b: a % b,
    "minui": min,
    "maxui": max,
    "minsi": min,
    "maxsi": max,
}


def index_module(lines: list[str], result: str) -> str:
    return f"""
func.func @f() -> tensor<1xi64, #cleave.dims<["x=1"]>> {{
  %r = "cleave.alloc"() : () -> tensor<1xi64, #cleave.dims<["x=1"]>>
  func.call @k(%r) {{cleave.grid = ["1"]}} : (tensor<1xi64, #cleave.dims<["x=1"]>>) -> ()
  return %r : tensor<1xi64, #cleave.dims<["x=1"]>>
}}
func.func private @k(%r: tensor<1xi64, #cleave.dims<["x=1"]>> {{cleave.out}}) attributes {{cleave.kernel}} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  {chr(10).join(lines)}
  %t = "cleave.splat"({result}) : (index) -> tensor<i64, #cleave.dims<[]>>
  "cleave.store"(%t, %r, %c0, %c1) {{operandSegmentSizes = array<i32: 1, 1, 1, 1>}}
    : (tensor<i64, #cleave.dims<[]>>, tensor<1xi64, #cleave.dims<["x=1"]>>, index, index) -> ()
  return
}}
"""


@pytest.mark.parametrize("seed", range(40))
def test_index_arithmetic_never_overflows(seed: int) -> None:
    """Random index arithmetic on sizes up to the limit equals that on Python's integers."""
    rng = random.Random(seed)
    sizes = {name: rng.choice([1, 2, 1000, 2**20, LARGEST_EXTENT - 1, LARGEST_EXTENT]) for name in "mns"}
    known = [
        (f"%e{i}", text)
        for i, text in enumerate(["m", "n", "s", "ceildiv(m, 64)", "floordiv(n, s + 1)", "m*2 + min(n, s)"])
    ]
    lines = [f'{name} = "cleave.extent"() {{size = "{text}"}} : () -> index' for name, text in known]
    values = {name: parse(text).evaluate(sizes) for name, text in known}
    for constant in (1, 64, 2**31 - 1):
        values[f"%k{constant}"] = constant
        lines.append(f"%k{constant} = arith.constant {constant} : index")
    for i in range(10):
        op, a, b = rng.choice(list(INDEX_OPS)), *rng.choices(list(values), k=2)
        if (op in ("divui", "remui") and values[b] == 0) or (op == "subi" and values[a] < values[b]):
            continue
        value = INDEX_OPS[op](values[a], values[b])
        if value < 2**62:
            values[f"%v{i}"] = value
            lines.append(f"%v{i} = arith.{op} {a}, {b} : index")
    name = list(values)[-1]
    (result,) = run_lowered(lower(index_module(lines, name)), "f", [], sizes)
    assert result[0] == values[name], (lines, sizes)


# --- views ------------------------------------------------------------------------------------------------------------

VIEW = """
!v = tensor<?x16xf32, #cleave.dims<["m", "n"]>>
!t = tensor<8x16xf32, #cleave.dims<["m=8", "n=16"]>>
func.func @f(%a: tensor<?x96xf32, #cleave.dims<["m", "w"]>>) -> tensor<?x16xf32, #cleave.dims<["m", "n"]>> {
  %r = "cleave.alloc"() : () -> tensor<?x16xf32, #cleave.dims<["m", "n"]>>
  VIEW
  func.call @k(%v, %r) {cleave.grid = ["ceildiv(m, 8)"]}
    : (tensor<?x16xf32, #cleave.dims<["m", "n"]>>, tensor<?x16xf32, #cleave.dims<["m", "n"]>>) -> ()
  return %r : tensor<?x16xf32, #cleave.dims<["m", "n"]>>
}
func.func private @k(%a: !v, %r: !v {cleave.out}) attributes {cleave.kernel} {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %c16 = arith.constant 16 : index
  %p = "cleave.program_id"() {axis = 0 : i64} : () -> index
  %m = "cleave.extent"() {size = "m"} : () -> index
  %i = arith.muli %p, %c8 : index
  %t = "cleave.load"(%a, %i, %c0, %m, %c16) {fill = 0.0 : f32, in_bounds = ["n"],
    operandSegmentSizes = array<i32: 1, 2, 2>} : (!v, index, index, index, index) -> !t
  "cleave.store"(%t, %r, %i, %c0, %m, %c16) {in_bounds = ["n"], operandSegmentSizes = array<i32: 1, 1, 2, 2>}
    : (!t, !v, index, index, index, index) -> ()
  return
}
"""
SLICE = """%v = "cleave.slice"(%a) {dim = "w", into = "n=16", offset = "OFFSET"}
    : (tensor<?x96xf32, #cleave.dims<["m", "w"]>>) -> tensor<?x16xf32, #cleave.dims<["m", "n=16"]>>"""


@pytest.mark.parametrize(("offset", "divisibility"), [(16, "16"), (6, "8"), (5, "4")])
def test_a_slice_keeps_its_strides_and_tells_its_alignment(offset: int, divisibility: str) -> None:
    text = VIEW.replace("VIEW", SLICE.replace("OFFSET", str(offset))).replace('"n"]>', '"n=16"]>')
    module = lower(text)
    (kernel,) = kernels_of(module)
    assert (
        kernel.text.count(
            f"arg_attrs = [{{tt.divisibility = {divisibility} : i32}}, {{tt.divisibility = 16 : i32}}, {{}}]"
        )
        == 1
    )
    array = np.arange(11 * 96, dtype=np.float32).reshape(11, 96)
    (result,) = run_lowered(module, "f", [array])
    np.testing.assert_array_equal(result, array[:, offset : offset + 16])


def test_dims_that_are_not_one_run_of_memory_cannot_be_merged() -> None:
    view = """
  %s = "cleave.slice"(%a) {dim = "w", into = "x=8", offset = "0"}
    : (tensor<?x96xf32, #cleave.dims<["m", "w"]>>) -> tensor<?x8xf32, #cleave.dims<["m", "x=8"]>>
  %v0 = "cleave.merge"(%s) {dims = ["m", "x"], into = "y=8*m"}
    : (tensor<?x8xf32, #cleave.dims<["m", "x=8"]>>) -> tensor<?xf32, #cleave.dims<["y=8*m"]>>
  %v = "cleave.split"(%v0) {dim = "y", into = ["m", "n=16"]}
    : (tensor<?xf32, #cleave.dims<["y=8*m"]>>) -> tensor<?x16xf32, #cleave.dims<["m", "n=16"]>>"""
    with pytest.raises(
        CleaveError, match="cannot view as one: dimensions 'm' and 'x' do not lie one after the other"
    ) as caught:
        lower(VIEW.replace("VIEW", view).replace('"n"]>', '"n=16"]>'))
    assert str(caught.value.location).startswith("-:9:")


@pytest.mark.parametrize("columns", [64, 3000])
@pytest.mark.parametrize("offset", [3e2, 1e4])
def test_softmax_of_logits_far_from_zero(offset: float, columns: int) -> None:
    """The difference from the maximum is exact; scaling both sides before it would lose digits with the offset. The
    maximum of long rows rises from tile to tile."""
    graph = graphs.softmax()
    sizes = {"m": 4, "n": columns}
    plain, tiled = texts(graph, sizes)
    random = np.random.default_rng(0).standard_normal((4, columns))
    logits = [(np.sort(random) + offset).astype(np.float32)]
    (expected,) = expected_results(plain, graph.name, logits, sizes)
    (actual,) = run_lowered(lower(tiled), graph.name, logits, sizes)
    assert np.linalg.norm(actual - expected) < 5e-7 * np.linalg.norm(expected)


def test_rows_that_finite_numbers_mask() -> None:
    """Scores of a row that are equal have equal weights, however far from zero they are."""
    graph, sizes = graphs.attention(mask=True, division_last=True), {"h": 1, "m": 6, "n": 150}
    _, tiled = texts(graph, sizes)
    q, k, v, mask = inputs_for(graph, sizes)
    mask[:] = np.array([0, -1e4, -1e6, -1e9, -1e30, np.finfo(np.float32).min])[:, None]
    (far,) = run_lowered(lower(tiled), graph.name, [0 * q, k, v, mask], sizes)
    mean = v.astype(np.float64).mean(axis=1, keepdims=True)
    assert np.abs(far - mean).max() < 2e-3 * np.abs(mean).max()


@pytest.mark.parametrize(("kind", "factor"), [("max", 0.3), ("max", -0.3), ("min", 1e30), ("max", 1e-40), ("max", 0.0)])
def test_extrema_of_scaled_numbers(kind: Literal["max", "min"], factor: float) -> None:
    """To the last bit, also where products overflow or are 0; NaN stays NaN."""
    b = GraphBuilder("scaled")
    x = b.input("m n=16", "f32")
    graph = b.build(b.reduce(b.mul(x, b.constant(factor, "f32")), kind=kind, over=["n"]))
    _, tiled = texts(graph, {"m": 40})
    module = lower(tiled)
    given = np.random.default_rng(0).standard_normal((7, 16)).astype(np.float32) * np.float32(1e10)
    given[0, 3], given[1, 4], given[2, 5], given[3] = np.nan, np.inf, -np.inf, -0.0
    (found,) = run_lowered(module, graph.name, [given], {"m": 7})
    with np.errstate(all="ignore"):
        expected = getattr(np, kind)(given * np.float32(factor), axis=1)
    np.testing.assert_array_equal(found, expected)
    text = str(module)
    assert (text.index("tt.reduce") < text.index("arith.mulf")) == (factor > 0)
