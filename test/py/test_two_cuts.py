"""Two dims cut at once, where that is asked for: one program more, proved and tested like all others."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from compiled import compile_graph, reference
from discovery_programs import PROGRAMS
from search_programs import evaluate, inputs_of

from cleave.errors import CleaveError
from cleave.passes.superopt import Superopt
from cleave.reference.accuracy import compare
from cleave.search import Alternative, SearchOptions, superoptimise
from cleave.search.check_sizes import UNITS

NAMES = ["matmul_matmul", "linear_attention", "lora", "matmul_rowsum", "cross_entropy", "mla"]
SIZES = {"m": 5, "n": 11, "k": 13, "d": 9, "e": 4, "h": 2, "r": 7, "p": 3, "v": 10}


@cache
def found(name: str) -> tuple[Alternative, ...]:
    return superoptimise(PROGRAMS[name](), SearchOptions(keep=4, cuts=2)).alternatives


def outer_dims(alternative: Alternative) -> set[str]:
    splits = [value.attrs["into"][0] for value in alternative.graph.topological() if value.op == "split"]
    return {text.partition("=")[0] for text in splits}


@pytest.mark.parametrize("name", NAMES)
def test_found_certified_and_equal(name: str) -> None:
    twice = [a for a in found(name) if a.split is not None and "," in a.split]
    (program,) = twice
    outer = sorted(outer_dims(program))
    assert len(outer) == 2 and {f"1 <= {s}" for s in outer} <= set(program.graph.facts.texts)
    proof = program.certificate
    assert proof.normal_form and proof.fingerprint is not None and proof.floats is not None
    assert set(proof.facts) >= {f"1 <= {s}" for s in outer}
    source = PROGRAMS[name]()
    for counts, unit in (((1, 1), 1), ((3, 2), 1), ((2, 20), 3)):
        units = dict.fromkeys(UNITS, unit)
        sizes = {**SIZES, **source.extents, **units, **dict(zip(outer, counts, strict=True))}
        inputs = inputs_of(source, sizes)
        for wanted, made in zip(evaluate(source, inputs, sizes), evaluate(program.graph, inputs, sizes), strict=True):
            np.testing.assert_allclose(made, wanted, rtol=1e-9)


@pytest.mark.parametrize("name", ["matmul_matmul", "lora"])
def test_compiled(name: str) -> None:
    source = PROGRAMS[name]()
    program = next(a.graph for a in found(name) if a.split is not None and "," in a.split)
    sizes = {**SIZES, "m": 19, "n": 77, "k": 45, "d": 33, **source.extents}
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal([sizes[n] for n in v.names]).astype(np.float16) for v in source.inputs]
    made = compile_graph(program, {**sizes, "s": 3, "s1": 2})(inputs, {"s": 3, "s1": 2})
    results = zip(reference(source, inputs, "f64"), reference(source, inputs), made, source.outputs, strict=True)
    assert all(compare(exact, own, out, value.dtype).holds for exact, own, out, value in results)


def test_only_where_it_is_asked_for() -> None:
    splits = [a.split for a in superoptimise(PROGRAMS["lora"](), SearchOptions(keep=2)).alternatives]
    assert not any(split is not None and "," in split for split in splits)
    assert Superopt(cuts=2).options.cuts == 2
    for wrong in (0, 3):
        with pytest.raises(CleaveError, match="cuts is"):
            SearchOptions(cuts=wrong)
