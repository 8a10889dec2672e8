"""The reference executor on what torch-mlir puts into bodies of ``linalg.generic``, and on affine maps of indices."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import numpy as np
import pytest
from test_reference import execute

from cleave.bindings import context, ir, passmanager
from cleave.errors import CleaveError

EMBEDDING = """
func.func @f(%table: tensor<5x3xf32>, %at: tensor<?xi64>) -> tensor<?x3xf32> {
  %zero = arith.constant 0 : i64
  %five = arith.constant 5 : i64
  %c0 = arith.constant 0 : index
  %n = tensor.dim %at, %c0 : tensor<?xi64>
  %e = tensor.empty(%n) : tensor<?x3xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%at : tensor<?xi64>) outs(%e : tensor<?x3xf32>) {
  ^bb0(%in: i64, %out: f32):
    %j = linalg.index 1 : index
    %i = arith.index_cast %in : i64 to index
    %below = arith.cmpi slt, %in, %five : i64
    cf.assert %below, "index must be smaller than dim size"
    %above = arith.cmpi sge, %in, %zero : i64
    cf.assert %above, "index must be larger or equal to 0"
    %x = tensor.extract %table[%i, %j] : tensor<5x3xf32>
    linalg.yield %x : f32
  } -> tensor<?x3xf32>
  return %r : tensor<?x3xf32>
}
"""


@pytest.mark.parametrize("at", [[], [4], [0, 4, 2, 0]])
def test_assertions_in_bodies_hold_for_all_elements(at: list[int]) -> None:
    table = np.random.default_rng(1).random((5, 3)).astype(np.float32)
    np.testing.assert_array_equal(execute(EMBEDDING, table, np.array(at, np.int64))[0], table[at].reshape(-1, 3))


@pytest.mark.parametrize(("at", "message"), [([0, 5, 1], "smaller than dim size"), ([0, -1], "larger or equal to 0")])
def test_an_assertion_that_one_element_breaks_is_an_error_at_its_place(at: list[int], message: str) -> None:
    with pytest.raises(CleaveError, match=f"assertion failed: index must be {message}") as error:
        execute(EMBEDDING, np.zeros((5, 3), np.float32), np.array(at, np.int64))
    line = next(n for n, text in enumerate(EMBEDDING.splitlines(), 1) if message in text)
    assert re.search(rf":{line}:", str(error.value.location))


def test_a_body_that_never_runs_asserts_nothing() -> None:
    text = EMBEDDING.replace("arith.cmpi slt, %in, %five", "arith.cmpi slt, %five, %five")
    assert execute(text, np.zeros((5, 3), np.float32), np.zeros(0, np.int64))[0].shape == (0, 3)
    with pytest.raises(CleaveError, match="assertion failed"):
        execute(text, np.zeros((5, 3), np.float32), np.zeros(1, np.int64))


def test_branches_that_some_elements_take_are_an_error() -> None:
    text = EMBEDDING.replace(
        'cf.assert %below, "index must be smaller than dim size"', 'scf.if %below { cf.assert %below, "" }'
    )
    with pytest.raises(CleaveError, match="branches that only some elements take are not supported"):
        execute(text, np.zeros((5, 3), np.float32), np.array([0, 5], np.int64))


# --- affine maps ------------------------------------------------------------------------------------------------------


def drawn(rng: random.Random, depth: int) -> str:
    """An affine expression of d0, d1 and s0, whose divisors are positive and of which no two terms are multiplied."""
    if not depth:
        return rng.choice(["d0", "d1", "s0", str(rng.randint(-5, 5))])
    left, kind = drawn(rng, depth - 1), rng.choice(["+", "-", "*", "mod", "floordiv", "ceildiv"])
    factor = str(rng.randint(1, 7) * (rng.choice([-1, 1]) if kind == "*" else 1))
    right = drawn(rng, depth - 1) if kind in "+-" else factor
    return f"({left}) {kind} ({right})"


VALUES = "%0: index, %1: index, %2: index"


def applied(expression: str, op: str = "apply") -> str:
    return f"""
      func.func @f({VALUES}) -> index {{
        %r = affine.{op} affine_map<(d0, d1)[s0] -> ({expression})>(%0, %1)[%2]
        return %r : index
      }}"""


def folded(text: str, values: Sequence[int]) -> int:
    """The result as MLIR itself computes it."""
    constants = "\n".join(f"%{n} = arith.constant {value} : index" for n, value in enumerate(values))
    text = text.replace(f"({VALUES}) -> index {{", f"() -> index {{\n{constants}")
    with context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        passmanager.PassManager.parse("builtin.module(canonicalize)").run(module.operation)
        (number,) = re.findall(r"arith.constant (-?\d+) : index\n\s*return", str(module))
    return int(number)


@pytest.mark.parametrize("seed", range(60))
def test_affine_maps_are_as_mlir_folds_them(seed: int) -> None:
    rng = random.Random(seed)
    op, count = rng.choice([("apply", 1), ("min", 3), ("max", 2)])
    expression = ", ".join(drawn(rng, rng.randint(0, 3)) for _ in range(count))
    text, values = applied(expression, op), [rng.randint(-20, 20) for _ in range(3)]
    (result,) = execute(text, *map(np.asarray, values))
    assert result.shape == () and result == folded(text, values)


@pytest.mark.parametrize("kind", ["mod", "floordiv", "ceildiv"])
def test_a_divisor_that_is_not_positive_is_an_error(kind: str) -> None:
    with pytest.raises(CleaveError, match="an affine map divides by 0, but divisors must be positive"):
        execute(applied(f"d0 {kind} s0"), *map(np.asarray, (3, 0, 0)))
    assert (
        execute(applied(f"d0 {kind} s0"), *map(np.asarray, (-7, 0, 3)))[0]
        == {"mod": 2, "floordiv": -3, "ceildiv": -2}[kind]
    )


def test_an_affine_map_of_an_element() -> None:
    text = EMBEDDING.replace(
        "%x = tensor.extract %table[%i, %j]",
        "%k = affine.apply affine_map<(a, b)[s, t] -> ((a + s - t) mod 5)>(%i, %j)[%c0, %i]\n"
        "%x = tensor.extract %table[%k, %j]",
    )
    table = np.random.default_rng(2).random((5, 3)).astype(np.float32)
    np.testing.assert_array_equal(execute(text, table, np.array([4, 1], np.int64))[0], table[[0, 0]])
