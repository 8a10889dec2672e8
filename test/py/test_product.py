"""Which kernels are plain products, and that cuBLAS makes the same of them as the function says.

Found by structure on functions as users write them; their plans are run by the stub of cuBLAS (``blas_stub``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from blas_stub import Stub, built, filled

import cleave
from cleave.dialects.dims import Dim
from cleave.language.annotations import bf16, f16, f32
from cleave.language.trace import trace
from cleave.runtime.package import Package, Variant
from cleave.runtime.programs import Programs
from cleave.schedule.product import is_product
from cleave.schedule.region import region_of
from cleave.schedule.rename import in_memory_order
from cleave.tuned import Tuned
from cleave.tuner.store import Measured, Store
from cleave.tuner.tune import NO_LIBRARY, measure

SIZES = {"m": 5, "k": 24, "n": 9, "b": 3, "t": 4, "h": 2, "d": 8, "c": 8, "l": 3}


def plain(x: f16["m k"], w: f16["k n"]) -> f16["m n"]:
    return cleave.contract(x, w, over="k")


def transposed(x: f16["k m"], w: f16["n k"]) -> f16["n m"]:
    return cleave.contract(x, w, over="k")


def kept_in_f32(x: bf16["m k"], w: bf16["n k"]) -> f32["m n"]:
    return cleave.contract(x.astype(f32), w.astype(f32), over="k")


def of_f32(x: f32["b m k"], w: f32["b k n"]) -> f32["b m n"]:
    return cleave.contract(x, w, over="k")


def rounded(x: bf16["b t k"], w: bf16["k n"]) -> bf16["b t n"]:
    return cleave.contract(x, w, over="k").astype(bf16)


def with_itself(x: f16["m k"]) -> f16["m n"]:
    return cleave.contract(x, x.rename(m="n=m"), over="k")


def of_a_part(x: f16["m k"], w: f16["k n=3*c"]) -> f16["m c"]:
    return cleave.contract(x, w.slice("n", "c", offset="c"), over="k")


def of_merged_heads(x: f16["t h d"], w: f16["k=h*d n"]) -> f16["t n"]:
    return cleave.contract(x.merge(["h", "d"], "k=h*d"), w, over="k")


def over_two(x: f16["m k l"], w: f16["n k l"]) -> f16["m n"]:
    return cleave.contract(x, w, over="k l")


PLAIN = [plain, transposed, kept_in_f32, of_f32, rounded, with_itself, of_a_part, of_merged_heads, over_two]


def scaled(x: f16["m k"], w: f16["k n"]) -> f16["m n"]:
    return cleave.contract(x, w, over="k") * 0.5


def of_a_sum(x: f16["m k"], w: f16["k n"]) -> f16["m n"]:
    return cleave.contract((x + 1.0).astype(f16), w, over="k")


def masked(x: f16["m k"], w: f16["k n"]) -> f16["m n"]:
    return cleave.where(cleave.index("n") <= cleave.index("m"), cleave.contract(x, w, over="k"), 0.0)


def rounded_twice(x: f16["m k"], w: f16["k n"]) -> f32["m n"]:
    return cleave.contract(x, w, over="k").astype(f16).astype(f32)


def narrowed(x: f32["m k"], w: f16["k n"]) -> f16["m n"]:
    return cleave.contract(x.astype(f16), w, over="k")


def of_two_types(x: f32["m k"], w: f16["k n"]) -> f32["m n"]:
    return cleave.contract(x, w.astype(f32), over="k")


def squares(x: f16["m k"]) -> f32["m"]:
    return cleave.contract(x, x, over="k")


def in_parts(x: f16["m k"], w: f16["k n"]) -> f32["s m n"]:
    parts = ["s", "t=ceildiv(k,s)"]
    return cleave.contract(x.split("k", parts), w.split("k", parts), over="t")


def of_positions(x: f16["m k"], w: f16["n k"]) -> f32["m n"]:
    positions = cleave.index("k").astype(f16)
    return cleave.contract(x, w * positions, over="k")


OTHERS = [scaled, of_a_sum, masked, rounded_twice, narrowed, of_two_types, squares, in_parts, of_positions]


@pytest.mark.parametrize("function", [*PLAIN, *OTHERS], ids=lambda function: function.__name__)
def test_plain_products_are_found_by_structure(function: Any) -> None:
    graph = in_memory_order(trace(function))
    assert is_product(region_of(graph.outputs, frozenset(graph.outputs), graph.extents)) == (function in PLAIN)


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stub]:
    both = built(tmp_path_factory.mktemp("stub"))
    yield both
    both.reset()


@pytest.mark.parametrize("function", [transposed, of_f32, with_itself, of_a_part], ids=lambda each: each.__name__)
def test_the_library_makes_what_the_kernel_does(function: Any, stub: Stub) -> None:
    """The plan of a schedule, run by the library and by the interpreter, on heads, parts and roles of one tensor."""
    stub.reset()
    jitted = cleave.jit(function, library=True, superopt=False)
    plan = jitted.variant().plan
    assert all(launch.product for launch in plan.possible_launches)
    tensors = [filled(stub, shape(spec.dims), spec.dtype) for spec in plan.arguments]
    (out,) = stub.program(plan)(tensors, stub.allocate)
    assert any("product" in line for line in stub.log) and not stub.launches
    wanted = jitted(*(tensor.array for tensor in tensors))
    assert out.array.dtype == wanted.dtype
    assert np.allclose(out.array.astype(float), wanted.astype(float), rtol=1e-3 if wanted.dtype == "f2" else 1e-5)


def shape(dims: Sequence[str]) -> list[int]:
    return [Dim.parse(dim).size.evaluate(SIZES) for dim in dims]


@cleave.jit(static="k n d", superopt=False)
def two_layers(x: f16["m k"], w: f16["k n"], v: f16["n d"]) -> f16["m d"]:
    return cleave.contract(cleave.gelu(cleave.contract(x, w, over="k")).astype(f16), v, over="n")


@pytest.fixture(scope="module")
def candidates() -> Package:
    return two_layers.specialised(k=512, n=512, d=64).candidates(3, m=256)


def by_library(variant: Variant) -> list[int]:
    return [launch.product for launch in variant.plan.launches]


def test_candidates_have_products_of_a_library_behind_the_models_choice(candidates: Package) -> None:
    first, second, *_ = candidates.variants
    assert not any(by_library(first)) and any(by_library(second)) and not all(by_library(second))
    assert second.label.count("cuBLAS") == 1 and "cuBLAS" not in first.label
    assert Package.from_bytes(candidates.to_bytes()).variants == candidates.variants


def test_a_program_is_not_measured_as_a_librarys_that_is_not(
    candidates: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    tensors = [rng.standard_normal(extents).astype(np.float16) for extents in ((3, 512), (512, 512), (512, 64))]

    def measured() -> Measured:
        return measure(candidates, candidates.variants[1], tensors, lambda results: "", lambda call: 1.0)

    assert measured() == Measured(1.0)
    monkeypatch.setattr(Programs, "kept", {"k0": "there is no libcublasLt here"})
    assert measured() == Measured(None, f"{NO_LIBRARY}: there is no libcublasLt here")


def test_switched_off_and_on() -> None:
    """False: no candidates; True: what the model chooses, too, and ``explain`` says who makes it."""
    off, on = (cleave.jit(transposed, library=library, superopt=False) for library in (False, True))
    assert not any(any(by_library(variant)) for variant in off.candidates(2, m=64).variants)
    assert "is made by" not in off.explain(m=64)
    how = r"is made by (its kernel, for there is no libcublasLt here|cuBLAS [0-9.]+, in place of its kernel)"
    assert re.search(rf"the product transposed__k0 {how}\n?$", on.explain(m=64), re.MULTILINE)


def test_explain_says_what_was_measured_to_be_faster(
    candidates: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is launched, and not the kernels of the model's choice above it."""
    monkeypatch.setattr("cleave.tuned.current_driver", lambda: SimpleNamespace(device_name=lambda: "a GPU"))
    function, chosen = two_layers.specialised(k=512, n=512, d=64), candidates.variants[1]
    tuned = function._tuned = Tuned(tmp_path / "tuned.sqlite", function._compilation)
    Store(tuned.path).keep(tuned.key({"m": 256}), "", 1.0, replace(candidates, variants=(chosen,)).to_bytes())
    lines = function.explain(m=200).splitlines()
    assert f"measured to be the fastest here: {chosen.label}" in lines
    (name,) = [launch.kernel for launch in chosen.plan.launches if launch.product]
    assert [line for line in lines if line.startswith(f"the product {name} is made by ")]
    assert "measured" not in function.explain(m=16)
