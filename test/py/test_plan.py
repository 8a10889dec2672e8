"""Launch plans: read off lowered modules, and as JSON."""

from __future__ import annotations

import json

import graphs
import pytest
from compiled import CTX, compile_graph

from cleave.bindings import ir
from cleave.errors import CleaveError
from cleave.lowering.lower_to_triton import LowerToTriton
from cleave.lowering.plan import plan_of
from cleave.runtime.launch_plan import Alloc, Launch, LaunchPlan, TensorSpec, View

SCHEDULED = """
func.func @f(%x: tensor<?x64xf32, #cleave.dims<["n", "d"]>>) -> tensor<?xf32, #cleave.dims<["n"]>>
    attributes {cleave.facts = ["n = s*t"], cleave.choices = ["s = 4"]} {
  %o = "cleave.alloc"() : () -> tensor<?xf32, #cleave.dims<["n"]>>
  %a = "cleave.rename"(%x) {from = "d", to = "e=d"}
    : (tensor<?x64xf32, #cleave.dims<["n", "d"]>>) -> tensor<?x64xf32, #cleave.dims<["n", "e=d"]>>
  %b = "cleave.split"(%a) {dim = "n", into = ["s", "t"]}
    : (tensor<?x64xf32, #cleave.dims<["n", "e=d"]>>) -> tensor<?x?x64xf32, #cleave.dims<["s", "t", "e=d"]>>
  %c = "cleave.slice"(%b) {dim = "e", into = "g=32", offset = "16"}
    : (tensor<?x?x64xf32, #cleave.dims<["s", "t", "e=d"]>>) -> tensor<?x?x32xf32, #cleave.dims<["s", "t", "g=32"]>>
  func.call @k(%c, %o) {cleave.grid = ["n", "s", "ceildiv(t, 2)"]}
    : (tensor<?x?x32xf32, #cleave.dims<["s", "t", "g=32"]>>, tensor<?xf32, #cleave.dims<["n"]>>) -> ()
  return %o : tensor<?xf32, #cleave.dims<["n"]>>
}
func.func private @k(%x: tensor<?x?x32xf32, #cleave.dims<["s", "t", "g=32"]>>,
                     %o: tensor<?xf32, #cleave.dims<["n"]>> {cleave.out})
    attributes {cleave.kernel, cleave.num_warps = 2 : i64, cleave.num_stages = 3 : i64} {
  %n = "cleave.extent"() {size = "n"} : () -> index
  %i = "cleave.program_id"() {axis = 0 : i64} : () -> index
  %z = "cleave.constant"() {value = 1.0 : f32} : () -> tensor<f32, #cleave.dims<[]>>
  "cleave.store"(%z, %o, %i, %n) {operandSegmentSizes = array<i32: 1, 1, 1, 1>}
    : (tensor<f32, #cleave.dims<[]>>, tensor<?xf32, #cleave.dims<["n"]>>, index, index) -> ()
  return
}
"""


def lowered(text: str) -> ir.Module:
    with CTX:
        module = ir.Module.parse(text)
        LowerToTriton().apply(CTX, module)
        return module


def test_every_kind_of_step() -> None:
    plan = plan_of(lowered(SCHEDULED), "f")
    assert plan.arguments == (TensorSpec("in0", "f32", ("n", "d"), (None, 64)),)
    alloc, rename, split, slice_, launch = plan.steps
    assert alloc == Alloc(TensorSpec("t0", "f32", ("n",), (None,)))
    assert rename == View("in0", ("d",), ("e=d",), TensorSpec("t1", "f32", ("n", "e=d"), (None, 64)))
    assert split == View("t1", ("n",), ("s", "t"), TensorSpec("t2", "f32", ("s", "t", "e=d"), (None, None, 64)))
    assert slice_ == View("t2", ("e",), ("g=32",), TensorSpec("t3", "f32", ("s", "t", "g=32"), (None, None, 32)), "16")
    assert isinstance(launch, Launch)
    assert (launch.kernel, launch.grid, launch.operands) == ("k", ("n", "s", "ceildiv(t, 2)"), ("t3", "t0"))
    assert (launch.outputs, launch.num_warps, launch.num_stages) == (("t0",), 2, 3)
    assert launch.arguments[:2] == ("in:0", "in:1")
    assert plan.results == ("t0",)
    assert plan.facts == ("n = s*t",)
    assert plan.choices == ("s = 4",)
    assert plan.extents == {"d": 64}


def test_a_merge_of_the_result() -> None:
    text = SCHEDULED.replace(
        "  func.call",
        '  %m = "cleave.merge"(%c) {dims = ["t", "g"], into = "h=t*32"}\n'
        '    : (tensor<?x?x32xf32, #cleave.dims<["s", "t", "g=32"]>>)\n'
        '    -> tensor<?x?xf32, #cleave.dims<["s", "h=t*32"]>>\n'
        "  func.call",
    )
    merge = plan_of(lowered(text), "f").steps[4]
    assert merge == View("t3", ("t", "g"), ("h=t*32",), TensorSpec("t4", "f32", ("s", "h=32*t"), (None, None)))


def test_the_source_location() -> None:
    end = '  return %o : tensor<?xf32, #cleave.dims<["n"]>>\n}'
    module = lowered(SCHEDULED.replace(end, f'{end} loc("in.mlir":3:1)'))
    assert plan_of(module, "f").location == "in.mlir:3:1"


def test_a_function_that_is_not_there() -> None:
    with pytest.raises(CleaveError, match="no function 'g'") as info:
        plan_of(lowered(SCHEDULED), "g")
    assert info.value.notes == ("functions: f, k",)


def test_a_kernel_that_is_not_lowered() -> None:
    with CTX:
        module = ir.Module.parse(SCHEDULED)
    with pytest.raises(CleaveError, match="'k' is no lowered kernel") as info:
        plan_of(module, "f")
    assert info.value.location is not None


def test_an_op_that_does_not_belong_on_the_host() -> None:
    text = SCHEDULED.replace(
        "  return %o : tensor<?xf32", "  %c0 = arith.constant 0 : index\n  return %o : tensor<?xf32"
    )
    with pytest.raises(CleaveError, match=r"'arith.constant' is no op of a host function"):
        plan_of(lowered(text), "f")


@pytest.mark.parametrize("graph", [graphs.matmul_and_rowsum(), graphs.softmax(), graphs.variance()])
def test_json_there_and_back(graph: object) -> None:
    plan = compile_graph(graph).plan  # type: ignore[arg-type]
    assert plan.launches
    assert LaunchPlan.from_json(plan.to_json()) == plan
    assert LaunchPlan.from_json(json.dumps(json.loads(plan.to_json()))) == plan


def changed(**values: object) -> str:
    return json.dumps({**json.loads(plan_of(lowered(SCHEDULED), "f").to_json()), **values})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the launch plan is no JSON"),
        ("[1, 2]", "no launch plan of version 1"),
        ('{"version": 2}', "no launch plan of version 1"),
        ('{"version": 1}', "malformed"),
        ('{"version": 1, "function": "f", "arguments": 7, "steps": [], "results": []}', "malformed"),
    ],
)
def test_json_that_is_no_plan(text: str, message: str) -> None:
    with pytest.raises(CleaveError, match=message):
        LaunchPlan.from_json(text)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"steps": [{"kind": "jump"}]}, "malformed.*jump"),
        ({"steps": [{"kind": "alloc"}]}, "malformed"),
        ({"colour": "red"}, "malformed.*colour"),
        ({"results": ["t9"]}, "returns tensor 't9'"),
        ({"steps": []}, "returns tensor 't0', which no step makes"),
        ({"arguments": []}, "uses tensor 'in0' before it is made"),
        ({"arguments": [{"name": "in0", "dtype": "f32", "dims": ["n"], "extents": []}]}, "1 dims and 0 extents"),
    ],
)
def test_json_of_a_plan_that_does_not_hold_together(values: dict[str, object], message: str) -> None:
    with pytest.raises(CleaveError, match=message):
        LaunchPlan.from_json(changed(**values))
