"""Every op has its row in every table that works op by op (docs/adding.md lists them)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from cleave.dialects.graph import GraphBuilder
from cleave.dialects.ops import BINARY, OPS, POINTWISE, REDUCTIONS, UNARY
from cleave.errors import CleaveError
from cleave.lowering import pointwise
from cleave.reference import numerics
from cleave.search import fields, float_domain, interpret, lift, seeds
from cleave.tools import field_numbers

TABLES: dict[str, Mapping[str, object]] = {
    "cleave/reference/numerics.py": numerics.FUNCTIONS,
    "cleave/search/lift.py": lift._FLOAT,
    "cleave/search/float_domain.py": float_domain._FUNCTIONS,
    "cleave/search/fields.py": fields._FUNCTIONS,
    "cleave/tools/field_numbers.py": field_numbers._FLOAT,
    "cleave/lowering/pointwise.py": {**pointwise._EXACT, **pointwise._ROUNDED, **pointwise._PRECISE},
}

KERNELS = {name for name in POINTWISE if OPS[name].stage == "kernel"}
"""Of tiles alone: programs do not have them."""


@pytest.mark.parametrize("path", TABLES)
def test_pointwise_ops_have_rows(path: str) -> None:
    kernels = set() if "search" in path or "tools" in path else KERNELS
    assert set(TABLES[path]) - REDUCTIONS == {*UNARY, *BINARY, *kernels}


def test_the_search_seeds_every_op_and_rounds_what_is_computed() -> None:
    assert {*UNARY, *BINARY} <= seeds._ALGEBRA
    assert {*UNARY, *BINARY} - interpret._COMPUTED == {"max", "min"}


@pytest.mark.parametrize(
    ("number", "dtype", "message"),
    [
        (2**31, "i32", "out of the range of i32"), (-129, "i8", "out of the range of i8"), (2, "i1", "range of i1"),
        (0.5, "i64", "0.5 is a float beside elements of i64"), (1e39, "f32", "too large for f32"),
        (10**400, "f64", "too large for f64"), ("one", "f32", "'one' is no number"), (None, "i32", "None is no number"),
        (1j, "f32", "is no number"), ([1], "i32", "is no number"), (2**63, "index", "out of the range of index"),
    ],
)  # fmt: skip
def test_a_constant_is_a_number_of_its_type(number: Any, dtype: str, message: str) -> None:
    with pytest.raises(CleaveError, match=message):
        GraphBuilder("f").constant(number, dtype)


def test_constants_keep_their_numbers() -> None:
    b = GraphBuilder("f")
    given = [(-(2**31), "i32"), (np.int8(-3), "i8"), (True, "i1"), (3, "f16"), (math.inf, "f32"), (7, "index")]
    assert [b.constant(*each).attrs["value"] for each in given] == [-(2**31), -3, True, 3.0, math.inf, 7]
    assert math.isnan(b.constant(math.nan, "bf16").attrs["value"])
    assert type(b.constant(1, "i1").attrs["value"]) is bool and type(b.constant(1, "f32").attrs["value"]) is float
