"""TTIR texts written by hand, for the tests of the compile driver and of the verifier."""

from __future__ import annotations

HEAD = """
module {{
  "tt.func"() ({{
  ^bb0({arguments}):
"""
TAIL = """
    "tt.return"() : () -> () loc("{file}":99:1)
  }}) {{function_type = ({types}) -> (), sym_name = "{name}", sym_visibility = "public",
       arg_attrs = [{attrs}]}} : () -> () loc("{file}":1:1)
}} loc(unknown)
"""


def function(body: str, arguments: dict[str, str], name: str = "k", file: str = "sample.mlir") -> str:
    """A module with one public function; pointers are declared 16-byte aligned."""
    attrs = ", ".join("{tt.divisibility = 16 : i32}" if "ptr" in type_ else "{}" for type_ in arguments.values())
    head = HEAD.format(arguments=", ".join(f"%{argument}: {type_}" for argument, type_ in arguments.items()))
    return head + body + TAIL.format(types=", ".join(arguments.values()), name=name, attrs=attrs, file=file)


def _offsets(result: str, rows: str, columns: str, shape: tuple[int, int], stride: int) -> str:
    """Index arithmetic: ``result`` = rows*stride + columns as a 2-D tensor of i32."""
    m, n = shape
    grid, column = f"tensor<{m}x{n}xi32>", f"tensor<{m}x1xi32>"
    return f"""
    %{result}_r1 = "tt.expand_dims"({rows}) {{axis = 1 : i32}} : (tensor<{m}xi32>) -> {column}
    %{result}_s = arith.constant dense<{stride}> : {column}
    %{result}_r2 = arith.muli %{result}_r1, %{result}_s : {column}
    %{result}_r3 = "tt.broadcast"(%{result}_r2) : ({column}) -> {grid}
    %{result}_c1 = "tt.expand_dims"({columns}) {{axis = 0 : i32}} : (tensor<{n}xi32>) -> tensor<1x{n}xi32>
    %{result}_c2 = "tt.broadcast"(%{result}_c1) : (tensor<1x{n}xi32>) -> {grid}
    %{result} = arith.addi %{result}_r3, %{result}_c2 : {grid}
"""


def _pointers(result: str, base: str, offsets: str, shape: tuple[int, int], element: str = "f16") -> str:
    m, n = shape
    pointers = f"tensor<{m}x{n}x!tt.ptr<{element}>>"
    return f"""
    %{result}_b = "tt.splat"(%{base}) : (!tt.ptr<{element}>) -> {pointers}
    %{result} = "tt.addptr"(%{result}_b, {offsets}) : ({pointers}, tensor<{m}x{n}xi32>) -> {pointers}
"""


def _range(result: str, axis: int, size: int) -> str:
    tensor = f"tensor<{size}xi32>"
    return f"""
    %{result}_p = "tt.get_program_id"() {{axis = {axis} : i32}} : () -> i32
    %{result}_n = arith.constant {size} : i32
    %{result}_o = arith.muli %{result}_p, %{result}_n : i32
    %{result}_s = "tt.splat"(%{result}_o) : (i32) -> {tensor}
    %{result}_r = "tt.make_range"() {{start = 0 : i32, end = {size} : i32}} : () -> {tensor}
    %{result} = arith.addi %{result}_s, %{result}_r : {tensor}
"""


def matmul(m: int = 128, n: int = 128, k: int = 64, size: int = 512, *, square_sum: bool = False) -> str:
    """C = A·B on size×size f16 matrices, tiles m×n×k. ``square_sum`` also reduces the loaded A tile in registers, the
    pattern that races in Triton."""
    a, b, c = f"tensor<{m}x{k}xf16>", f"tensor<{k}x{n}xf16>", f"tensor<{m}x{n}xf32>"
    pa, pb, pc = (f"tensor<{x}x{y}x!tt.ptr<f16>>" for x, y in ((m, k), (k, n), (m, n)))
    extra = f"""
      %sq = arith.mulf %ta, %ta : {a}
      %sw = arith.extf %sq : {a} to tensor<{m}x{k}xf32>
      %ss = "tt.reduce"(%sw) ({{
      ^bb0(%x: f32, %y: f32):
        %xy = arith.addf %x, %y : f32
        "tt.reduce.return"(%xy) : (f32) -> ()
      }}) {{axis = 1 : i32}} : (tensor<{m}x{k}xf32>) -> tensor<{m}xf32>
      %s1 = "tt.expand_dims"(%ss) {{axis = 1 : i32}} : (tensor<{m}xf32>) -> tensor<{m}x1xf32>
      %s2 = "tt.broadcast"(%s1) : (tensor<{m}x1xf32>) -> {c}
      %sum = arith.addf %dot, %s2 : {c}
"""
    body = f"""
{_range("rm", 0, m)}{_range("rn", 1, n)}
    %rk = "tt.make_range"() {{start = 0 : i32, end = {k} : i32}} : () -> tensor<{k}xi32>
{_offsets("oa", "%rm", "%rk", (m, k), size)}{_offsets("ob", "%rk", "%rn", (k, n), size)}
{_offsets("oc", "%rm", "%rn", (m, n), size)}
{_pointers("pa", "a", "%oa", (m, k))}{_pointers("pb", "b", "%ob", (k, n))}{_pointers("pc", "c", "%oc", (m, n))}
    %stepa = arith.constant dense<{k}> : tensor<{m}x{k}xi32>
    %stepb = arith.constant dense<{k * size}> : tensor<{k}x{n}xi32>
    %zero = arith.constant dense<0.0> : {c}
    %c0 = arith.constant 0 : i32
    %ck = arith.constant {k} : i32
    %cn = arith.constant {size} : i32
    %out:3 = scf.for %i = %c0 to %cn step %ck iter_args(%acc = %zero, %qa = %pa, %qb = %pb)
        -> ({c}, {pa}, {pb}) : i32 {{
      %ta = "tt.load"(%qa) {{operandSegmentSizes = array<i32: 1, 0, 0>}} : ({pa}) -> {a} loc("sample.mlir":20:7)
      %tb = "tt.load"(%qb) {{operandSegmentSizes = array<i32: 1, 0, 0>}} : ({pb}) -> {b} loc("sample.mlir":21:7)
      %dot = "tt.dot"(%ta, %tb, %acc) : ({a}, {b}, {c}) -> {c} loc("sample.mlir":22:7)
{extra if square_sum else ""}
      %na = "tt.addptr"(%qa, %stepa) : ({pa}, tensor<{m}x{k}xi32>) -> {pa}
      %nb = "tt.addptr"(%qb, %stepb) : ({pb}, tensor<{k}x{n}xi32>) -> {pb}
      scf.yield %{"sum" if square_sum else "dot"}, %na, %nb : {c}, {pa}, {pb}
    }}
    %half = arith.truncf %out#0 : {c} to tensor<{m}x{n}xf16>
    "tt.store"(%pc, %half) {{cache = 1 : i32}} : ({pc}, tensor<{m}x{n}xf16>) -> ()
"""
    return function(body, {"a": "!tt.ptr<f16>", "b": "!tt.ptr<f16>", "c": "!tt.ptr<f16>"}, "matmul")


def _row_reduce(result: str, operand: str, op: str, m: int, n: int) -> str:
    return f"""
      %{result} = "tt.reduce"({operand}) ({{
      ^bb0(%{result}_x: f32, %{result}_y: f32):
        %{result}_z = {op} %{result}_x, %{result}_y : f32
        "tt.reduce.return"(%{result}_z) : (f32) -> ()
      }}) {{axis = 1 : i32}} : (tensor<{m}x{n}xf32>) -> tensor<{m}xf32>
"""


def _rows(result: str, operand: str, m: int, n: int) -> str:
    return f"""
      %{result}_1 = "tt.expand_dims"({operand}) {{axis = 1 : i32}} : (tensor<{m}xf32>) -> tensor<{m}x1xf32>
      %{result} = "tt.broadcast"(%{result}_1) : (tensor<{m}x1xf32>) -> tensor<{m}x{n}xf32>
"""


def attention(m: int = 64, n: int = 64, d: int = 64, keys: int = 512) -> str:
    """Softmax(Q·Kᵀ)·V with a running maximum, one head, without scale; K's tile is read transposed."""
    q, v, s, o, row = (
        f"tensor<{x}>" for x in (f"{m}x{d}xf16", f"{n}x{d}xf16", f"{m}x{n}xf32", f"{m}x{d}xf32", f"{m}xf32")
    )
    pk, kt = f"tensor<{n}x{d}x!tt.ptr<f16>>", f"tensor<{d}x{n}xf16>"
    body = f"""
{_range("rm", 0, m)}
    %rn = "tt.make_range"() {{start = 0 : i32, end = {n} : i32}} : () -> tensor<{n}xi32>
    %rd = "tt.make_range"() {{start = 0 : i32, end = {d} : i32}} : () -> tensor<{d}xi32>
{_offsets("oq", "%rm", "%rd", (m, d), d)}{_offsets("ok", "%rn", "%rd", (n, d), d)}
{_pointers("pq", "q", "%oq", (m, d))}{_pointers("pk", "k", "%ok", (n, d))}{_pointers("pv", "v", "%ok", (n, d))}
{_pointers("po", "o", "%oq", (m, d))}
    %tq = "tt.load"(%pq) {{operandSegmentSizes = array<i32: 1, 0, 0>}} : (tensor<{m}x{d}x!tt.ptr<f16>>) -> {q}
    %zs = arith.constant dense<0.0> : {s}
    %zo = arith.constant dense<0.0> : {o}
    %zl = arith.constant dense<0.0> : {row}
    %zm = arith.constant dense<0xFF800000> : {row}
    %step = arith.constant dense<{n * d}> : tensor<{n}x{d}xi32>
    %c0 = arith.constant 0 : i32
    %cn = arith.constant {n} : i32
    %ck = arith.constant {keys} : i32
    %out:5 = scf.for %i = %c0 to %ck step %cn iter_args(%acc = %zo, %l = %zl, %mx = %zm, %qk = %pk, %qv = %pv)
        -> ({o}, {row}, {row}, {pk}, {pk}) : i32 {{
      %tk = "tt.load"(%qk) {{operandSegmentSizes = array<i32: 1, 0, 0>}} : ({pk}) -> {v}
      %kt = "tt.trans"(%tk) {{order = array<i32: 1, 0>}} : ({v}) -> {kt}
      %sc = "tt.dot"(%tq, %kt, %zs) : ({q}, {kt}, {s}) -> {s}
{_row_reduce("rmax", "%sc", "arith.maximumf", m, n)}
      %nm = arith.maximumf %rmax, %mx : {row}
{_rows("nmb", "%nm", m, n)}
      %sd = arith.subf %sc, %nmb : {s}
      %p = math.exp2 %sd : {s}
{_row_reduce("rsum", "%p", "arith.addf", m, n)}
      %dm = arith.subf %mx, %nm : {row}
      %al = math.exp2 %dm : {row}
      %l1 = arith.mulf %l, %al : {row}
      %l2 = arith.addf %l1, %rsum : {row}
{_rows("alb", "%al", m, d)}
      %acc1 = arith.mulf %acc, %alb : {o}
      %ph = arith.truncf %p : {s} to tensor<{m}x{n}xf16>
      %tv = "tt.load"(%qv) {{operandSegmentSizes = array<i32: 1, 0, 0>}} : ({pk}) -> {v}
      %acc2 = "tt.dot"(%ph, %tv, %acc1) : (tensor<{m}x{n}xf16>, {v}, {o}) -> {o}
      %nk = "tt.addptr"(%qk, %step) : ({pk}, tensor<{n}x{d}xi32>) -> {pk}
      %nv = "tt.addptr"(%qv, %step) : ({pk}, tensor<{n}x{d}xi32>) -> {pk}
      scf.yield %acc2, %l2, %nm, %nk, %nv : {o}, {row}, {row}, {pk}, {pk}
    }}
{_rows("lb", "%out#1", m, d)}
    %on = arith.divf %out#0, %lb : {o}
    %oh = arith.truncf %on : {o} to {q}
    "tt.store"(%po, %oh) : (tensor<{m}x{d}x!tt.ptr<f16>>, {q}) -> ()
"""
    return function(body, dict.fromkeys("qkvo", "!tt.ptr<f16>"), "attention")
