"""Every op has its row in every table that works op by op (docs/adding.md lists them)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cleave.dialects.ops import BINARY, REDUCTIONS, UNARY
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


@pytest.mark.parametrize("path", TABLES)
def test_pointwise_ops_have_rows(path: str) -> None:
    assert set(TABLES[path]) - REDUCTIONS == {*UNARY, *BINARY}


def test_the_search_seeds_every_op_and_rounds_what_is_computed() -> None:
    assert {*UNARY, *BINARY} <= seeds._ALGEBRA
    assert {*UNARY, *BINARY} - interpret._COMPUTED == {"max", "min"}
