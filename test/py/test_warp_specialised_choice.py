"""Which tilings the scheduler chooses for warp-specialised kernels, and that the lowering makes them such."""

from __future__ import annotations

from functools import cache
from itertools import count

import graphs
import pytest
from test_warp_specialised import matmul, normalised, swiglu

from cleave.bindings import context, ir
from cleave.dialects.graph import Graph, GraphBuilder
from cleave.errors import CleaveError
from cleave.function import Function
from cleave.lowering.emit import kernel_modules
from cleave.lowering.lower_to_ttgir import LowerToTtgir
from cleave.lowering.plan import plan_of
from cleave.lowering.source import graph_text
from cleave.lowering.targets import TTGIR_TARGET
from cleave.passes.schedule import Schedule
from cleave.passes.tile_io import from_tile_program
from cleave.runtime.package import Variant
from cleave.schedule.candidates import Candidate
from cleave.schedule.scheduler import Scheduled, ScheduleOptions, schedule, with_candidates
from cleave.schedule.target import target_named
from cleave.tuner.candidates import choices, variants

SIZES = {"m": 4096, "n": 4096, "h": 32}


def options(graph: Graph, target: str = "h200") -> ScheduleOptions:
    sizes = {name: size for name, size in SIZES.items() if name not in graph.extents}
    return ScheduleOptions(target_named(target), sizes, max_tilings=24, warp_specialise=True)


@cache
def scheduled(graph: Graph) -> Scheduled:
    return schedule(graph.deduplicated(), options(graph))


def specialised(found: Scheduled) -> list[Candidate]:
    """The first of each tiling, of the first launch."""
    fitting = [each for each in found.candidates[0] if each.warp_specialised]
    return list({each.tiling.key: each for each in reversed(fitting)}.values())[::-1]


def lowered(found: Scheduled, candidate: Candidate) -> bool:
    program = with_candidates(found.program, [candidate, *(each[0] for each in found.candidates[1:])])
    ctx = context(allow_unregistered=True)
    with ctx, ir.Location.unknown(ctx):
        module = ir.Module.create()
        from_tile_program(program, module)
        LowerToTtgir(chosen=True).apply(ctx, module)
        return any(TTGIR_TARGET in op.operation.attributes for op in module.body.operations)


def attention() -> Graph:
    return graphs.attention(division_last=True, head=128)


@pytest.mark.parametrize("graph", [attention(), graphs.causal_attention(), matmul(), swiglu(), normalised()])
def test_what_is_predicted_to_have_the_form_is_lowered_to_it(graph: Graph) -> None:
    found = scheduled(graph)
    tilings = specialised(found)
    assert len(tilings) >= 4 and all(lowered(found, each) for each in tilings[:4])


def test_softmax_beneath_products_is_worth_it() -> None:
    """Two consumers, and keys in wide tiles."""
    best, *_ = scheduled(attention()).candidates[0]
    assert best.warp_specialised and best.num_warps == 8
    assert (best.tiling.tiles["m"], best.tiling.tiles["n"]) == (128, 128)
    plain = next(each for each in scheduled(attention()).candidates[0] if not each.warp_specialised)
    assert best.cost.tensor < best.cost.running < plain.cost.running


def gated() -> Graph:
    b = GraphBuilder("gated")
    x, w, v = b.input("m=512 k=4096", "f16"), b.input("k=4096 n=14336", "f16"), b.input("k=4096 n=14336", "f16")
    gate, up = (b.contract(x, y, over=["k"], dtype="f32") for y in (w, v))
    return b.build(b.cast(b.mul(b.mul(gate, b.sigmoid(gate)), up), dtype="f16"))


def test_loops_of_products_alone_keep_the_tensor_cores_busy() -> None:
    """On an H200 the best of SwiGLU's 512 rows takes 196 µs with two consumers, and 210 µs without."""
    found = scheduled(gated())
    best, *_ = specialised(found)
    plain = next(each for each in found.candidates[0] if not each.warp_specialised)
    assert (best.tiling.tiles["m"], best.tiling.tiles["n"]) == (128, 128)
    assert 180e-6 < best.cost.running < plain.cost.running < 225e-6


def test_three_consumers_have_no_registers_for_wide_heads_and_many_keys() -> None:
    """64 rows of 128 sums and 128 scores each would spill 1,804 bytes; of 64 scores none."""
    tiles = [each.tiling.tiles for each in specialised(scheduled(attention())) if each.tiling.tiles["m"] == 192]
    keys = {each["n"] for each in tiles if each["d"] == 128}
    assert 64 in keys and 128 not in keys


def without(graph: Graph, target: str = "h200") -> bool:
    found = schedule(graph.deduplicated(), options(graph, target))
    return not any(each.warp_specialised for launch in found.candidates for each in launch)


def test_what_has_no_such_form() -> None:
    """Products of f32, a right operand that is computed, another architecture."""
    b = GraphBuilder("wide")
    assert without(b.build(b.contract(b.input("m k=256", "f32"), b.input("k=256 n=256", "f32"), over=["k"])))
    b = GraphBuilder("computed")
    w = b.exp(b.input("k=256 n=256", "f16"))
    assert without(b.build(b.contract(b.input("m k=256", "f16"), w, over=["k"], dtype="f16")))
    assert without(attention(), "a100")


def test_programs_to_measure_have_both_forms() -> None:
    found = choices([attention().deduplicated()], options(attention()), 8)
    assert len(found) == 8 and found[0].warp_specialised
    assert 2 <= sum(choice.warp_specialised for choice in found) <= 6
    assert found[0].seconds == min(choice.seconds for choice in found)


BESIDE = [", not masks first, polynomial", ", not in registers, not in turn, not masks first", ", not in turn"]
FOUR = ["", *BESIDE]
EVERY = [
    "",
    *(f", not {part}" for part in ("persistent", "in registers", "in turn", "stored by copies", "masks first")),
]
EVERY += [", not one code", ", polynomial", *BESIDE[:2]]


@pytest.mark.parametrize(
    ("graph", "refused", "every", "expected"),
    [
        (attention(), (0, 2), False, [["", *BESIDE[1:]], FOUR, [""]]),
        (attention(), (), True, [EVERY, FOUR, [""]]),
        (matmul(), (), False, [[""]]),
    ],
    ids=["some are refused", "ablations", "none may"],
)
def test_forms_beside_the_usual_one(
    graph: Graph, refused: tuple[int, ...], every: bool, expected: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first two of six programs that the compiler takes have the other form, too, or as many as may have it.

    ``refused``: which it does not take of those that it is given.
    """
    number = count()

    def variant_of(module: ir.Module, *rest: object, **options: object) -> Variant:
        if next(number) in refused:
            raise CleaveError("spills")
        kernels = {kernel.name: kernel for kernel in kernel_modules(module)}
        return Variant(plan_of(module, graph.name, kernels), {}, {}, {})

    monkeypatch.setattr("cleave.tuner.candidates.variant_of", variant_of)
    sizes = ",".join(f"{name}={SIZES[name]}" for name in "mnh" if name not in graph.extents)
    pass_ = Schedule(sizes=sizes, warp_specialise=True)
    found = variants(graph_text(graph), graph.name, pass_, 6, ablations=every)
    forms: dict[str, list[str]] = {}
    for variant in found:
        program, mark, form = variant.label.partition(", warp-specialised")
        forms.setdefault(program, []).extend([form] * bool(mark))
    assert [each for each in forms.values() if each][: len(expected)] == expected


@pytest.mark.parametrize(
    ("asked", "targets", "expected"),
    [
        (None, ["sm_90"], (True, False)),
        (None, [], (False, False)),
        (None, ["sm_90", "sm_80"], (False, False)),
        (False, ["sm_90"], (False, False)),
        (True, ["sm_90"], (True, True)),
    ],
)
def test_by_default_where_numbers_are_compared(
    asked: bool | None, targets: list[str], expected: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether candidates are made in the form, and in all variants of it; other programs only where it is asked for."""
    seen: list[tuple[bool, bool]] = []

    def variants(text: str, name: str, pass_: Schedule, *rest: object, ablations: bool, library: bool) -> list[Variant]:
        seen.append((pass_.warp_specialise, ablations))
        raise CleaveError("enough")

    monkeypatch.setattr("cleave.tuner.candidates.variants", variants)
    function = Function(graph_text(attention()), name=attention().name, superopt=False, warp_specialise=asked)
    with pytest.raises(CleaveError, match="enough"):
        function.candidates(2, *targets)
    assert seen == [expected]
    assert (TTGIR_TARGET in function.ttir(**SIZES)) == (asked is True)
