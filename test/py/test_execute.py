"""Launch plans executed on NumPy arrays: sizes, strides, views, poison, errors."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import graphs
import ml_dtypes
import numpy as np
import pytest
from compiled import Compiled, compile_graph

from cleave.dialects.graph import Graph, GraphBuilder
from cleave.errors import CleaveError
from cleave.runtime.execute import execute
from cleave.runtime.launch_plan import Alloc, Launch, LaunchPlan, TensorSpec, View

F32 = np.float32


def negate(dims: str = "m n", dtype: str = "f32", facts: tuple[str, ...] = ()) -> Compiled:
    b = GraphBuilder("negate", facts)
    return compile_graph(b.build(b.neg(b.input(dims, dtype))))


NEGATE = negate()


def copy_kernel(plan_steps: tuple[object, ...], arguments: tuple[TensorSpec, ...], result: str) -> LaunchPlan:
    return LaunchPlan("f", arguments, plan_steps, (result,))  # type: ignore[arg-type]


# --- arrays ----------------------------------------------------------------------------------------------------------


def test_the_inputs_stay_as_they_are() -> None:
    x = np.arange(12, dtype=F32).reshape(3, 4)
    before = x.copy()
    (out,) = NEGATE([x])
    np.testing.assert_array_equal(out, -before)
    np.testing.assert_array_equal(x, before)
    assert x.flags.writeable
    assert not np.shares_memory(out, x)


def test_a_read_only_input() -> None:
    x = np.arange(6, dtype=F32).reshape(2, 3)
    x.flags.writeable = False
    np.testing.assert_array_equal(NEGATE([x])[0], -x)


def test_bytes_in_the_other_order() -> None:
    x = np.arange(6, dtype=F32).reshape(2, 3)
    np.testing.assert_array_equal(NEGATE([x.astype(x.dtype.newbyteorder())])[0], -x)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0), (1, 1)])
def test_empty_and_single(shape: tuple[int, int]) -> None:
    (out,) = NEGATE([np.ones(shape, F32)])
    assert out.shape == shape
    assert out.dtype == F32
    assert (out == -1).all()


def test_a_scalar() -> None:
    (out,) = negate("")([np.array(3, F32)])
    assert out.shape == ()
    assert out == -3


def test_booleans() -> None:
    b = GraphBuilder("compare")
    x, y = b.input("n", "f32"), b.input("n", "i1")
    compiled = compile_graph(b.build(b.max(b.cmp(x, b.constant(1.0, "f32"), predicate="lt"), y)))
    (out,) = compiled([np.arange(4, dtype=F32), np.array([False, False, True, False])])
    assert out.dtype == np.bool_
    np.testing.assert_array_equal(out, [True, False, True, False])


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32", "i32", "i64"])
def test_element_types(dtype: str) -> None:
    kinds = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": F32, "i32": np.int32, "i64": np.int64}
    x = np.arange(-3, 4).astype(kinds[dtype])
    (out,) = negate("n", dtype)([x])
    assert out.dtype == x.dtype
    np.testing.assert_array_equal(out.astype(float), -np.arange(-3.0, 4))


# --- poison ----------------------------------------------------------------------------------------------------------


def test_memory_that_no_kernel_writes_is_poisoned() -> None:
    spec = TensorSpec("t0", "f16", ("n",), (None,))
    plan = LaunchPlan("f", (TensorSpec("in0", "f32", ("n",), (None,)),), (Alloc(spec),), ("t0",))
    (out,) = execute(plan, {}, [np.zeros(5, F32)])
    assert np.isnan(out).all()
    ints = replace(spec, dtype="i32")
    (out,) = execute(replace(plan, steps=(Alloc(ints),)), {}, [np.zeros(5, F32)])
    assert (out == np.int32(-0x5A5A5A5B)).all()


# --- views -----------------------------------------------------------------------------------------------------------

X = TensorSpec("in0", "f32", ("m", "n"), (None, None))


def through(*views: View) -> np.ndarray:
    """in0 of [4, 6] through the views, as the result."""
    x = np.arange(24, dtype=F32).reshape(4, 6)
    return execute(LaunchPlan("f", (X,), views, (views[-1].tensor.name,)), {}, [x])[0]


def view(source: str, names: tuple[str, ...], into: tuple[str, ...], dims: tuple[str, ...], offset: str = "0") -> View:
    return View(source, names, into, TensorSpec("t0", "f32", dims, (None,) * len(dims)), offset)


def test_rename() -> None:
    np.testing.assert_array_equal(through(view("in0", ("n",), ("e=n",), ("m", "e=n"))), np.arange(24).reshape(4, 6))


def test_split() -> None:
    out = through(view("in0", ("n",), ("s=2", "t=floordiv(n,2)"), ("m", "s=2", "t=floordiv(n,2)")))
    np.testing.assert_array_equal(out, np.arange(24).reshape(4, 2, 3))


def test_merge() -> None:
    out = through(view("in0", ("m", "n"), ("h=m*n",), ("h=m*n",)))
    np.testing.assert_array_equal(out, np.arange(24))


def test_slice_of_rows() -> None:
    out = through(view("in0", ("m",), ("e=2",), ("e=2", "n"), "1"))
    np.testing.assert_array_equal(out, np.arange(24).reshape(4, 6)[1:3])


def test_a_slice_that_leaves_its_dim() -> None:
    with pytest.raises(CleaveError, match=r"the slice of 'm' of in0 is 3 to 5; the dimension has 4"):
        through(view("in0", ("m",), ("e=2",), ("e=2", "n"), "3"))


def test_a_slice_of_columns_is_no_array_of_its_own() -> None:
    with pytest.raises(CleaveError, match="it has no array of its own"):
        through(view("in0", ("n",), ("e=2",), ("m", "e=2"), "1"))


def test_a_split_that_does_not_divide_is_no_array_of_its_own() -> None:
    with pytest.raises(CleaveError, match="a split that does not divide"):
        through(view("in0", ("n",), ("s=4", "t=ceildiv(n,4)"), ("m", "s=4", "t=ceildiv(n,4)")))


def test_an_input_that_is_returned_is_copied() -> None:
    x = np.arange(24, dtype=F32).reshape(4, 6)
    (out, again) = execute(LaunchPlan("f", (X,), (), ("in0", "in0")), {}, [x])
    np.testing.assert_array_equal(out, x)
    assert not np.shares_memory(out, x)
    assert not np.shares_memory(out, again)


# --- sizes -----------------------------------------------------------------------------------------------------------

ONE = TensorSpec("in0", "f32", ("n",), (None,))


def bind(*tensors: tuple[tuple[str, ...], tuple[int, ...]], facts: tuple[str, ...] = (), result: str = "n",
         choices: tuple[str, ...] = (), given: dict[str, int] | None = None) -> int:  # fmt: skip
    """The extent ``result`` for arguments of these dims and shapes."""
    specs = tuple(TensorSpec(f"in{i}", "f32", dims, (None,) * len(dims)) for i, (dims, _) in enumerate(tensors))
    out = TensorSpec("t0", "f32", (f"x={result}",), (None,))
    plan = LaunchPlan("f", specs, (Alloc(out),), ("t0",), facts, choices=choices)
    return execute(plan, {}, [np.zeros(shape, F32) for _, shape in tensors], given)[0].shape[0]


def test_sizes_are_solved_for_symbols() -> None:
    assert bind((("n",), (7,)), result="3*n + 1") == 22
    assert bind((("p=2*n+1",), (15,))) == 7
    assert bind((("h=kv*g", "kv"), (12, 3)), result="g") == 4
    assert bind((("N",), (48,)), facts=("N = 16*N1",), result="N1") == 3
    assert bind((("n", "t=ceildiv(n,s)"), (10, 3)), facts=(), result="n + s", given={"s": 4}) == 14


def test_choices_hold_unless_the_caller_gives_a_value() -> None:
    assert bind((("n",), (10,)), result="s", choices=("s = min(8, n)",)) == 8
    assert bind((("n",), (10,)), result="s", choices=("s = min(8, n)",), given={"s": 2}) == 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bind((("n",), (5,)), (("n",), (6,))), r"dimension 'n' is 5 in in0 and 6 in in1"),
        (
            lambda: bind((("n",), (10,)), (("t=ceildiv(n,4)",), (4,))),
            r"dimension 't' of in1 is 4, but its size ceildiv\(n, 4\) is 3, with n = 10 \(in0\)",
        ),
        (lambda: bind((("p=2*n",), (5,))), r"dimension 'p' of in0 is 5, which is not a multiple of 2 \(p = 2\*n\)"),
        (
            lambda: bind((("N",), (50,)), facts=("N = 16*N1",)),
            r"dimension 'N' of in0 is 50, which is not a multiple of 16 \(fact N = 16\*N1\)",
        ),
        (lambda: bind((("p=2*n+1",), (4,))), r"dimension 'p' of in0 is 4, but 2\*n \+ 1 is that for no 'n'"),
        (lambda: bind((("n",), (5,)), result="s"), "no argument gives size 's' a value"),
        (lambda: bind((("n",), (0,)), facts=("1 <= n",)), r"dimension 'n' is empty in in0, and the function requires"),
        (lambda: bind((("n",), (9,)), facts=("n <= 8",)), r"requires n <= 8, which does not hold for n = 9 \(in0\)"),
        (
            lambda: bind((("m", "n"), (3, 2)), facts=("1 <= m <= n",)),
            r"requires 1 <= m <= n, which does not hold for m = 3 \(in0\), n = 2 \(in0\)",
        ),
        (lambda: bind((("n",), (5,)), given={"n": 6}), r"dimension 'n' is 6 in the given sizes and 5 in in0"),
    ],
)
def test_sizes_that_do_not_fit(call: object, message: str) -> None:
    with pytest.raises(CleaveError, match=message):
        call()  # type: ignore[operator]


STATIC = negate("m d=4")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], r"negate takes 1 arguments, not 0"),
        ([np.zeros((3, 4), np.float16)], r"in0 has elements of float16; the function takes f32"),
        ([np.zeros((3, 4), np.int32)], r"in0 has elements of int32; the function takes f32"),
        ([np.array([["a"] * 4])], r"in0 has elements of <U1"),
        ([np.zeros(4, F32)], r"in0 has rank 1; the function takes rank 2: \[m, d\]"),
        ([np.zeros((3, 5), F32)], r"dimension 'd' of in0 \(axis 1\) is 5; the function is compiled for 4"),
    ],
)
def test_inputs_that_do_not_fit(inputs: list[np.ndarray], message: str) -> None:
    with pytest.raises(CleaveError, match=message):
        STATIC(inputs)


def test_errors_stand_where_the_function_does() -> None:
    plan = replace(NEGATE.plan, location="in.mlir:3:1")
    with pytest.raises(CleaveError) as info:
        execute(plan, NEGATE.kernels, [])
    assert str(info.value).startswith("in.mlir:3:1: error: ")


# --- launches --------------------------------------------------------------------------------------------------------


def test_a_kernel_that_is_missing() -> None:
    with pytest.raises(CleaveError, match="there is no kernel 'negate__k0'"):
        execute(NEGATE.plan, {}, [np.zeros((2, 3), F32)])


def test_no_launch_for_an_empty_grid() -> None:
    """The kernel's text is not even read."""
    (out,) = execute(NEGATE.plan, {"negate__k0": "nonsense"}, [np.zeros((0, 3), F32)])
    assert out.shape == (0, 3)


@pytest.mark.parametrize(("axis", "limit"), [(1, 65535), (2, 65535)])
def test_a_grid_beyond_the_hardware(axis: int, limit: int) -> None:
    grid = ["1", "1", "1"]
    grid[axis] = "70000"
    (launch,) = NEGATE.plan.launches
    steps = tuple(replace(s, grid=tuple(grid)) if isinstance(s, Launch) else s for s in NEGATE.plan.steps)
    with pytest.raises(
        CleaveError, match=f"kernel {launch.kernel} needs 70000 programs along .; a grid has at most {limit}"
    ):
        execute(replace(NEGATE.plan, steps=steps), NEGATE.kernels, [np.zeros((2, 3), F32)])


def test_what_the_interpreter_refuses_names_the_kernel() -> None:
    """A kernel for [m, n] on half the memory."""
    (launch,) = NEGATE.plan.launches
    small = TensorSpec("t0", "f32", ("m", "n"), (None, 1))
    steps = tuple(replace(s, tensor=small) if isinstance(s, Alloc) else s for s in NEGATE.plan.steps)
    with pytest.raises(CleaveError, match="outside the buffer") as info:
        execute(replace(NEGATE.plan, steps=steps), NEGATE.kernels, [np.zeros((5, 7), F32)])
    assert f"in kernel {launch.kernel}" in info.value.notes


@pytest.mark.parametrize("graph", [graphs.matmul(), graphs.rmsnorm_matmul(), graphs.softmax()], ids=lambda g: g.name)
def test_one_compilation_serves_all_sizes(graph: Graph) -> None:
    """The grid follows the sizes; wrong ones leave poison."""
    compiled = compile_graph(graph)
    for size in (1, 17, 40):
        sizes = dict.fromkeys("hmnkfo", size) | dict(graph.extents)
        shapes = [[dim.size.evaluate(sizes) for dim in value.dims] for value in graph.inputs]
        kinds = [np.float16 if value.dtype == "f16" else F32 for value in graph.inputs]
        outputs = compiled([np.full(shape, 0.5, kind) for shape, kind in zip(shapes, kinds, strict=True)])
        assert all(np.isfinite(out).all() for out in outputs)


# --- layers ----------------------------------------------------------------------------------------------------------

HOOK = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("mlir", "triton", "sympy", "z3", "torch"):
            raise ImportError(f"{name} is not for the runtime")

sys.meta_path.insert(0, Refuse())
import numpy as np
from cleave.runtime.execute import execute
from cleave.runtime.launch_plan import LaunchPlan

plan = LaunchPlan.from_json(open(sys.argv[1]).read())
out, = execute(plan, {plan.launches[0].kernel: open(sys.argv[2]).read()}, [np.ones((3, 5), np.float32)])
assert (out == -1).all() and out.shape == (3, 5)
print("fine")
"""


def test_the_runtime_needs_neither_mlir_nor_triton(tmp_path: object) -> None:
    plan, kernel = f"{tmp_path}/plan.json", f"{tmp_path}/kernel.ttir"
    with open(plan, "w") as file:
        file.write(NEGATE.plan.to_json())
    with open(kernel, "w") as file:
        file.write(next(iter(NEGATE.kernels.values())))
    result = subprocess.run([sys.executable, "-c", HOOK, plan, kernel], capture_output=True, text=True)
    assert result.stdout == "fine\n", result.stderr
