"""``cleave-run`` in a process of its own: what it runs, what it prints, and each way in which it refuses."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import forked
import ml_dtypes
import numpy as np
import pytest

from cleave.tools import cleave_run
from cleave.tools.run_report import Report

for name in (
    "lowering.lower_to_triton", "passes.import_linalg", "passes.schedule", "passes.superopt", "reference",
    "runtime.execute", "search.superoptimise", "tools.run_session",
):  # fmt: skip
    importlib.import_module(f"cleave.{name}")  # here, so that it is in every child
SAMPLES = Path(__file__).parents[1] / "lit" / "inputs" / "samples"


def tensor(dims: str, dtype: str = "f32", shape: str | None = None) -> str:
    names = dims.split()
    extents = shape.split() if shape else ["?"] * len(names)
    entries = ", ".join(f'"{name}"' for name in names)
    return f"tensor<{''.join(f'{n}x' for n in extents)}{dtype}, #cleave.dims<[{entries}]>>"


MN, M = tensor("m n"), tensor("m")
ADD = f"""
func.func @add(%x: {MN}, %y: {tensor("n")}) -> {MN} {{
  %0 = "cleave.add"(%x, %y) : ({MN}, {tensor("n")}) -> {MN}
  return %0 : {MN}
}}
"""
SUM = f"""
func.func @sum(%x: {MN}) -> {M} {{
  %0 = "cleave.reduce"(%x) {{kind = "sum", over = ["n"]}} : ({MN}) -> {M}
  return %0 : {M}
}}
"""


def execute(*arguments: object, text: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    return forked.run(cleave_run.main, list(map(str, arguments)), text, environment)


def succeed(*arguments: object, text: str | None = None) -> str:
    result = execute(*arguments, text=text)
    assert result.returncode == 0, result.stderr
    return result.stdout


def fail(*arguments: object, text: str | None = None) -> str:
    """The diagnostics of a run that must be refused: exit 1, nothing on stdout, no traceback."""
    result = execute(*arguments, text=text)
    assert result.returncode == 1
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert "internal error" not in result.stderr
    return result.stderr


def save(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


# --- running ---------------------------------------------------------------------------------------------------------


def test_arrays_in_and_out(tmp_path: Path) -> None:
    x, y = np.arange(12, dtype=np.float32).reshape(3, 4), np.arange(4, dtype=np.float32)
    given, found = save(tmp_path / "in.npz", in0=x, in1=y), tmp_path / "out.npz"
    out = succeed("--inputs", given, f"--outputs={found}", text=ADD)
    assert "sizes    m=3, n=4\n" in out
    with np.load(found) as arrays:
        assert arrays.files == ["out0"]
        np.testing.assert_array_equal(arrays["out0"], x + y)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.npz", "out.npz"]


def test_narrow_floats_in_files(tmp_path: Path) -> None:
    """NumPy's files know bf16 as two bytes only."""
    text = ADD.replace("f32", "bf16")
    x, y = (np.array(v, ml_dtypes.bfloat16) for v in ([[1.5, -2.0]], [0.5, 1.0]))
    succeed("--inputs", save(tmp_path / "in.npz", in0=x, in1=y), "--outputs", tmp_path / "o.npz", text=text)
    with np.load(tmp_path / "o.npz") as arrays:
        np.testing.assert_array_equal(arrays["out0"].view(ml_dtypes.bfloat16).astype(float), [[2.0, -1.0]])


def test_random_inputs_depend_on_the_seed_alone(tmp_path: Path) -> None:
    def outputs(name: str, *arguments: str) -> np.ndarray:
        succeed("--sizes=m=3,n=5", "--outputs", tmp_path / name, *arguments, text=ADD)
        with np.load(tmp_path / name) as arrays:
            return arrays["out0"]

    first, again, other = outputs("a.npz"), outputs("b.npz", "--seed=0"), outputs("c.npz", "--seed", "1")
    assert first.shape == (3, 5)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_stages_agree(tmp_path: Path) -> None:
    """As written, optimised, and by the reference executor: the same sums of small integers."""
    x = np.arange(60, dtype=np.float32).reshape(5, 12)
    given = save(tmp_path / "in.npz", in0=x)
    for index, flags in enumerate([["--no-superopt"], [], ["--stage=reference"]]):
        succeed("--inputs", given, "--outputs", tmp_path / f"{index}.npz", *flags, text=SUM)
        with np.load(tmp_path / f"{index}.npz") as arrays:
            np.testing.assert_array_equal(arrays["out0"], x.sum(1))


@pytest.mark.parametrize("stages", [[], ["--import-linalg"], ["--superopt"], ["--schedule"],
                                    ["--schedule", "--lower-to-triton"]])  # fmt: skip
def test_any_stage_can_be_run(stages: list[str]) -> None:
    command = [sys.executable, "-m", "cleave.tools.cleave_opt", *stages]
    module = subprocess.run(command, input=SUM, capture_output=True, text=True, check=True).stdout
    arguments = [] if "--lower-to-triton" in stages else ["--check"]
    out = succeed(*arguments, "--sizes=m=20,n=30", text=module)
    assert "kernel   sum__k0" in out


@pytest.mark.parametrize(("name", "sizes"), [
    ("attention.f16.static", ""), ("attention_softmax.f16.static", ""), ("sdpa.f16.static", ""),
    ("rmsnorm_linear.f16.static", ""), ("gated_mlp.f16.static", ""), ("lora.f16.static", ""),
    ("attention_softmax.f16.dynamic", "m=17,n=45"),
    ("rmsnorm_linear.f16.dynamic", "m=33"), ("lora.f16.dynamic", "m=65"),
])  # fmt: skip
def test_real_functions_keep_the_contract(name: str, sizes: str) -> None:
    flags = [f"--sizes={sizes}"] if sizes else []
    report = json.loads(succeed("--check", "--json", *flags, SAMPLES / f"{name}.linalg-on-tensors.mlir"))
    assert report["check"]["passed"]
    (output,) = report["check"]["outputs"]
    assert 0 <= output["optimised"] <= output["allowed"] < 0.01
    assert len(report["kernels"]) == (2 if name.startswith("gated_mlp") else 1)


def test_json() -> None:
    report = json.loads(succeed("--json", "--check", "--sizes=n=7", "--no-superopt", text=ADD))
    assert report["function"] == "add"
    assert report["sizes"]["n"] == 7
    assert report["chosen_sizes"] == ["m"]
    assert not report["superopt"]
    assert [a["shape"] for a in report["inputs"]["arrays"]] == [[report["sizes"]["m"], 7], [7]]
    assert report["kernels"][0]["name"] == "add__k0"
    assert all(n >= 1 for n in report["kernels"][0]["programs"])
    assert set(report["seconds"]) == {"compile", "run", "reference", "unoptimised"}


def test_facts_bound_the_sizes_that_are_chosen() -> None:
    facts = ADD.replace(f"-> {MN} {{\n", f'-> {MN} attributes {{cleave.facts = ["n = 16*p", "m <= 8"]}} {{\n', 1)
    sizes = json.loads(succeed("--json", "--no-superopt", text=facts))["sizes"]
    assert sizes["m"] <= 8
    shapes = json.loads(succeed("--json", "--no-superopt", "--sizes=n=32", text=facts))["inputs"]["arrays"]
    assert shapes[1]["shape"] == [32]
    assert "the function requires n = 16*p, which does not hold for n = 33" in fail("--sizes=n=33", text=facts)
    assert "requires m <= 8" in fail("--sizes=m=9", text=facts)


SPLIT = f"""
func.func @f(%x: {MN}) -> {M} attributes {{cleave.choices = ["s = 5"]}} {{
  %0 = "cleave.split"(%x) {{dim = "n", into = ["s", "t=ceildiv(n,s)"]}} : ({MN}) -> {tensor("m s t=ceildiv(n,s)")}
  %1 = "cleave.reduce"(%0) {{kind = "sum", over = ["t"]}} : ({tensor("m s t=ceildiv(n,s)")}) -> {tensor("m s")}
  %2 = "cleave.reduce"(%1) {{kind = "sum", over = ["s"]}} : ({tensor("m s")}) -> {M}
  return %2 : {M}
}}
"""


def test_sizes_that_no_argument_binds() -> None:
    """The number of parts: what the module says, or what the user says; parts that are empty do no harm."""
    flags = ["--check", "--json", "--no-superopt"]
    assert json.loads(succeed(*flags, "--sizes=m=3,n=12", text=SPLIT))["sizes"]["s"] == 5
    report = json.loads(succeed(*flags, "--sizes=m=3,n=12,s=7", text=SPLIT))
    assert report["sizes"] == {"m": 3, "n": 12, "s": 7}
    assert report["chosen_sizes"] == []
    undecided = SPLIT.replace('attributes {cleave.choices = ["s = 5"]} ', "")
    assert json.loads(succeed(*flags, "--sizes=m=3,n=12", text=undecided))["chosen_sizes"] == ["s"]


LOG_SUM_EXP = f"""
func.func @lse(%x: {tensor("m n")}, %w: {tensor("n")}) -> {tensor("m")} {{
  %z = "cleave.mul"(%x, %w) : ({tensor("m n")}, {tensor("n")}) -> {tensor("m n")}
  %top = "cleave.reduce"(%z) {{kind = "max", over = ["n"]}} : ({tensor("m n")}) -> {tensor("m")}
  %y = "cleave.sub"(%z, %top) : ({tensor("m n")}, {tensor("m")}) -> {tensor("m n")}
  %e = "cleave.exp"(%y) : ({tensor("m n")}) -> {tensor("m n")}
  %sum = "cleave.reduce"(%e) {{kind = "sum", over = ["n"]}} : ({tensor("m n")}) -> {tensor("m")}
  %log = "cleave.log"(%sum) : ({tensor("m")}) -> {tensor("m")}
  %o = "cleave.add"(%top, %log) : ({tensor("m")}, {tensor("m")}) -> {tensor("m")}
  return %o : {tensor("m")}
}}
"""


def test_sizes_of_the_parts_of_a_split() -> None:
    out = succeed("--check", "--alternative=1", "--sizes=m=3,n=40,s=2,u=5", text=LOG_SUM_EXP)
    assert "sizes    m=3, n=40, s=2, u=5\n" in out
    err = fail("--alternative=1", "--sizes=m=3,n=40,u=0", text=LOG_SUM_EXP)
    assert ":2:" in err and "error: the function requires 1 <= u, which does not hold for u = 0" in err
    err = fail("--alternative=0", "--sizes=m=3,n=40,u=5", text=LOG_SUM_EXP)
    assert "the function has no size 'u'" in err


def test_parts_of_an_empty_dim_are_not_what_the_message_speaks_of() -> None:
    for alternative in (0, 1):
        err = fail(f"--alternative={alternative}", "--sizes=m=1,n=0", text=LOG_SUM_EXP)
        assert "dimension 'n' is empty in in0, and the function requires 1 <= n" in err


@pytest.mark.parametrize(("option", "passes"), [
    ("--alternative=0", ["--schedule"]), ("--no-superopt", ["--schedule"]),
    ("--stage=reference", ["--schedule", "--lower-to-triton"]), ("--check", ["--schedule", "--lower-to-triton"]),
])  # fmt: skip
def test_options_that_come_too_late(option: str, passes: list[str]) -> None:
    command = [sys.executable, "-m", "cleave.tools.cleave_opt", *passes]
    module = subprocess.run(command, input=SUM, capture_output=True, text=True, check=True).stdout
    message = fail(option, text=module)
    assert f"error: {option.removesuffix('=0')} " in message and f"take the module before {passes[-1]}" in message


def test_one_function_of_several() -> None:
    assert "@sum" in succeed("--function=sum", "--no-superopt", text=ADD + SUM)
    assert "@add" in succeed("--function", "@add", "--no-superopt", text=ADD + SUM)


def test_a_function_that_stays_linalg_runs_on_the_reference() -> None:
    text = """
func.func @tangent(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %0 = math.tan %x : tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}
"""
    assert "out0: f32[out0_0=5, out0_1=8]" in succeed("--stage=reference", "--sizes=in0_0=5", text=text)
    assert "'tangent' cannot be compiled as a whole" in fail(text=text)


# --- checking --------------------------------------------------------------------------------------------------------


def lie(body: str) -> str:
    """A module whose alternative is not equal to its source."""
    return f"""
func.func @f(%x: {MN}) -> {M} {{
  %0 = "cleave.exp"(%x) : ({MN}) -> {MN}
  %1 = "cleave.exp"(%0) : ({MN}) -> {MN}
  %2 = "cleave.reduce"(%1) {{kind = "sum", over = ["n"]}} : ({MN}) -> {M}
  return %2 : {M}
}}
func.func @g(%x: {MN}) -> {M} attributes {{cleave.alternative_of = @f}} {{
{body}
}}
"""


WRONG = f"""  %2 = "cleave.reduce"(%x) {{kind = "sum", over = ["n"]}} : ({MN}) -> {M}
  return %2 : {M}"""
NOT_FINITE = f"""  %c = "cleave.constant"() {{value = 0x7F800000 : f32}} : () -> {tensor("")}
  %1 = "cleave.mul"(%x, %c) : ({MN}, {tensor("")}) -> {MN}
  %2 = "cleave.reduce"(%1) {{kind = "max", over = ["n"]}} : ({MN}) -> {M}
  return %2 : {M}"""


@pytest.mark.parametrize("passes", [["--schedule"], ["--superopt", "--schedule", "--lower-to-triton"]])
def test_what_is_scheduled_already_is_run(passes: list[str]) -> None:
    source = Path(__file__).parents[2] / "examples" / "attention.mlir"
    tool = [sys.executable, "-m", "cleave.tools.cleave_opt", *passes, source]
    scheduled = subprocess.run(tool, capture_output=True, text=True, check=True).stdout
    result = execute("--sizes=m=5,n=40", text=scheduled)
    assert result.returncode == 0 and "out0: f16[m=5, e=64]" in result.stdout
    assert ("as it was scheduled" in result.stdout) == ("--superopt" in passes)


@pytest.mark.parametrize(("body", "why"), [(WRONG, "its error is"), (NOT_FINITE, "is inf, the source program's is")])
def test_a_wrong_program_breaks_the_contract(body: str, why: str, tmp_path: Path) -> None:
    flags = ["--check", "--alternative=1", "--sizes=m=5,n=40", "--outputs", tmp_path / "o.npz"]
    result = execute(*flags, text=lie(body))
    assert result.returncode == 1, result.stdout
    assert why in result.stdout
    assert (tmp_path / "o.npz").exists()
    report = execute("--json", *flags, text=lie(body))
    assert report.returncode == 1
    assert not json.loads(report.stdout)["check"]["passed"]


def test_without_alternatives_the_same_module_passes() -> None:
    assert "ok" in succeed("--check", "--no-superopt", "--sizes=m=5,n=40", text=lie(WRONG))


CANCELLED = f"""
func.func @cancelled(%x: {MN}) -> {MN} {{
  %c = "cleave.constant"() {{value = 1.0e10 : f32}} : () -> {tensor("")}
  %0 = "cleave.add"(%x, %c) : ({MN}, {tensor("")}) -> {MN}
  %1 = "cleave.sub"(%0, %c) : ({MN}, {tensor("")}) -> {MN}
  return %1 : {MN}
}}
"""


def test_a_check_against_nothing_but_rounding_warns(tmp_path: Path) -> None:
    flags = ["--check", "--sizes=m=5,n=40", "--no-superopt"]
    report = succeed(*flags, text=CANCELLED)
    (warning,) = (line for line in report.splitlines() if line.startswith("warning"))
    assert "out0: as written the program is off by 1 of its result, so zeros would pass; give inputs" in warning
    (output,) = json.loads(succeed("--json", *flags, text=CANCELLED))["check"]["outputs"]
    assert output["ok"] and output["warning"] in warning
    whole = save(tmp_path / "whole.npz", in0=np.full((5, 40), 2.0**40, np.float32))
    for sane in (succeed("--check", f"--inputs={whole}", text=CANCELLED), succeed(*flags, text=SUM)):
        assert "ok" in sane and "warning" not in sane


# --- refusing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arguments", "message"), [
    (["--sizes=q=3"], "error: the function has no size 'q'"),
    (["--sizes=m"], "cleave-run: error: --sizes: 'm' is no size"),
    (["--sizes=m=-3"], "'m=-3' is no size"),
    (["--sizes=m=3,m=4"], "'m' is given twice"),
    (["--sizes=m=3000000000"], "--sizes: size 'm' is 3000000000; an extent is"),
    (["--seed=x"], "--seed: 'x' is no whole number"),
    (["--stage=gpu"], "--stage: 'gpu' is not ttir or reference"),
    (["--check=1"], "--check takes no value"),
    (["--function"], "--function needs a value"),
    (["--function=f"], "<stdin>: error: there is no function 'f'"),
    (["--chekc"], "no option '--chekc'; did you mean --check?"),
    (["--inputs=a.txt"], "a.txt: error: a file of arrays must be called .npz"),
    (["--outputs=a"], "a: error: a file of arrays must be called .npz"),
    (["--inputs=missing.npz"], "missing.npz: error: cannot read: No such file or directory"),
    (["--outputs=missing/a.npz"], "missing/a.npz: error: cannot write: No such file or directory"),
    (["a.mlir", "b.mlir"], "more than one input: a.mlir, b.mlir"),
    (["missing.mlir"], "missing.mlir: error: cannot read: No such file or directory"),
])  # fmt: skip
def test_command_lines(arguments: list[str], message: str) -> None:
    assert message in fail(*arguments, text=ADD)


X, Y = np.zeros((3, 4), np.float32), np.zeros(4, np.float32)


@pytest.mark.parametrize(("arrays", "message"), [
    ({"in0": X}, "there is no array 'in1'"),
    ({"in0": X, "in1": Y, "in2": Y}, "array 'in2' is no argument"),
    ({"x": X, "y": Y}, "there is no array 'in0'"),
    ({"in0": X, "in1": Y[:3]}, "<stdin>:2:1: error: dimension 'n' is 4 in in0 and 3 in in1"),
    ({"in0": X.astype(np.float64), "in1": Y}, "in0 has elements of float64; the function takes f32"),
    ({"in0": X[0], "in1": Y}, "in0 has rank 1; the function takes rank 2: [m, n]"),
    ({"in0": np.array([None]), "in1": Y}, "it holds Python objects"),
])  # fmt: skip
def test_arrays_that_do_not_fit(arrays: dict[str, np.ndarray], message: str, tmp_path: Path) -> None:
    assert message in fail("--inputs", save(tmp_path / "in.npz", **arrays), text=ADD)


@pytest.mark.parametrize("damage", ["text", "truncated", "single array", "empty"])
def test_files_that_are_no_arrays(damage: str, tmp_path: Path) -> None:
    path = save(tmp_path / "in.npz", in0=X, in1=Y)
    if damage == "single array":
        with path.open("wb") as file:
            np.save(file, X)
    else:
        data = path.read_bytes()
        path.write_bytes({"text": b"not arrays", "truncated": data[: len(data) // 2], "empty": b""}[damage])
    message = fail("--inputs", path, text=ADD)
    assert f"{path}: error: " in message and ("no .npz file of plain arrays: it is no zip" in message) == (
        damage == "text"
    )


@pytest.mark.parametrize(("text", "message"), [
    ("", "<stdin>:1:1: error: the input is empty"),
    ("garbage", "<stdin>:1:1: error:"),
    ("module {}", "there is no function to run"),
    (ADD + SUM, "there are several functions: choose one with --function"),
    ("func.func private @f()", "there is no function to run"),
    ("func.func @f(%x: index) -> index { return %x : index }", "in0 is of type index"),
    ("func.func @f(%x: tensor<*xf32>) -> tensor<*xf32> { return %x : tensor<*xf32> }", "in0 is of type tensor<*xf32>"),
    (ADD.replace('"cleave.add"', '"cleave.contract"'), "<stdin>:3:8: error: 'cleave.contract'"),
    (SUM.replace('"sum", over', '"max", over'), "dimension 'n' is empty in in0"),
])  # fmt: skip
def test_modules_that_cannot_run(text: str, message: str) -> None:
    flags = ["--sizes=n=0"] if '"max"' in text else []
    assert message in fail(*flags, text=text)


def test_an_output_that_cannot_be_written_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "o.npz"
    target.mkdir()
    assert f"{target}: error: cannot write" in fail("--outputs", target, text=ADD)
    assert list(tmp_path.iterdir()) == [target]


# --- starting --------------------------------------------------------------------------------------------------------


def test_help_fits_a_screen_and_loads_nothing() -> None:
    code = "import sys; sys.argv = ['cleave-run', '--help']; from cleave.tools.cleave_run import main; main()\n"
    code += "print(sorted({'numpy', 'mlir', 'triton', 'sympy', 'z3'} & set(sys.modules)))"
    lines = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.splitlines()
    assert lines[-1] == "[]"
    assert 10 < len(lines) <= 40
    assert max(map(len, lines)) <= 120


def test_version() -> None:
    command = [sys.executable, "-m", "cleave.tools.cleave_run", "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said == succeed("--version") and said.startswith("cleave-run ")


@pytest.mark.parametrize(
    ("program", "alternatives", "asked", "said"),
    [
        (0, 0, False, "the source of 1 program;"),
        (0, 1, False, "the source, best of 2 programs;"),
        (0, 1, True, "the source, as asked, of 2 programs;"),
        (1, 2, False, "alternative 1 of 3 programs;"),
    ],
)
def test_the_report_names_the_program_and_why_it_is_taken(
    program: int, alternatives: int, asked: bool, said: str
) -> None:
    report = Report("f.mlir", "f", "ttir", True, alternatives, program, asked, {}, (), "", [], [], [], [], {"run": 0.0})
    assert f"program  superoptimised, {said}" in report.text()
