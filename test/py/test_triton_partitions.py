"""What is made of partitions on their way through Triton: one code for consumers, warps that copy, who is first."""

from __future__ import annotations

import re

import graphs
import pytest
from test_warp_specialised import USUAL, lowered, matmul
from test_warp_specialised_share import GRAPHS, texts_of
from test_warp_specialised_share import lowered as lowered_share

from cleave.dialects.graph import GraphBuilder
from cleave.lowering import triton_worker
from cleave.lowering.compile_ttir import Compiled, compile_many, result_of
from cleave.lowering.targets import Target
from cleave.lowering.triton_partitions import COPYING_WARPS, NUMBER, consumers_first, with_fewer_bodies

SM_90 = Target.parse("sm_90")
PRODUCTS = r"wgmma\.mma_async"


def compiled(text: str, **more: object) -> dict[str, str]:
    options = {"num_warps": 4, "num_stages": 3}
    request = {"text": text, "stop": "ptx", "arch": 90, "timeout": 90.0, "options": options}
    return triton_worker.compiled({**request, **more})


@pytest.mark.parametrize("graph", [matmul(), graphs.attention(division_last=True, head=128), graphs.causal_attention()])
def test_consumers_differ_by_their_number_alone(graph: object) -> None:
    _, (kernel,), _ = lowered(graph, stages=3)  # type: ignore[arg-type]
    text = kernel.text
    numbers = re.findall(rf"value = (\d) : i32}}> {{{re.escape(NUMBER)}}}", text)
    assert numbers == ["0", "1"]
    _, partitions = text.split('"ttg.warp_specialize.partitions"')
    first, second = (
        part.split('"ttg.warp_return"')[0] for part in re.split(rf"{{{re.escape(NUMBER)}}}", partitions)[1:]
    )
    names = [re.sub(r"%\w+(#\d+|:\d+)?", "%", body) for body in (first, second)]
    assert names[0] == names[1] and len(names[0]) > 1000


def test_one_code() -> None:
    """Half of the products, no product of another size, and both forms have 12 warps."""
    _, (kernel,), _ = lowered(graphs.attention(division_last=True, head=128), stages=3)
    one, each = compiled(kernel.text), compiled(kernel.text, fewer_bodies=False)
    assert 2 * len(re.findall(PRODUCTS, one["ptx"])) == len(re.findall(PRODUCTS, each["ptx"])) > 0
    assert one["metadata"]["num_warps"] == each["metadata"]["num_warps"] == 12  # type: ignore[index]
    assert re.findall(r"bar\.sync \t?(\d), 128;", each["ptx"]).count("3") > 0
    assert not re.search(r"bar\.sync \t?[23], 128;", one["ptx"])  # each consumer at a barrier of its own


@pytest.mark.parametrize("warps", [8, 12, 16])
def test_consumers_have_the_first_warps(warps: int) -> None:
    """Warpgroups in reverse, threads in order: by carrying the instructions out."""
    ptx = "mov.b32 %r7, %tid.x;\nmov.u32 \t%r1, %tid.x;\n"
    text = consumers_first(ptx, warps).splitlines()[1]
    found: list[int] = []
    for thread in range(32 * warps):
        values = {"%tid.x": thread}
        for instruction in re.findall(r"(mov|and|shl|sub|add)\.\w+\s+([^;]*);", text):
            name, (result, *operands) = instruction[0], [each.strip() for each in instruction[1].split(",")]
            a, *b = [values[each] if each in values else int(each) for each in operands]
            results = {"mov": a, "and": a & (b or [0])[0], "shl": a << (b or [0])[0], "sub": a - (b or [0])[0]}
            values[result] = results[name] if name in results else a + b[0]
        found.append(values["%r1"])
    groups = warps // 4
    assert found == [128 * (groups - 1 - thread // 128) + thread % 128 for thread in range(32 * warps)]
    assert consumers_first(ptx.replace("b32", "u32"), warps) == ptx.replace("b32", "u32")


def test_all_that_reads_a_threads_number_is_turned() -> None:
    """But for consumers' code, which does not come from it."""
    _, (kernel,), _ = lowered(graphs.attention(division_last=True, head=128), stages=3)
    ptx = compiled(kernel.text)["ptx"]
    reads = re.findall(r"(\S*)\s*mov\.(\w+)\s+(%?\w+), %tid\.x; (\S+)", ptx)
    assert reads and all((kind == "b32") != ("place" in before + behind) for before, kind, _, behind in reads)


def test_consumers_with_memory_of_their_own_have_a_code_each() -> None:
    """What Triton exchanges between threads of one the other would overwrite: on an H200 the numbers were wrong.

    With 3.6 a combination of parts moves tiles through shared memory; later versions do without here.
    """
    name = lowered_share(GRAPHS[0], 128)[0].launches[0].kernel
    text = texts_of(GRAPHS[0], 128)[name]
    assert NUMBER in text
    moved = text.replace('"ttg.warp_return"', f'{_through_memory()}\n        "ttg.warp_return"')
    products = len(re.findall(PRODUCTS, compiled(moved, fewer_bodies=False)["ptx"]))
    assert len(re.findall(PRODUCTS, compiled(moved)["ptx"])) == products
    sizes = [compiled(text, stop=stop)["metadata"]["shared"] for stop in ("shared", "ptx")]  # type: ignore[index]
    assert sizes[0] == sizes[1]


def test_all_threads_of_the_producer_give_the_first_turn() -> None:
    """Ahead of the branch for those that copy: the barrier counts a warpgroup."""
    _, (kernel,), _ = lowered(graphs.attention(division_last=True, head=128), stages=3)
    assert 0 < kernel.text.index("bar.arrive $1") < kernel.text.index(COPYING_WARPS)


def _through_memory() -> str:
    """A sum of what four warps have."""
    layout = "#ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>"
    used = 'asm_string = "mov.b32 $0, $1;", constraints = "=r,r", packed_element = 1 : i32, pure = false'
    return f"""
        %cl_range = "tt.make_range"() {{end = 128 : i32, start = 0 : i32}} : () -> tensor<128xi32, {layout}>
        %cl_sum = "tt.reduce"(%cl_range) <{{axis = 0 : i32}}> ({{
        ^bb0(%cl_a: i32, %cl_b: i32):
          %cl_c = "arith.addi"(%cl_a, %cl_b) : (i32, i32) -> i32
          "tt.reduce.return"(%cl_c) : (i32) -> ()
        }}) : (tensor<128xi32, {layout}>) -> i32
        %cl_none = "tt.elementwise_inline_asm"(%cl_sum) {{{used}}} : (i32) -> i32"""


def test_a_triton_that_makes_partitions_otherwise_compiles_them_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    from cleave.lowering import triton_partitions

    _, (kernel,), _ = lowered(matmul(), stages=3)

    def unknown(module: object) -> None:
        raise triton_partitions.UnknownPartitions

    monkeypatch.setitem(triton_partitions.BEHIND, "add_warp_specialize_to_llvm", unknown)
    each, fallen_back = compiled(kernel.text, fewer_bodies=False), compiled(kernel.text)
    assert fallen_back["ptx"] == each["ptx"]
    request = kernel.request(SM_90)
    assert any("version of Triton" in note for note in result_of(fallen_back, request).notes)
    assert not any("version of Triton" in note for note in result_of(each, request).notes)


@pytest.mark.parametrize(("columns", "warps"), [(64, "1"), (128, "2")])
def test_as_many_warps_copy_as_tiles_have_parts(columns: int, warps: str) -> None:
    """Of 128 bytes of a row; the rest of the producer's stand behind the branch."""
    _, (kernel,), _ = lowered(graphs.attention(division_last=True, head=columns), stages=3)
    assert re.findall(rf"value = (\d) : i32}}> {{{re.escape(COPYING_WARPS)}}}", kernel.text) == [warps]
    assert with_fewer_bodies(kernel.text).count("%cleave_copies") == 2
    ptx = compiled(kernel.text)["ptx"]
    assert len(re.findall(r"bar\.sync \t?(?:0|%r\d+), %r\d+;", ptx)) > 0


def test_it_is_compiled_without_spills() -> None:
    _, (kernel,), _ = lowered(matmul(), form=USUAL, stages=3)
    (found,) = compile_many([kernel.request(SM_90)])
    assert isinstance(found, Compiled) and (found.num_warps, found.spills) == (12, 0)


def test_bytes_that_a_kernel_stores_are_no_destinations() -> None:
    """Signs of a product, a byte each, by threads: all eight warps of consumers are still sent to one code."""
    b = GraphBuilder("signs")
    x, w = b.input("m k=256", "f16"), b.input("k=256 n=256", "f16")
    product = b.contract(x, w, over=["k"], dtype="f32")
    _, (kernel,), _ = lowered(b.build(b.cmp(product, b.constant(0.0, "f32"), predicate="ge")), stages=3)
    text = compiled(kernel.text)["llir"]
    assert re.findall(r"store i8 (\d+), ptr addrspace\(3\)", text)[:9] == ["0"] * 8 + ["2"]  # then all are to end
