"""Graphs whose reductions use one another's results, and kernels that compute them in one loop of a given tile."""

from __future__ import annotations

from collections.abc import Mapping

from loop_structure import loops

from cleave.bindings import ir
from cleave.dialects.graph import Graph, GraphBuilder, Value
from cleave.passes.tile_io import from_tile_program
from cleave.schedule.emit import emit_kernel
from cleave.schedule.region import region_of
from cleave.schedule.tile_program import Kernel, Launch, TileProgram
from cleave.schedule.tiling import Fusion, Tiling


def one_kernel(graph: Graph, tiles: Mapping[str, int], fusion: Fusion | None = None) -> TileProgram:
    """The graph in one kernel with these tiles; dims that are not named have tiles of one element."""
    region = region_of(graph.outputs, frozenset(), graph.extents)
    reduced = {name for value in region.reductions for name in value.attrs["over"]}
    tiling = Tiling(
        {name: tiles.get(name, 1) for name in region.parallel},
        {name: tiles.get(name.split("_")[0], 1) for name in sorted(reduced)},
    )
    emitted = emit_kernel(f"{graph.name}__k0", region, tiling, graph.extents, fusion or Fusion())
    return TileProgram(graph, graph.outputs, (Launch(emitted.kernel, emitted.operands),))


def loop_dims(kernel: Kernel) -> list[str]:
    return [loop.attrs["dim"] for loop in loops(kernel)]


def module_of(program: TileProgram) -> ir.Module:
    module = ir.Module.create()
    from_tile_program(program, module)
    return module


def _count(b: GraphBuilder, x: Value, dim: str) -> Value:
    dims = [d for d in x.dims if d.name == dim]
    return b.reduce(b.constant(1.0, x.dtype, dims), kind="sum", over=[dim])


def _mean(b: GraphBuilder, x: Value, dim: str = "n") -> Value:
    return b.div(b.reduce(x, kind="sum", over=[dim]), _count(b, x, dim))


def _power(b: GraphBuilder, x: Value, power: int) -> Value:
    return x if power == 1 else b.mul(_power(b, x, power - 1), x)


def moment(power: int) -> Graph:
    """The mean of (x − μ)ᵏ."""
    b = GraphBuilder(f"moment{power}")
    x = b.input("m n", "f32")
    return b.build(_mean(b, _power(b, b.sub(x, _mean(b, x)), power)))


def standardised_moment(power: int) -> Graph:
    """Skewness, kurtosis: the mean of ((x − μ)/σ)ᵏ."""
    b = GraphBuilder(f"standardised{power}")
    x = b.input("m n", "f32")
    d = b.sub(x, _mean(b, x))
    sigma = b.sqrt(_mean(b, b.mul(d, d)))
    return b.build(_mean(b, _power(b, b.div(d, sigma), power)))


def covariance() -> Graph:
    b = GraphBuilder("covariance")
    x, y = b.input("m n", "f32"), b.input("m n", "f32")
    return b.build(_mean(b, b.mul(b.sub(x, _mean(b, x)), b.sub(y, _mean(b, y)))))


def covariances() -> Graph:
    """Between all rows of x and all rows of y."""
    b = GraphBuilder("covariances")
    x, y = b.input("m n", "f32"), b.input("k n", "f32")
    return b.build(b.contract(b.sub(x, _mean(b, x)), b.sub(y, _mean(b, y)), over=["n"]))


def masked_variance() -> Graph:
    """Of the elements whose weight is not zero."""
    b = GraphBuilder("masked_variance")
    x, w = b.input("m n", "f32"), b.input("m n", "f32")
    keep = b.cmp(w, b.constant(0.0, "f32"), predicate="gt")
    zero, one = b.constant(0.0, "f32"), b.constant(1.0, "f32")
    count = b.reduce(b.select(keep, b.add(one, b.mul(w, zero)), zero), kind="sum", over=["n"])
    mean = b.div(b.reduce(b.select(keep, x, zero), kind="sum", over=["n"]), count)
    d = b.select(keep, b.sub(x, mean), zero)
    return b.build(b.div(b.reduce(b.mul(d, d), kind="sum", over=["n"]), count))


def normalised_sum(*, power: int = 1) -> Graph:
    """Σ w·(x/Σx)ᵏ."""
    b = GraphBuilder(f"normalised{power}")
    x, w = b.input("m n", "f32"), b.input("n", "f32")
    share = b.div(x, b.reduce(x, kind="sum", over=["n"]))
    return b.build(b.reduce(b.mul(_power(b, share, power), w), kind="sum", over=["n"]))


def rms_contraction(dtype: str = "f16", *, epsilon: float = 1e-6) -> Graph:
    """The scale inside the contraction, as the user writes it."""
    b = GraphBuilder(f"rms_{dtype}")
    x, w = b.input("m n", dtype), b.input("n k", dtype)
    wide = b.cast(x, dtype="f32") if dtype != "f32" else x
    r = b.rsqrt(b.add(_mean(b, b.mul(wide, wide)), b.constant(epsilon, "f32")))
    y = b.mul(wide, r)
    y = b.cast(y, dtype=dtype) if dtype != "f32" else y
    return b.build(b.contract(y, w, over=["n"], dtype="f32"))


def layernorm_contraction(dtype: str = "f32", *, affine: bool = False) -> Graph:
    b = GraphBuilder(f"layernorm_{dtype}" + "_affine" * affine)
    x, w = b.input("m n", dtype), b.input("n k", dtype)
    wide = b.cast(x, dtype="f32") if dtype != "f32" else x
    d = b.sub(wide, _mean(b, wide))
    y = b.mul(d, b.rsqrt(b.add(_mean(b, b.mul(d, d)), b.constant(1e-5, "f32"))))
    if affine:
        y = b.add(b.mul(y, b.input("n", "f32")), b.input("n", "f32"))
    y = b.cast(y, dtype=dtype) if dtype != "f32" else y
    return b.build(b.contract(y, w, over=["n"], dtype="f32"))


def ngpt() -> Graph:
    """The norm of h + α·(a/‖a‖ − h), as in nGPT's residual."""
    b = GraphBuilder("ngpt")
    h, a, alpha = b.input("m n", "f32"), b.input("m n", "f32"), b.input("n", "f32")
    r = b.rsqrt(b.reduce(b.mul(a, a), kind="sum", over=["n"]))
    mixed = b.add(h, b.mul(alpha, b.sub(b.mul(a, r), h)))
    return b.build(b.reduce(b.mul(mixed, mixed), kind="sum", over=["n"]))


def entropy() -> Graph:
    """−Σ p·log p of a softmax, p·(z − m) being what is summed."""
    b = GraphBuilder("entropy")
    z = b.input("m n", "f32")
    d = b.sub(z, b.reduce(z, kind="max", over=["n"]))
    total = b.reduce(b.exp(d), kind="sum", over=["n"])
    return b.build(b.sub(b.log(total), b.div(b.reduce(b.mul(b.exp(d), d), kind="sum", over=["n"]), total)))


def scaled_by_maximum() -> Graph:
    """Rows by their largest magnitude, contracted."""
    b = GraphBuilder("scaled_by_maximum")
    x, w = b.input("m n", "f32"), b.input("n k", "f32")
    return b.build(b.contract(b.div(x, b.reduce(b.abs(x), kind="max", over=["n"])), w, over=["n"]))


def chan() -> Graph:
    """Variance from parts: the counts, means and squared deviations of s parts, combined by Chan's formula."""
    b = GraphBuilder("chan")
    n, total, squares = b.input("m s", "f32"), b.input("m s", "f32"), b.input("m s", "f32")
    count, whole = (b.reduce(v, kind="sum", over=["s"]) for v in (n, total))
    d = b.sub(b.div(total, n), b.div(whole, count))
    return b.build(b.div(b.reduce(b.add(squares, b.mul(n, b.mul(d, d))), kind="sum", over=["s"]), count))


def uncascaded() -> Graph:
    """The absolute deviation does not separate."""
    b = GraphBuilder("absolute_deviation")
    x = b.input("m n", "f32")
    return b.build(_mean(b, b.abs(b.sub(x, _mean(b, x)))))
