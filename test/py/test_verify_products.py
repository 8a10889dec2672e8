"""A launch that a library may make has a kernel of one plain product: those of schedules, and edited ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from test_product import PLAIN, kept_in_f32, over_two, plain, transposed

from cleave.bindings import context, ir
from cleave.errors import CleaveError
from cleave.language.trace import trace
from cleave.passes.tile_io import from_tile_program
from cleave.passes.verify import verify
from cleave.schedule.rename import in_memory_order
from cleave.schedule.scheduler import Scheduled, ScheduleOptions, schedule, with_candidates
from cleave.schedule.target import target_named
from cleave.schedule.tile_program import TileProgram


def scheduled(function: Any, **extents: int) -> Scheduled:
    graph = in_memory_order(trace(function))
    graph = replace(graph, extents={**graph.extents, **extents})
    options = ScheduleOptions(target_named("h200"), {} if extents else {"m": 64}, library=1, warp_specialise=True)
    return schedule(graph, options)


def candidates(found: Scheduled) -> Iterator[TileProgram]:
    """The programs of one launch that the scheduler weighs, a spread of them, each a library's product."""
    (weighed,) = found.candidates
    for candidate in [weighed[0], *weighed[1 :: max(1, len(weighed) // 12)]]:
        program = with_candidates(found.program, [candidate])
        yield replace(program, launches=tuple(replace(launch, product=1) for launch in program.launches))


def text_of(program: TileProgram) -> str:
    with context(), ir.Location.unknown():
        module = ir.Module.create()
        from_tile_program(program, module)
        return str(module)


def problems(text: str) -> list[CleaveError]:
    with context(), ir.Location.unknown():
        return verify(ir.Module.parse(text))


SHAPES: list[tuple[Any, dict[str, int]]] = [
    *((function, {}) for function in PLAIN),
    (plain, {"m": 8, "n": 8, "k": 8}),
    (plain, {"n": 512, "k": 1000}),
    (transposed, {"m": 33, "n": 512, "k": 72}),
    (kept_in_f32, {"n": 4096, "k": 4096}),
    (over_two, {"k": 5, "l": 40}),
]


@pytest.mark.parametrize(("function", "extents"), SHAPES, ids=lambda each: getattr(each, "__name__", None))
def test_kernels_of_plain_products_are_such(function: Any, extents: dict[str, int]) -> None:
    for program in candidates(scheduled(function, **extents)):
        text = text_of(program)
        assert "cleave.product = 1" in text
        assert [str(problem) for problem in problems(text)] == []


# --- edited kernels ---------------------------------------------------------------------------------------------------


KERNEL = """
!X = tensor<?x?xf16, #cleave.dims<["m", "k"]>>
!W = tensor<?x?xf16, #cleave.dims<["k", "n"]>>
!Y = tensor<?x?xf16, #cleave.dims<["m", "n"]>>
!Left = tensor<64x64xf16, #cleave.dims<["m=64", "k=64"]>>
!Right = tensor<64x64xf16, #cleave.dims<["k=64", "n=64"]>>
!Tile = tensor<64x64xf32, #cleave.dims<["m=64", "n=64"]>>
!Result = tensor<64x64xf16, #cleave.dims<["m=64", "n=64"]>>
func.func @f(%x: !X, %w: !W) -> !Y {
  %y = "cleave.alloc"() : () -> !Y
  call @kernel(%x, %w, %y) {cleave.grid = ["ceildiv(m, 64)*ceildiv(n, 64)"], cleave.product = 1 : i64}
    : (!X, !W, !Y) -> ()
  return %y : !Y
}
func.func private @kernel(%x: !X, %w: !W, %y: !Y {cleave.out}) attributes {cleave.kernel} {
  %tiles = "cleave.extent"() {size = "ceildiv(n, 64)"} : () -> index
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %ms = "cleave.extent"() {size = "m"} : () -> index
  %ns = "cleave.extent"() {size = "n"} : () -> index
  %ks = "cleave.extent"() {size = "k"} : () -> index
  %block = "cleave.program_id"() {axis = 0 : i64} : () -> index
  %column = arith.remui %block, %tiles : index
  %row = arith.divui %block, %tiles : index
  %m = arith.muli %row, %c64 : index
  %n = arith.muli %column, %c64 : index
  %zero = "cleave.constant"() {value = 0.0 : f32} : () -> !Tile
  %all = scf.for %k = %c0 to %ks step %c64 iter_args(%sum = %zero) -> (!Tile) {
    %left = "cleave.load"(%x, %m, %k, %ms, %ks) {fill = 0.0 : f16, operandSegmentSizes = array<i32: 1, 2, 2>}
      : (!X, index, index, index, index) -> !Left
    %right = "cleave.load"(%w, %k, %n, %ks, %ns) {fill = 0.0 : f16, operandSegmentSizes = array<i32: 1, 2, 2>}
      : (!W, index, index, index, index) -> !Right
    %part = "cleave.contract"(%left, %right) {over = ["k"]} : (!Left, !Right) -> !Tile
    %next = "cleave.add"(%sum, %part) : (!Tile, !Tile) -> !Tile
    scf.yield %next : !Tile
  }
  %rounded = "cleave.cast"(%all) : (!Tile) -> !Result
  "cleave.store"(%rounded, %y, %m, %n, %ms, %ns) {operandSegmentSizes = array<i32: 1, 1, 2, 2>}
    : (!Result, !Y, index, index, index, index) -> ()
  return
}
"""
PLACES = {
    "loaded": ("%part =", "%left", "!Left"),
    "multiplied": ("%next =", "%part", "!Tile"),
    "carried": ("%next =", "%sum", "!Tile"),
    "summed": ("scf.yield", "%next", "!Tile"),
    "complete": ("%rounded =", "%all", "!Tile"),
    "rounded": ('"cleave.store"', "%rounded", "!Result"),
}
"""Of what the kernel computes: the line that uses it, its name, and its type."""


def inserted(place: str, ops: str) -> str:
    """The kernel with ops that make ``%new`` of ``%old``, which is used in its place; ``!T`` is the type."""
    start, name, type_ = PLACES[place]
    (line,) = [line for line in KERNEL.splitlines() if start in line]
    return KERNEL.replace(line, ops.replace("%old", name).replace("!T", type_) + "\n" + line.replace(name, "%new", 1))


NEGATIVE = '%new = "cleave.neg"(%old) : (!T) -> !T'
DOUBLE = '%new = "cleave.add"(%old, %old) : (!T, !T) -> !T'
ZERO = '%new = "cleave.constant"() {value = 0.0 : f32} : () -> !T'
TWICE = """%two = "cleave.constant"() {value = 2.0 : f32} : () -> !T
%new = "cleave.mul"(%two, %old) : (!T, !T) -> !T"""
ROUNDED = """%narrow = "cleave.cast"(%old) : (!T) -> tensor<64x64xbf16, #cleave.dims<["m=64", "n=64"]>>
%new = "cleave.cast"(%narrow) : (tensor<64x64xbf16, #cleave.dims<["m=64", "n=64"]>>) -> !T"""
NARROW = """%narrow = "cleave.cast"(%old) : (!T) -> tensor<64x64xf8E5M2, #cleave.dims<["m=64", "k=64"]>>
%new = "cleave.cast"(%narrow) : (tensor<64x64xf8E5M2, #cleave.dims<["m=64", "k=64"]>>) -> !T"""
READ_BACK = """%there = "cleave.load"(%y, %m, %n, %ms, %ns) {fill = 0.0 : f16,
operandSegmentSizes = array<i32: 1, 2, 2>} : (!Y, index, index, index, index) -> !T
%new = "cleave.add"(%old, %there) : (!T, !T) -> !T"""
STORED = """"cleave.store"(%old, %y, %m, %n, %ms, %ns) {operandSegmentSizes = array<i32: 1, 1, 2, 2>}
: (!T, !Y, index, index, index, index) -> ()
%new = "cleave.neg"(%old) : (!T) -> !T"""
MASKED = """%below = "cleave.cmp"(%old, %zero) {predicate = "lt"} : (!T, !T)
-> tensor<64x64xi1, #cleave.dims<["m=64", "n=64"]>>
%new = "cleave.select"(%below, %zero, %old) : (tensor<64x64xi1, #cleave.dims<["m=64", "n=64"]>>, !T, !T) -> !T"""
INSERTED = [
    *(
        (place, NEGATIVE, "'cleave.neg' is no part of a product")
        for place in ("summed", "complete", "rounded", "multiplied")
    ),
    ("loaded", NEGATIVE, "the operands of a product are loads, not 'cleave.neg'"),
    ("loaded", NARROW, "the operands of a product are as they are in memory"),
    ("complete", TWICE, "the operands of a product are loads, not 'cleave.constant'"),
    ("complete", ROUNDED, "'cleave.cast' is no part of a product"),
    ("complete", MASKED, "'cleave.select' is no part of a product"),
    ("complete", ZERO, "what is stored is not the sum of one contraction"),
    ("rounded", READ_BACK, "'cleave.cast' is no part of a product"),
    ("rounded", STORED, "a product has one store, of its result, and this kernel 2"),
    ("summed", DOUBLE, "the loop of a product adds one contraction to what it carries"),
    ("carried", ZERO, "the loop of a product adds one contraction to what it carries"),
    ("carried", DOUBLE, "the loop of a product adds one contraction to what it carries"),
    ("multiplied", DOUBLE, "the loop of a product adds one contraction to what it carries"),
]


@pytest.mark.parametrize(("place", "ops", "message"), INSERTED)
def test_what_computes_more_is_refused(place: str, ops: str, message: str) -> None:
    refused(inserted(place, ops), message)


def refused(text: str, message: str) -> None:
    """At an op of the kernel."""
    assert problems(KERNEL) == []
    (problem,) = problems(text)
    assert message in problem.message and "a library makes the plain product of two tensors" in str(problem)
    line = int(str(problem.location).split(":")[1])
    assert line >= next(n for n, line in enumerate(text.splitlines(), 1) if "func.func private" in line)


CONTRACTION = '"cleave.contract"(%left, %right) {over = ["k"]} : (!Left, !Right) -> !Tile'
REPLACED = [
    ("value = 0.0", "value = 1.0", "a product is summed up from 0"),
    ("{fill = 0.0", "{fill = 1.0", "past the end of an operand a product has 0"),
    ("cleave.add", "cleave.sub", "'cleave.sub' is no part of a product"),
    ("cleave.add", "cleave.max", "'cleave.max' is no part of a product"),
    ("cleave.add", "cleave.mul", "the operands of a product are loads"),
    ("(%sum, %part) : (!Tile, !Tile)", "(%part, %zero) : (!Tile, !Tile)", "adds one contraction to what it carries"),
    ("    %part =", f"    %again = {CONTRACTION}\n    %part =", "'cleave.contract' is no part of a product"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), REPLACED, ids=str)
def test_what_computes_otherwise_is_refused(old: str, new: str, message: str) -> None:
    refused(KERNEL.replace(old, new), message)


def test_a_product_of_one_operand_with_itself_is_refused() -> None:
    """Rows of two tensors of one type, multiplied and summed, of which an edited kernel loads the first one twice."""
    text = KERNEL.replace("(%w, %k, %n, %ks, %ns)", "(%w, %m, %k, %ms, %ks)").replace('"k", "n"', '"m", "k"')
    text = text.replace('k=64", "n=64', 'm=64", "k=64').replace(
        '?x?xf16, #cleave.dims<["m", "n"]', '?xf16, #cleave.dims<["m"]'
    )
    text = re.sub(r'64x64xf(\d+), #cleave.dims<\["m=64", "n=64"\]', r'64xf\1, #cleave.dims<["m=64"]', text)
    text = text.replace(
        "%m, %n, %ms, %ns) {operandSegmentSizes = array<i32: 1, 1, 2, 2>}",
        "%m, %ms) {operandSegmentSizes = array<i32: 1, 1, 1, 1>}",
    )
    text = text.replace("(!Result, !Y, index, index, index, index)", "(!Result, !Y, index, index)").replace(
        "*ceildiv(n, 64)", ""
    )
    assert problems(text) == []
    (problem,) = problems(text.replace("(%w, %m", "(%x, %m"))
    assert problem.message == "a product is of its kernel's two operands, and this one of one with itself"


def test_another_store_is_refused() -> None:
    text = KERNEL.replace("%y: !Y {cleave.out}", "%y: !Y")
    assert "which has two operands and a result" in problems(text)[0].message


def test_the_order_of_the_operands_is_free() -> None:
    assert (
        problems(KERNEL.replace("(%left, %right)", "(%right, %left)").replace("(!Left, !Right)", "(!Right, !Left)"))
        == []
    )


LOOP = KERNEL[KERNEL.index("  %all = ") : KERNEL.index("  %rounded =")]
REST = LOOP.replace("%all", "%whole").replace("%zero", "%all").replace("%c0 to", "%c64 to")


def in_two_loops(first_end: str) -> str:
    return KERNEL.replace(LOOP, LOOP.replace("to %ks", f"to {first_end}") + REST).replace("(%all)", "(%whole)")


def test_a_loop_may_go_on_where_another_one_ended() -> None:
    assert problems(in_two_loops("%c64")) == []
    refused(in_two_loops("%ks"), "what is stored is not the sum of one contraction")
