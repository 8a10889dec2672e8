"""``cleave.jit`` and ``cleave.compile`` on arrays of the host, and packages."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cleave
from cleave import Package, f16, f32
from cleave.buckets import bucket
from cleave.compilation import Compilation
from cleave.errors import CleaveError, Position
from cleave.function import Function
from cleave.lowering import compile_ttir
from cleave.lowering.package import _without
from cleave.lowering.targets import TTGIR_TARGET
from cleave.runtime.call import Operands
from cleave.runtime.launch_plan import Launch, LaunchPlan
from cleave.runtime.package import FORMAT


@cleave.jit(static="d")
def attention(q: f16["h m d"], k: f16["h n d"], v: f16["h n e=16"]) -> f16["m h e"]:
    s = cleave.contract(q, k, over="d") * 0.25
    s = cleave.where(cleave.index("n") <= cleave.index("m"), s, -float("inf"))
    return cleave.contract(cleave.softmax(s, over="n"), v, over="n")


def _inputs(m: int, n: int, d: int = 16, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((2, rows, width)).astype(np.float16) for rows, width in ((m, d), (n, d), (n, 16))]


def _expected(q: Any, k: Any, v: Any) -> Any:
    s = np.einsum("hmd,hnd->hmn", q.astype(float), k.astype(float)) * 0.25
    s = np.where(np.arange(k.shape[1]) <= np.arange(q.shape[1])[:, None], s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("hmn,hne->mhe", p / p.sum(-1, keepdims=True), v.astype(float))


def test_a_call_is_right_at_any_sizes_and_compiles_once_for_near_ones() -> None:
    for m, n in ((5, 7), (16, 3), (1, 1)):
        inputs = _inputs(m, n)
        np.testing.assert_allclose(attention(*inputs), _expected(*inputs), atol=2e-3)
    assert len(attention.specialised(d=16)._variants) == 1


def test_static_sizes_are_compiled_in() -> None:
    narrow, wide = _inputs(4, 4, 16), _inputs(4, 4, 32)
    for inputs in (narrow, wide):
        np.testing.assert_allclose(attention(*inputs), _expected(*inputs), atol=2e-3)
    assert attention.specialised(d=32).signature.extents["d"] == 32


def test_buckets() -> None:
    assert [bucket(size) for size in (0, 1, 16, 17, 64, 65, 5000)] == [16, 16, 16, 64, 64, 256, 16384]


def test_messages_name_the_parameters() -> None:
    q, k, v = _inputs(5, 7)
    with pytest.raises(CleaveError, match="dimension 'n' is 6 in k and 7 in v"):
        attention(q, k[:, :6], v)
    with pytest.raises(CleaveError, match="k has elements of float32; the function takes f16"):
        attention(q, k.astype(np.float32), v)
    with pytest.raises(CleaveError, match=r"attention takes 3 arguments, not 2: 'v' missing(?s:.*)arguments: q, k, v"):
        attention(q, k)
    with pytest.raises(CleaveError, match="q has rank 2"):
        attention(q[0], k, v)
    with pytest.raises(CleaveError, match="a str is no tensor"):
        attention(q, k, "v")


def test_a_target_or_a_layout_that_is_none_is_refused_before_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    function = cleave.jit(attention.__wrapped__)
    monkeypatch.setattr(Compilation, "lowered", lambda *_, **__: pytest.fail("it was compiled"))
    monkeypatch.setattr(Compilation, "variant", lambda *_, **__: pytest.fail("it was compiled"))
    with pytest.raises(CleaveError, match="unknown target 'sm_1'"):
        function.ptx("sm_1")
    with pytest.raises(CleaveError, match="unknown target 'sm_1'"):
        function.package("sm_1")
    with pytest.raises(CleaveError, match="'x' is no argument of attention"):
        function.package(layouts=[{"x": "m k"}])


def test_what_it_was_compiled_to_can_be_read() -> None:
    special = attention.specialised(d=16)
    assert "func.func @attention" in special.source
    assert special.explain(h=2, m=64, n=64).startswith("attention: reduction chain")
    assert special.explain(m=64, n=64).startswith("not given, taken to be 1024: h\nattention: reduction chain")
    assert "chosen" in special.explain(m=64, n=64)
    assert '"tt.dot"' in special.ttir(m=64, n=64)


def test_compile_takes_text_and_files(tmp_path: Path) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    text = """
func.func @double(%x: tensor<?x?xf32, #cleave.dims<["m", "n"]>>) -> tensor<?x?xf32, #cleave.dims<["m", "n"]>> {
  %y = "cleave.add"(%x, %x) : (tensor<?x?xf32, #cleave.dims<["m", "n"]>>, tensor<?x?xf32, #cleave.dims<["m", "n"]>>)
    -> tensor<?x?xf32, #cleave.dims<["m", "n"]>>
  return %y : tensor<?x?xf32, #cleave.dims<["m", "n"]>>
}
"""
    path = tmp_path / "double.mlir"
    path.write_text(text)
    for source in (text, path, str(path)):
        np.testing.assert_array_equal(cleave.compile(source)(x), 2 * x)
    with pytest.raises(CleaveError, match="cannot read"):
        cleave.compile(tmp_path / "none.mlir")
    with pytest.raises(CleaveError, match="cannot read none: No such file"):
        cleave.compile("none")
    path.write_text("func.func @f( {")
    with pytest.raises(CleaveError) as caught:
        cleave.compile(path)
    assert str(caught.value).startswith(f"{path}:1:")
    with pytest.raises(CleaveError, match="there is no function 'other'"):
        cleave.compile(text, "other")
    with pytest.raises(CleaveError) as caught:
        cleave.compile("func.func @f( {")
    assert caught.value.location


def test_sizes_that_are_asked_for_are_all_that_is_compiled() -> None:
    function = cleave.compile(attention.specialised(d=16).source, sizes=[{"m": 16, "n": 64}])
    inputs = _inputs(70, 70)
    np.testing.assert_allclose(function(*inputs), _expected(*inputs), atol=2e-3)
    assert len(function._variants) == 1


def test_tensors_by_name() -> None:
    q, k, v = _inputs(5, 7)
    expected = attention(q, k, v)
    np.testing.assert_array_equal(attention(q, v=v, k=k), expected)
    with pytest.raises(CleaveError, match="'w' is no argument of attention"):
        attention(q, k, w=v)
    with pytest.raises(CleaveError, match="'q' is given twice"):
        attention(q, k, q=v)
    with pytest.raises(CleaveError, match="the argument 'v' of attention is missing"):
        attention(q, k=k)


@cleave.jit
def parts(x: f32["m n"]) -> f32:
    return x.split("n", ["s", "t=ceildiv(n,s)"]).sum("t")


def test_sizes_that_no_tensor_binds_must_be_given() -> None:
    """What the result is depends on them."""
    x = np.arange(21, dtype=np.float32).reshape(3, 7)
    np.testing.assert_array_equal(parts(x, sizes={"s": 2}), np.stack([x[:, :4].sum(1), x[:, 4:].sum(1)], 1))
    with pytest.raises(CleaveError, match="no argument gives size 's' a value"):
        parts(x)
    with pytest.raises(CleaveError, match="no argument gives size 's' a value"):
        parts.package(sizes=[{"m": 16, "n": 16}])(x)
    with pytest.raises(CleaveError, match="parts has no size 'q'"):
        parts(x, sizes={"s": 2, "q": 3})


def test_sizes_of_splits_that_the_search_makes() -> None:
    """They are checked whichever program takes the call; the unit of parts is compiled in."""

    @cleave.jit
    def lse(x: f32["m n"]) -> f32["m"]:
        top = x.max("n")
        return top + cleave.log(cleave.exp(x - top).sum("n"))

    x = np.zeros((1, 5), np.float32)
    for name in ("s", "u"):
        with pytest.raises(CleaveError, match=f"requires 1 <= {name}, which does not hold for {name} = 0"):
            lse(x, sizes={name: 0})
    with pytest.raises(CleaveError, match="lse has no size 'q'"):
        lse(x, sizes={"q": 7})
    np.testing.assert_allclose(lse(x, sizes={"s": 2, "u": 7}), np.log([5]), rtol=1e-6)
    assert lse._compilation.compiled_in({"s": 2, "u": 7, "n": 5}) == {"u": 7}
    assert {"m": 16, "n": 16, "u": 7} in [dict(key) for key in lse._variants]


def test_a_slice_that_leaves_its_dim_is_refused() -> None:
    @cleave.jit
    def head(x: f32["m n"]) -> f32["m e=8"]:
        return x.slice("n", "e=8", offset=2) * 2

    x = np.arange(30, dtype=np.float32).reshape(3, 10)
    np.testing.assert_array_equal(head(x), 2 * x[:, 2:])
    with pytest.raises(CleaveError, match=r"requires 10 <= n, which does not hold for n = 9 \(x\)"):
        head(x[:, :9])


class _Torch:
    """As much of a PyTorch tensor on a GPU as a call looks at before it launches."""

    is_cuda, device = True, "cuda:0"

    def __init__(self, address: int, contiguous: bool) -> None:
        self.address, self.dense = address, contiguous

    def is_contiguous(self) -> bool:
        return self.dense

    def is_neg(self) -> bool:
        return False

    def data_ptr(self) -> int:
        return self.address

    def clone(self, *, memory_format: str) -> tuple[str, _Torch]:
        return memory_format, self


def test_tensors_that_kernels_cannot_read_are_copied_on_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    streams: list[Any] = []

    def stream(made: Any) -> Any:
        streams.append(made)
        return nullcontext()

    cuda = SimpleNamespace(stream=stream, ExternalStream=lambda *given: given)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=_Torch, cuda=cuda, contiguous_format="dense"))
    good, strided, unaligned = _Torch(256, contiguous=True), _Torch(256, contiguous=False), _Torch(258, contiguous=True)
    assert Operands.of([good, strided, unaligned], 7).values == (good, ("dense", strided), ("dense", unaligned))
    assert Operands.of([good, good]).values == (good, good)
    assert streams == [(7, "cuda:0"), (7, "cuda:0")]


@pytest.mark.parametrize(
    ("location", "head"),
    [
        ('loc("f.py":3:1)', "f.py:3:1: "),
        ("loc(unknown)", ""),
        ("f.mlir:3:1", "f.mlir:3:1: "),
        (None, ""),
        (Position("f", 1, 2), "f:1:2: "),
    ],
)
def test_places_are_printed_without_mlirs_spelling(location: object, head: str) -> None:
    assert str(CleaveError("wrong", location)) == f"{head}error: wrong"


# --- packages --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def package() -> Package:
    function: Function = attention.specialised(d=16)
    return function.package("sm_90", "sm_80", sizes=[{"m": 16, "n": 16}])


def test_a_package_comes_back_as_it_was(package: Package, tmp_path: Path) -> None:
    path = tmp_path / "attention.cleave"
    package.save(path)
    again = Package.load(path)
    assert again == package and again.targets == ("sm_80", "sm_90")
    assert again.to_bytes() == package.to_bytes() == path.read_bytes()
    assert {"cleave", "triton"} <= again.versions.keys()
    assert [p.name for p in tmp_path.iterdir()] == ["attention.cleave"]


def test_a_package_runs_where_no_compiler_is(package: Package, tmp_path: Path) -> None:
    """It is called in a process in which neither MLIR nor Triton can be imported."""
    path = tmp_path / "attention.cleave"
    package.save(path)
    inputs = _inputs(5, 7)
    np.savez(tmp_path / "in.npz", *inputs)
    code = f"""
import sys
sys.modules.update(dict.fromkeys(("mlir", "triton", "sympy", "z3")))
import numpy as np, cleave
q, k, v = np.load({str(tmp_path / "in.npz")!r}).values()
np.save({str(tmp_path / "out.npy")!r}, cleave.Package.load({str(path)!r})(q, k, v))
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), _expected(*inputs), atol=2e-3)


def _other_format() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("package.json", '{"format": 9}')
    return buffer.getvalue()


def test_files_that_are_no_packages(package: Package, tmp_path: Path) -> None:
    whole = package.to_bytes()
    for number, data in enumerate((b"", b"PK", whole[: len(whole) // 2], _other_format())):
        path = tmp_path / f"{number}.cleave"
        path.write_bytes(data)
        with pytest.raises(CleaveError, match=r"this is no package|this is a package of format 9"):
            Package.load(path)
    with pytest.raises(CleaveError, match="cannot read"):
        Package.load(tmp_path / "none")
    with pytest.raises(CleaveError, match="cannot write"):
        package.save(tmp_path / "nowhere" / "p.cleave")


def test_a_gpu_that_it_was_not_compiled_for(package: Package) -> None:
    with pytest.raises(CleaveError, match="has no kernels for sm_75"):
        package.program(package.variants[0], "sm_75")


def test_what_the_compiler_refuses_is_replaced_by_the_launches_it_stands_for() -> None:
    def launch(kernel: str, **more: Any) -> Launch:
        return Launch(kernel, ("1",), (), (), (), **more)

    both = launch("both", cooperative=True)
    plan = LaunchPlan("f", (), (both, launch("one", unless="both"), launch("two", unless="both")), ())
    left = _without(plan, {"both", "other"})
    assert [(step.kernel, step.unless) for step in left.launches] == [("one", ""), ("two", "")]
    assert _without(plan, {"one"}) == plan


TANGENT = (
    "func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {\n%y = math.tan %x : tensor<2xf32>\nreturn %y : tensor<2xf32>}"
)
BARE = "func.func @%s(%%x: tensor<2xf32>) -> tensor<2xf32> { return %%x : tensor<2xf32> }\n"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: cleave.jit(3), "an int is no function to trace"),  # type: ignore[arg-type]
        (lambda: cleave.jit(statc="d"), "has no argument 'statc'; did you mean static[?]"),  # type: ignore[call-arg]
        (lambda: cleave.compile("", fact=()), "has no argument 'fact'(?s:.*)source, function, facts"),  # type: ignore[call-arg]
        (lambda: cleave.compile(f"{BARE % 'f'}{BARE % 'g'}"), "choose one with function=NAME(?s:.*)functions: f, g"),
        (lambda: cleave.compile(TANGENT).optimised, "<source>:2:.*'math.tan' is no op of a tensor graph"),
        (lambda: cleave.compile(None), "a NoneType is no program"),  # type: ignore[arg-type]
        (lambda: Function("", name="f", sizes="m=3"), "a list of dictionaries"),  # type: ignore[arg-type]
        (lambda: Function(attention.source, name="attention", sizes=[{"m": -3}]), "the size 'm' is -3"),
        (lambda: Function(attention.source, name="attention", sizes=[{"q": 3}]), "attention has no size 'q'"),
        (lambda: cleave.jit(static="d f")(attention.__wrapped__), "attention has no size 'f'"),  # type: ignore[attr-defined]
        (lambda: cleave.jit(static=3)(attention.__wrapped__), "names of sizes"),  # type: ignore[arg-type]
        (lambda: attention.specialised(q=3), "attention has no size 'q'"),
        (lambda: attention.specialised(d="3"), "the size 'd' is '3'; sizes are integers"),  # type: ignore[arg-type]
    ],
)
def test_garbage_is_refused(make: Any, message: str) -> None:
    with pytest.raises(CleaveError, match=message):
        make()


def test_damaged_packages_are_errors(package: Package) -> None:
    data = package.to_bytes()
    rng = np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(data)
        for position in rng.integers(len(data), size=3):
            damaged[position] ^= int(rng.integers(1, 256))
        try:
            Package.from_bytes(bytes(damaged))  # a byte that nothing depends on may be any
        except CleaveError as error:
            assert "package" in error.message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"variants": [', '"variants": [], "were": ['),
        ('"sizes": {', '"sizes": [], "were": {'),
        ('"sizes": {', '"sizes": {"x": "y"}, "were": {'),
        ('"binaries": {', '"binaries": [], "were": {'),
        ('"grid": [', '"grid": [3], "facts": ['),
        ('"in:0"', '"in:99"'),
    ],
)
def test_edited_packages_are_errors(package: Package, old: str, new: str) -> None:
    with pytest.raises(CleaveError, match=r"package|plan"):
        Package.from_bytes(_edited(package, old, new))


def _edited(package: Package, old: str, new: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(package.to_bytes())) as source, zipfile.ZipFile(buffer, "w") as target:
        for name in source.namelist():
            text = source.read(name)
            assert name != "package.json" or old.encode() in text
            target.writestr(name, text.replace(old.encode(), new.encode(), 1) if name == "package.json" else text)
    return buffer.getvalue()


def test_packages_of_older_formats_are_read(package: Package) -> None:
    assert Package.from_bytes(_edited(package, f'"format": {FORMAT}', '"format": 3')) == package


def test_parts_that_do_not_cover_their_dim_are_refused() -> None:
    """``t`` is bound by no tensor: whoever chooses it must choose enough."""

    @cleave.jit
    def squares(x: f32["m n"]) -> f32["m"]:
        y = x.split("n", "t s=4")
        return (y * y).sum("s").sum("t")

    x = np.random.default_rng(0).standard_normal((5, 13)).astype(np.float32)
    with pytest.raises(CleaveError, match=r"requires n <= 4\*t, which does not hold for n = 13"):
        squares(x, sizes={"t": 3})
    np.testing.assert_allclose(squares(x, sizes={"t": 4}), (x * x).sum(1), rtol=1e-5)


def test_a_size_that_a_fact_gives() -> None:
    @cleave.jit(facts=["k = n"])
    def ramp(x: f32["n"]) -> f32["n"]:
        return x + cleave.index("k").astype(f32).sum("k")

    np.testing.assert_array_equal(ramp(np.ones(5, np.float32)), np.full(5, 11))


@pytest.mark.parametrize("kind", ["max", "min"])
def test_integers_have_maxima(kind: str) -> None:
    def extreme(x: cleave.i32["m n"]) -> cleave.i32["m"]:
        return getattr(x, kind)("n")

    x = np.array([[-5, 3, 2**31 - 1], [-7, -(2**31), -9]], np.int32)
    np.testing.assert_array_equal(cleave.jit(extreme)(x), getattr(x, kind)(1))


@pytest.mark.parametrize("sizes", [{"s": 1.5}, {"s": "3"}, [5], {"s": -1}])
def test_sizes_are_integers(sizes: Any) -> None:
    @cleave.jit
    def double(x: f32["n"]) -> f32["n"]:
        return x * 2

    with pytest.raises(CleaveError, match=r"integers|dictionary"):
        double(np.ones(3, np.float32), sizes=sizes)
    with pytest.raises(CleaveError, match="a list of texts"):
        cleave.jit(facts=[3])(double.__wrapped__)


def test_a_warp_specialised_kernel_that_spills_is_lowered_to_ttir(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def attention(q: f16["h m d=128"], k: f16["h n d=128"], v: f16["h n e=128"]) -> f16:
        return cleave.contract(cleave.softmax(cleave.contract(q, k, over="d") * 0.09, over="n"), v, over="n").astype(
            f16
        )

    function, sizes = cleave.jit(attention, warp_specialise=True), {"h": 32, "m": 4096, "n": 4096}
    assert TTGIR_TARGET in function.ttir(**sizes)
    monkeypatch.setattr(compile_ttir, "LEAST_SPILLS", -1)
    monkeypatch.setattr(compile_ttir, "FEW_SPILLS", -1)
    (variant,) = function.package(sizes=[sizes]).variants
    assert TTGIR_TARGET not in "".join(variant.ttir.values()) and set(variant.binaries) == {"sm_90"}
    assert "remark: 'attention' is lowered to TTIR for sm_90: kernel attention__k0" in capsys.readouterr().err


def test_each_target_of_a_package_has_its_own_form(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Warp-specialised where there is such a form, of the same sizes and with the same results."""

    @cleave.jit(warp_specialise=True)
    def product(x: f16["m k=512"], w: f16["k n=512"]) -> f16["m n"]:
        return cleave.contract(x, w, over="k")

    product.package("sm_80", "sm_90", sizes=[{"m": 4096}]).save(tmp_path / "product.cleave")
    package = Package.load(tmp_path / "product.cleave")
    specialised, plain = package.variants
    assert package.targets == ("sm_80", "sm_90") and specialised.sizes == plain.sizes == {"m": 4096}
    assert specialised.binaries.keys() == {"sm_90"} and TTGIR_TARGET in "".join(specialised.ttir.values())
    assert plain.binaries.keys() == {"sm_80"} and TTGIR_TARGET not in "".join(plain.ttir.values())
    assert "remark: 'product' is lowered to TTIR for sm_80: " in capsys.readouterr().err
    x, w = (np.random.default_rng(0).standard_normal((rows, 512)).astype(np.float16) for rows in (5, 512))
    for variants in (package.variants, (plain,)):
        found = Package("product", variants)(x, w).astype(float)
        np.testing.assert_allclose(found, x.astype(float) @ w.astype(float), rtol=2e-3, atol=5e-2)
