"""import-linalg against the reference executor on both sides of it: the samples, the lit cases, random programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleave.bindings import context, ir
from cleave.errors import CleaveError
from cleave.passes.diagnostics import Diagnostic, collecting
from cleave.passes.import_linalg import ImportLinalg
from cleave.passes.verify import verify
from cleave.reference import run
from cleave.reference.numerics import storage

LIT = Path(__file__).parent.parent / "lit"
SAMPLES = LIT / "inputs" / "samples"
STATIC = ("attention", "attention_softmax", "sdpa", "rmsnorm_linear", "gated_mlp", "lora")
CLEAN = [*(f"{name}.f16.static" for name in STATIC),
         *(f"{name}.f16.dynamic" for name in ("rmsnorm_linear", "gated_mlp", "lora"))]  # fmt: skip
F16_EPSILON = 2.0**-10


@dataclass
class Imported:
    source: ir.Module
    result: ir.Module
    remarks: list[str]


def imported(text: str) -> Imported:
    ctx = context()
    with ctx, ir.Location.unknown():
        source, result = ir.Module.parse(text), ir.Module.parse(text)
    found: list[Diagnostic] = []
    with collecting(found.append):
        ImportLinalg().apply(ctx, result)
    assert result.operation.verify()
    assert verify(result) == []
    return Imported(source, result, [diagnostic.message for diagnostic in found])


def sample(name: str) -> Imported:
    return imported((SAMPLES / f"{name}.linalg-on-tensors.mlir").read_text())


def random_inputs(module: ir.Module, dynamic: int, function: str | None = None) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    funcs = [op.operation for op in module.body.operations]
    func = next(f for f in funcs if function in (None, ir.StringAttr(f.attributes["sym_name"]).value))
    return [_random(rng, argument.type, dynamic) for argument in func.regions[0].blocks[0].arguments]


def _random(rng: np.random.Generator, type_: ir.Type, dynamic: int) -> np.ndarray:
    if not isinstance(type_, ir.RankedTensorType):
        return np.asarray(rng.standard_normal(), storage(str(type_)))
    shape = [dynamic if type_.is_dynamic_dim(i) else type_.get_dim_size(i) for i in range(type_.rank)]
    dtype = storage(str(type_.element_type))
    if dtype.kind in "bi":
        return rng.integers(0, 2, shape).astype(dtype)
    return (0.5 * rng.standard_normal(shape)).astype(dtype)


def assert_equal(case: Imported, inputs: list[np.ndarray], function: str | None = None) -> None:
    wanted = run(case.source, function, inputs, precision="f64")
    for got, want in zip(run(case.result, function, inputs, precision="f64"), wanted, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "dynamic"), [(name, size) for name in CLEAN for size in ((1, 7, 48) if "dynamic" in name else (0,))]
)
def test_sample_is_raised_whole_and_equal(name: str, dynamic: int) -> None:
    case = sample(name)
    assert case.remarks == []
    assert not any(word in str(case.result) for word in ("linalg", "arith", "tensor.", "unrealized"))
    inputs = random_inputs(case.source, dynamic)
    assert_equal(case, inputs)


@pytest.mark.parametrize("name", CLEAN)
def test_sample_in_declared_types_is_as_accurate(name: str) -> None:
    """The source may round each partial sum, ours rounds once: so errors are compared, not results."""
    case = sample(name)
    inputs = random_inputs(case.source, 48)
    (exact,) = run(case.source, None, inputs, precision="f64")
    (ours,) = run(case.result, None, inputs, precision="declared")
    (theirs,) = run(case.source, None, inputs, precision="declared")
    assert ours.dtype == theirs.dtype == np.float16
    ulp = F16_EPSILON * 2.0 ** np.floor(np.log2(np.abs(exact).max()))
    ours_error, theirs_error = (np.abs(x.astype(np.float64) - exact) for x in (ours, theirs))
    assert ours_error.max() <= theirs_error.max() + ulp
    assert np.linalg.norm(ours_error) <= 1.01 * np.linalg.norm(theirs_error)
    if name.startswith("attention.f16"):  # the one that sums in f16
        return
    assert np.abs(ours.astype(np.float64) - theirs.astype(np.float64)).max() <= 2 * ulp


def test_attention_has_readable_dims() -> None:
    """v's last dim is another than q's and k's, though its extent is the same: nothing ties them."""
    text = str(sample("attention.f16.static").result)
    for shape, names in (("2x4x64x64", '"b", "h", "m", "d"'), ("2x4x128x64", '"b", "h", "n", "d"'),
                         ("2x4x128x64", '"b", "h", "n", "e"'), ("2x4x64x64", '"b", "h", "m", "e"')):  # fmt: skip
        assert f"tensor<{shape}xf16, #cleave.dims<[{names}]>>" in text.splitlines()[1]


@pytest.mark.parametrize("name", ["rmsnorm_linear", "gated_mlp", "lora"])
def test_dynamic_rows_are_a_symbol(name: str) -> None:
    assert 'tensor<?x256xf16, #cleave.dims<["m", "k"]>>' in str(sample(f"{name}.f16.dynamic").result)


@pytest.mark.parametrize("name", ["attention", "attention_softmax"])
def test_dynamic_attention_takes_its_keys_and_values_to_be_equally_many(name: str) -> None:
    """The exporter lost that k and v share a dimension: it broadcasts one of extent 1. We say so and check it."""
    case = sample(f"{name}.f16.dynamic")
    assert case.remarks == [
        "axis 2 of argument 1, which the program would broadcast if its extent were 1, is taken to have the size of "
        "axis 2 of argument 2"
    ]
    assert not any(word in str(case.result) for word in ("linalg", "tensor.", "unrealized", "cleave.merge"))
    inputs = random_inputs(case.source, 9)
    inputs[0] = inputs[0][:, :, :5]
    assert_equal(case, inputs)
    inputs[1] = inputs[1][:, :, :1]
    with pytest.raises(CleaveError, match="dimension 'n' is 1 by input 1 and 9 in input 2"):
        run(case.result, None, inputs, precision="f64")


def lit_cases() -> list[str]:
    return (LIT / "passes" / "import-linalg.mlir").read_text().split("// -----")


@pytest.mark.parametrize(
    "text",
    [case for case in lit_cases() if "memref" not in case],
    ids=lambda text: text.split("func.func @")[1].split("\n")[0],
)
def test_lit_case_is_equal(text: str) -> None:
    case = imported(text)
    function = text.rsplit("func.func @", 1)[1].split("(")[0]
    assert_equal(case, random_inputs(case.source, 5, function), function)


def test_nothing_raised_leaves_the_function_alone() -> None:
    text = """
      func.func @f(%x: tensor<4xi32>) -> tensor<4xi32> {
        %e = tensor.empty() : tensor<4xi32>
        %0 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
            iterator_types = ["parallel"]} ins(%x : tensor<4xi32>) outs(%e : tensor<4xi32>) {
        ^bb0(%a: i32, %out: i32):
          %0 = arith.shli %a, %a : i32
          linalg.yield %0 : i32
        } -> tensor<4xi32>
        return %0 : tensor<4xi32>
      }"""
    case = imported(text)
    assert str(case.result) == str(case.source)
    assert case.remarks == ["'linalg.generic' is not raised: its body has 'arith.shli'"]


def test_a_second_time_changes_nothing() -> None:
    case = sample("attention.f16.static")
    before = str(case.result)
    ImportLinalg().apply(case.result.context, case.result)
    assert str(case.result) == before


def test_an_unsupported_element_type_is_a_remark() -> None:
    text = """
      func.func @f(%x: tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>> {
        %e = tensor.empty() : tensor<4xcomplex<f32>>
        %0 = linalg.copy ins(%x : tensor<4xcomplex<f32>>) outs(%e : tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>>
        return %0 : tensor<4xcomplex<f32>>
      }"""
    case = imported(text)
    assert len(case.remarks) <= 1
    assert "cleave." not in str(case.result)


# --- random programs -------------------------------------------------------------------------------------------------

EXTENTS = (2, 3)  # few, so that axes of equal extent meet in every role


@st.composite
def programs(draw: st.DrawFn) -> str:
    """A function of one to four generics and slices over a growing pool of f32 tensors."""
    pool = [(f"%x{i}", tuple(draw(st.lists(st.sampled_from(EXTENTS), min_size=1, max_size=3)))) for i in range(2)]
    arguments = ", ".join(f"{name}: {tensor(shape)}" for name, shape in pool)
    lines: list[str] = []
    for number in range(draw(st.integers(1, 4))):
        step = generics if draw(st.integers(0, 2)) else pieces
        pool.append(draw(step(f"%r{number}", pool, lines)))
    results = pool[-2:]
    lines.append(f"return {', '.join(n for n, _ in results)} : {', '.join(tensor(s) for _, s in results)}")
    types = ", ".join(tensor(shape) for _, shape in results)
    return f"func.func @f({arguments}) -> ({types}) {{\n" + "\n".join(lines) + "\n}"


def tensor(shape: tuple[int, ...]) -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}f32>"


@st.composite
def generics(draw: st.DrawFn, name: str, pool: list[tuple[str, tuple[int, ...]]], lines: list[str]
             ) -> tuple[str, tuple[int, ...]]:  # fmt: skip
    """Append one generic to ``lines``: loops that cover two operands, some of them reduced, a random body."""
    operands = [draw(st.sampled_from(pool)) for _ in range(2)]
    loops: list[int] = []
    maps: list[list[int]] = []
    for _, shape in operands:
        used: list[int] = []
        for extent in shape:
            free = [loop for loop, n in enumerate(loops) if n == extent and loop not in used]
            if not free or draw(st.booleans()):
                loops.append(extent)
                free = [len(loops) - 1]
            used.append(draw(st.sampled_from(free)))
        maps.append(used)
    reduced = [loop for loop in range(len(loops)) if draw(st.integers(0, 3)) == 0][:2]
    out = list(draw(st.permutations([loop for loop in range(len(loops)) if loop not in reduced])))
    shape = tuple(loops[loop] for loop in out)
    scalar = draw(st.sampled_from(("arith.addf", "arith.subf", "arith.mulf", "arith.maximumf")))
    combine = draw(st.sampled_from(("arith.addf", "arith.maximumf", "arith.minimumf")))
    initial = draw(st.sampled_from(("0.0", "1.5", "0xFF800000")))
    dims = ", ".join(f"d{loop}" for loop in range(len(loops)))
    affine = [f"affine_map<({dims}) -> ({', '.join(f'd{loop}' for loop in map_)})>" for map_ in (*maps, out)]
    kinds = ", ".join('"reduction"' if loop in reduced else '"parallel"' for loop in range(len(loops)))
    body = [f"%t = {scalar} %a, %b : f32", "%e = math.tanh %t : f32"]
    body += [f"%y = {combine} %e, %out : f32", "linalg.yield %y : f32"] if reduced else ["linalg.yield %e : f32"]
    lines += [f"{name}_c = arith.constant {initial} : f32",
              f"{name}_e = tensor.empty() : {tensor(shape)}",
              f"{name}_i = linalg.fill ins({name}_c : f32) outs({name}_e : {tensor(shape)}) -> {tensor(shape)}",
              f"{name} = linalg.generic {{indexing_maps = [{', '.join(affine)}], iterator_types = [{kinds}]}} "
              f"ins({', '.join(n for n, _ in operands)} : {', '.join(tensor(s) for _, s in operands)}) "
              f"outs({name}_i : {tensor(shape)}) {{\n^bb0(%a: f32, %b: f32, %out: f32):\n"
              + "\n".join(body) + f"\n}} -> {tensor(shape)}"]  # fmt: skip
    return name, shape


@st.composite
def pieces(draw: st.DrawFn, name: str, pool: list[tuple[str, tuple[int, ...]]], lines: list[str]
           ) -> tuple[str, tuple[int, ...]]:  # fmt: skip
    """Append slices of one tensor to ``lines``, and what one of the ops makes of them."""
    source, shape = draw(st.sampled_from([each for each in pool if each[1]]))
    axis = draw(st.integers(0, len(shape) - 1))

    def resized(extent: int) -> tuple[int, ...]:
        return (*shape[:axis], extent, *shape[axis + 1 :])

    def region(extent: int, offset: int) -> str:
        offsets = [offset if each == axis else 0 for each in range(len(shape))]
        return f"{offsets} {list(resized(extent))} {[1] * len(shape)}"

    def cut(result: str, extent: int, kept: tuple[int, ...] | None = None) -> tuple[str, tuple[int, ...]]:
        place = region(extent, draw(st.integers(0, shape[axis] - extent)))
        kept = resized(extent) if kept is None else kept
        lines.append(f"{result} = tensor.extract_slice {source}{place} : {tensor(shape)} to {tensor(kept)}")
        return result, kept

    kind = draw(st.sampled_from(("slice", "select", "concat", "insert", "chain", "pad")))
    extent = draw(st.integers(1, shape[axis]))
    if kind == "slice":
        return cut(name, extent)
    if kind == "pad":
        low, high = ([draw(st.integers(0, 2)) for _ in shape] for _ in range(2))
        padded = tuple(map(sum, zip(low, shape, high, strict=True)))
        indices = ", ".join(f"%i{each}: index" for each in range(len(shape)))
        lines.append(f"{name}_c = arith.constant 2.5 : f32")
        lines.append(f"{name} = tensor.pad {source} low{low} high{high} {{\n^bb0({indices}):\n"
                     f"tensor.yield {name}_c : f32\n}} : {tensor(shape)} to {tensor(padded)}")  # fmt: skip
        return name, padded
    if kind == "select":
        return cut(name, 1, (*shape[:axis], *shape[axis + 1 :]))
    parts = [cut(f"{name}_{i}", draw(st.integers(1, shape[axis]))) for i in range(draw(st.integers(1, 3)))]
    if kind == "insert":
        (part, small), (whole, large) = parts[0], (source, shape)
        place = region(small[axis], draw(st.integers(0, shape[axis] - small[axis])))
        lines.append(f"{name} = tensor.insert_slice {part} into {whole}{place} : {tensor(small)} into {tensor(large)}")
        return name, large
    total = resized(sum(small[axis] for _, small in parts))
    if kind == "concat":
        operands, types = ", ".join(part for part, _ in parts), ", ".join(tensor(small) for _, small in parts)
        lines.append(f"{name} = tensor.concat dim({axis}) {operands} : ({types}) -> {tensor(total)}")
        return name, total
    lines.append(f"{name}_e0 = tensor.empty() : {tensor(total)}")
    offset, names = 0, [*(f"{name}_e{i}" for i in range(len(parts))), name]
    for into, result, (part, small) in zip(names, names[1:], parts, strict=False):
        types = f"{tensor(small)} into {tensor(total)}"
        lines.append(f"{result} = tensor.insert_slice {part} into {into}{region(small[axis], offset)} : {types}")
        offset += small[axis]
    return name, total


@settings(max_examples=160, deadline=None)
@given(programs())
def test_random_programs_are_equal(text: str) -> None:
    case = imported(text)
    assert case.remarks == []
    assert "linalg" not in str(case.result)
    assert_equal(case, random_inputs(case.source, 0))
