"""Programs that pick elements of tensors: gather, concat, slice, merge, alone and in the middle of others."""

from __future__ import annotations

import math
from collections.abc import Callable

from semantics_cases import attention_of

from cleave.dialects.dims import Dim, sym
from cleave.dialects.graph import Graph, GraphBuilder, Value

PROGRAMS: dict[str, Callable[[], Graph]] = {}


def program(build: Callable[[GraphBuilder], Value | tuple[Value, ...]]) -> Callable[[], Graph]:
    def graph() -> Graph:
        b = GraphBuilder(build.__name__)
        outputs = build(b)
        return b.build(*(outputs if isinstance(outputs, tuple) else (outputs,)))

    PROGRAMS[build.__name__] = graph
    return graph


def rms_norm(b: GraphBuilder, x: Value, over: str) -> Value:
    ones = b.constant(1.0, "f32", [Dim(over, x.size(over))])
    mean = b.div(b.reduce(b.mul(x, x), kind="sum", over=[over]), b.reduce(ones, kind="sum", over=[over]))
    return b.mul(x, b.rsqrt(b.add(mean, b.constant(1e-5, "f32"))))


@program
def embedding_and_norm(b: GraphBuilder) -> Value:
    """Rows of a table, normalised, times a matrix."""
    table, tokens, w = b.input("v k", "f32"), b.input("m", "i32"), b.input("k n", "f16")
    x = rms_norm(b, b.gather(table, tokens, dim="v"), "k")
    return b.contract(b.cast(x, dtype="f16"), w, over=["k"], dtype="f32")


def _paged(b: GraphBuilder, *, merged: bool) -> Value:
    q, keys = b.input("b g d=16", "f16"), b.input("page slot=8 d=16", "f16")
    values, table, length = b.input("page slot=8 e=16", "f16"), b.input("b j", "i32"), b.input("b", "i32")
    k, v = (b.gather(x, table, dim="page") for x in (keys, values))
    if merged:
        k, v = (b.merge(x, dims=["j", "slot"], into="n=j*slot") for x in (k, v))
        position = b.index(dim="n=j*slot", dtype="i32")
    else:
        slots = b.mul(b.index(dim="j", dtype="i32"), b.constant(8, "i32"))
        position = b.add(slots, b.index(dim="slot", dtype="i32"))
    over = ["n"] if merged else ["j", "slot"]
    s = b.contract(q, k, over=["d"], dtype="f32")
    s = b.select(b.cmp(position, length, predicate="lt"), s, b.constant(-math.inf, "f32"))
    e = b.exp(b.sub(s, b.reduce(s, kind="max", over=over)))
    total = b.reduce(e, kind="sum", over=over)
    return b.div(b.contract(b.cast(e, dtype="f16"), v, over=over, dtype="f32"), total)


@program
def paged_attention(b: GraphBuilder) -> Value:
    return _paged(b, merged=False)


@program
def paged_attention_over_one_dim(b: GraphBuilder) -> Value:
    return _paged(b, merged=True)


@program
def rows_of_experts(b: GraphBuilder) -> Value:
    """Mixture of experts: the rows of one expert, times its matrix, scaled by the router."""
    x, rows, w, scale = b.input("t k", "f16"), b.input("m", "i64"), b.input("k n", "f16"), b.input("t", "f32")
    picked = b.contract(b.gather(x, rows, dim="t"), w, over=["k"], dtype="f32")
    return b.mul(picked, b.gather(scale, rows, dim="t"))


@program
def expert_of_each_row(b: GraphBuilder) -> Value:
    x, w, expert = b.input("t k", "f16"), b.input("x k n", "f16"), b.input("t", "i32")
    return b.contract(x, b.gather(w, expert, dim="x"), over=["k"], dtype="f32")


def _dims(text: str) -> list[Dim]:
    return [Dim.parse(word) for word in text.split()]


def rotated(b: GraphBuilder, x: Value, cos: Value, sin: Value) -> Value:
    """RoPE on dim d=32: x·cos + rotate-half(x)·sin."""
    half = [b.slice(x, dim="d", into=f"{name}=16", offset=at) for name, at in (("u", "16"), ("w", "0"))]
    turned = b.concat(b.neg(half[0]), half[1], dims=["u", "w"], into="d=32")
    return b.add(b.mul(x, cos), b.mul(turned, sin))


@program
def rope_alone(b: GraphBuilder) -> Value:
    x, cos, sin = (b.input(_dims(dims), "f32") for dims in ("h m d=32", "m d=32", "m d=32"))
    return rotated(b, x, cos, sin)


@program
def rope_and_attention(b: GraphBuilder) -> Value:
    q, k, v = (b.input(_dims(f"h {name} d=32"), "f16") for name in "mnn")
    angles, keys = ([b.input(_dims(f"{name} d=32"), "f16") for _ in range(2)] for name in "mn")
    s = b.contract(rotated(b, q, *angles), rotated(b, k, *keys), over=["d"], dtype="f32")
    e = b.exp(b.sub(s, b.reduce(s, kind="max", over=["n"])))
    values = b.rename(v, from_="d", to="f=32")
    total = b.reduce(e, kind="sum", over=["n"])
    return b.div(b.contract(b.cast(e, dtype="f16"), values, over=["n"], dtype="f32"), total)


@program
def attention_with_appended_keys(b: GraphBuilder) -> Value:
    q, k, v = b.input("m d=16", "f16"), b.input("p d=16", "f16"), b.input("p e=16", "f16")
    new_k, new_v = b.input("q d=16", "f16"), b.input("q e=16", "f16")
    keys, values = (b.concat(x, y, dims=["p", "q"], into="n=p+q") for x, y in ((k, new_k), (v, new_v)))
    s = b.contract(q, keys, over=["d"], dtype="f32")
    return attention_of(b, s, values)


@program
def slices_of_one_projection(b: GraphBuilder) -> tuple[Value, Value]:
    x, w = b.input("m k", "f16"), b.input("k n", "f16")
    qkv = b.contract(x, w, over=["k"], dtype="f32")
    first = b.slice(qkv, dim="n", into="i=5", offset="0")
    last = b.slice(b.exp(qkv), dim="n", into="j=7", offset="n - 7")
    return first, b.mul(last, b.reduce(last, kind="sum", over=["j"]))


@program
def concatenated_products(b: GraphBuilder) -> Value:
    x, u, v = b.input("m k", "f16"), b.input("k p", "f16"), b.input("k q", "f16")
    parts = [b.contract(x, w, over=["k"], dtype="f32") for w in (u, v)]
    return b.sigmoid(b.concat(*parts, dims=["p", "q"], into="n=p+q"))


@program
def three_joined_under_one_name(b: GraphBuilder) -> Value:
    """The joined dim is called like one of the first operand's; it is summed with another tensor of that size."""
    x, y, z, w = b.input("n", "f32"), b.input("p", "f32"), b.input("q", "f32"), b.input("r", "f32")
    joined = b.concat(b.concat(x, y, dims=["n", "p"], into="n=n+p"), z, dims=["n", "q"], into="o=n+p+q")
    return b.mul(b.exp(joined), b.reduce(w, kind="sum", over=["r"]))


@program
def gather_of_a_gather(b: GraphBuilder) -> Value:
    x, i, j = b.input("p d", "f32"), b.input("t", "i32"), b.input("m", "i32")
    return b.exp(b.gather(b.neg(b.gather(x, i, dim="p")), j, dim="t"))


@program
def gather_of_a_softmax(b: GraphBuilder) -> Value:
    x, i = b.input("t n", "f32"), b.input("m", "i32")
    e = b.exp(b.sub(x, b.reduce(x, kind="max", over=["n"])))
    return b.gather(b.div(e, b.reduce(e, kind="sum", over=["n"])), i, dim="t")


@program
def one_of_each_row(b: GraphBuilder) -> Value:
    """Cross entropy: minus the log-probability of one class for each row."""
    x, label = b.input("m n", "f32"), b.input("m", "i32")
    top = b.reduce(x, kind="max", over=["n"])
    total = b.log(b.reduce(b.exp(b.sub(x, top)), kind="sum", over=["n"]))
    return b.sub(b.add(top, total), b.gather(x, label, dim="n"))


@program
def merged_products(b: GraphBuilder) -> Value:
    x, y, w = b.input("m i", "f32"), b.input("j", "f32"), b.input("h n", "f32")
    merged = b.merge(b.mul(x, y), dims=["i", "j"], into="h=i*j")
    return b.contract(merged, b.slice(w, dim="h", into="h=i*j", offset="0"), over=["h"])


@program
def merged_sums(b: GraphBuilder) -> Value:
    """Three merges of what reductions give: each is in memory first."""
    parts = []
    for name in "uvw":
        x = b.input(f"m i j {name}", "f32")
        parts.append(b.merge(b.reduce(b.exp(x), kind="sum", over=[name]), dims=["i", "j"], into="h=i*j"))
    return b.reduce(b.mul(b.mul(*parts[:2]), parts[2]), kind="max", over=["h"])


@program
def shifted_twice(b: GraphBuilder) -> Value:
    """A difference along a dim of a computed value: two slices of it."""
    x = b.input("m n", "f32")
    y = b.mul(b.exp(x), b.cast(b.index(dim="n", dtype="i32"), dtype="f32"))
    size = Dim("k", sym("n") - 1)
    before, after = (b.slice(y, dim="n", into=str(size), offset=at) for at in ("0", "1"))
    return b.reduce(b.sub(after, before), kind="sum", over=["k"])
