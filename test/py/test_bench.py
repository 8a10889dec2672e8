"""``cleave-bench`` as far as no GPU is needed: its programs, its files and its reports."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import compile_graph

from cleave.bench.llama import Model, Weights, layer, llama_subgraphs
from cleave.bench.prepare import prepare, wanted
from cleave.bench.report import geometric_mean, page, roofline, table
from cleave.bench.run import Row, measure, package_path, read_rows, write_rows
from cleave.bench.spread import spread, visible
from cleave.bench.subgraphs import DECODE, PREFILL, Subgraph, subgraphs
from cleave.errors import CleaveError
from cleave.language.trace import trace
from cleave.runtime.package import Package
from cleave.tools.cleave_bench import _COMMANDS, _chosen, _parser, main
from cleave.tuner.attempts import VARIABLE

TIMES = {"cleave": 10.0, "eager": 20.0, "compile": 15.0}
ROW = Row("matmul", "decode_16", "", {"m": 16}, 2e9, 4_000_000, 1e-3, "", TIMES)
BY_CUBLAS = replace(ROW, shape="decode_64", library="matmul__k0")
WRONG = replace(
    ROW, shape="decode_32", wrong="error 1.0e-01, 4.0e-03 is allowed", error=0.1, microseconds={"eager": 5.0}
)
ABLATED = replace(ROW, ablation="no-split", microseconds={"cleave": 20.0, "eager": 20.0})


@pytest.mark.parametrize("name", subgraphs())
def test_each_can_be_traced_and_its_sizes_are_known(name: str) -> None:
    subgraph = subgraphs()[name]
    graph = trace(subgraph.function)
    symbols = {symbol for value in graph.inputs for dim in value.dims for symbol in dim.size.symbols}
    for sizes in subgraph.shapes.values():
        assert symbols == sizes.keys() and set(subgraph.static.split()) < symbols
        assert subgraph.flops(sizes) > 0
    assert all(output.dtype == "f16" for output in graph.outputs)


def test_the_nine_of_the_paper_have_its_shapes() -> None:
    paper = {name for name, subgraph in subgraphs().items() if subgraph.paper}
    assert len({name.partition("_d")[0] for name in paper}) == 9  # mla and its decode are one, the attentions three
    assert {sizes["m"] for sizes in subgraphs()["swiglu"].shapes.values()} == {*PREFILL, *DECODE}


def test_ratios() -> None:
    assert ROW.best == ("compile", 15.0) and ROW.ratio == 1.5
    assert math.isnan(WRONG.ratio)
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0) and math.isnan(geometric_mean([]))
    assert roofline(ROW, 4e12) == pytest.approx(2.5e-6)


def test_the_table_says_what_was_wrong_and_what_parts_are_worth() -> None:
    text = table([ROW, WRONG, ABLATED, BY_CUBLAS], 4e12)
    assert "| matmul | decode_64 | 10.0 (cuBLAS) | compile | 15.0 | 1.50 |" in text
    assert "| matmul | decode_16 | 10.0 | compile | 15.0 | 1.50 | 400 | 200 | 25% | 1.0e-03 |" in text
    assert "WRONG: error 1.0e-01" in text
    assert "| matmul | 1.50 | 1.50 | 1.50 |" in text
    assert "| no-split | 2.00 × the time | 2.00 × at most |" in text


def test_the_page_is_whole() -> None:
    text = page([ROW, replace(ROW, subgraph="<b>")], {"gpu": "H200 & co", "copy GB/s": 4000})
    assert text.count("<svg") == 3 and "&lt;b&gt;" in text and "H200 &amp; co" in text
    assert "http" not in text and "<b>" not in text


def test_results_come_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    write_rows(before, [ROW, WRONG], {"gpu": "H200"})
    write_rows(after, [replace(ROW, microseconds={"cleave": 5.0})], {"gpu": "H200"})
    assert read_rows(before) == ({"gpu": "H200"}, [ROW, WRONG])
    assert main(["compare", str(before), str(after)]) == 0
    assert capsys.readouterr().out == "matmul decode_16: 10.0 → 5.0 µs (2.00 ×)\n"
    assert main(["report", str(before), "--html", str(tmp_path / "page.html")]) == 0
    assert "| matmul | decode_16 |" in capsys.readouterr().out and (tmp_path / "page.html").exists()


def test_shares_of_the_roofline_are_explained() -> None:
    assert table([ROW], 4e12).endswith("above 100 % of the roofline.")


def test_a_full_device_and_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "cleave.tools.cleave_bench", "list"]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (result.returncode, result.stderr) == (1, "cleave-bench: error: <stdout>: No space left on device\n")

    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setitem(_COMMANDS, "list", interrupted)
    assert main(["list"]) == 130


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad").write_text("{}\n")
    assert main(["report", str(tmp_path / "bad")]) == 1 and main(["report", str(tmp_path / "none")]) == 1
    assert main(["prepare", str(tmp_path), "--only", "nothing"]) == 1
    errors = capsys.readouterr().err
    assert "has no results of cleave-bench" in errors and "cannot read" in errors and "no subgraph is called" in errors
    with pytest.raises(CleaveError):
        read_rows(tmp_path / "none")
    (tmp_path / "empty").write_text("")
    assert main(["report", str(tmp_path / "empty")]) == 1 and "empty is empty" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["prepare", "run"])
def test_help_says_what_defaults_are(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    text = capsys.readouterr().out
    options = [" ".join(part.split()) for part in re.split(r"\n  (?=-)", text.partition("options:")[2])]
    switches = ("-h", "--ablations", "--keep", "--resume")
    assert [each for each in options if each and "default: " not in each and not each.startswith(switches)] == []


def test_subgraphs_are_chosen_by_name() -> None:
    assert [each.name for each in _chosen("matmul,mha_*")] == ["matmul", "mha_d64", "mha_d128"]
    assert len(_chosen("")) == len(subgraphs())
    with pytest.raises(CleaveError, match="no subgraph is called 'mat'"):
        _chosen("lora,mat")


def test_a_package_is_prepared(tmp_path: Path) -> None:
    matmul = subgraphs()["matmul_rowsum"]
    (line,) = prepare([matmul], "decode_16", tmp_path, "sm_90")
    assert line.startswith("matmul_rowsum decode_16") and "launch" in line
    package = Package.load(package_path(tmp_path, "matmul_rowsum", "decode_16", ""))
    assert package.targets == ("sm_90",) and package.variants[0].sizes == {"m": 16}


def test_without_pytorch_or_a_folder_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "attempts").write_text('["start", 0]\n')
    monkeypatch.setenv(VARIABLE, str(tmp_path / "attempts"))  # in this process
    assert main(["run", str(tmp_path)]) == 1
    assert f"error: {tmp_path} has no packages" in capsys.readouterr().err
    package_path(tmp_path, "matmul", "decode_16", "").touch()
    assert main(["run", str(tmp_path)]) == 1
    (tmp_path / "file").touch()
    assert main(["prepare", str(tmp_path / "file" / "x"), "--only", "matmul"]) == 1
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first == "cleave-bench: error: PyTorch is not installed" and last.endswith("file/x: Not a directory")


def test_shapes_by_several_parts_of_labels() -> None:
    labels = ["prefill_256", "prefill_1024", "decode_16"]
    for shapes, found in (("", labels), ("fill", labels[:2]), ("1024,decode", labels[1:]), ("decode,", labels[2:])):
        assert [label for label in labels if wanted(label, shapes)] == found


def test_wrong_arguments_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["--shapes", "zz"], "no shape contains 'zz'"),
        (["--shapes", "prefill_256,zz"], "no shape contains 'zz'"),
        (["--target", "zz"], "unknown target 'zz'"),
    ):
        assert main(["prepare", str(tmp_path), *arguments]) == 1
        assert f"cleave-bench: error: {message}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_layer_of_two_kinds_of_parts() -> None:
    """Cleave's kernels in the interpreter beside the same functions in f64, small; with a cache and without."""
    model = Model(heads=2, groups=2, head_width=16, inner=48)
    rng = np.random.default_rng(0)
    weights = Weights(*(_normal(rng, shape, shape[0] ** -0.5) for shape in Weights.shapes(model)))
    parts = {subgraph.name: _compiled(subgraph) for subgraph in llama_subgraphs(model)}
    angles = rng.standard_normal((5, 8))
    rotary = [np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)]
    x = _normal(rng, (5, model.width))
    for cache in (None, [_normal(rng, (5, 7, 2, 16)) for _ in range(2)]):
        out = layer(parts, model, weights, x, rotary, cache and [array.copy() for array in cache])
        wide = Weights(*(getattr(weights, entry.name).astype(np.float64) for entry in fields(weights)))
        exact = layer(EXACT, model, wide, x.astype(np.float64), rotary, cache and [a.astype(np.float64) for a in cache])
        assert out.dtype == np.float16 and np.linalg.norm(out - exact) < 4e-3 * np.linalg.norm(exact)


def _compiled(subgraph: Subgraph) -> Callable[..., Any]:
    compiled = compile_graph(trace(subgraph.function))

    def call(*arrays: np.ndarray) -> Any:
        results = compiled(arrays)
        return results if len(results) > 1 else results[0]

    return call


def _normal(rng: np.random.Generator, shape: tuple[int, ...], scale: float = 1.0) -> np.ndarray:
    return (rng.standard_normal(shape) * scale).astype(np.float16)


def _softmax(s: np.ndarray) -> np.ndarray:
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _rms(x: np.ndarray, g: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * g


def _exact_rope(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    one, two = np.split(x, 2, -1)
    cos, sin = cos[:, None], sin[:, None]
    return np.concatenate([one * cos - two * sin, two * cos + one * sin], -1)


def _exact_prefill(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    s = np.einsum("magd,nad->agmn", q, k) / 4
    s = np.where(np.arange(len(k)) <= np.arange(len(q))[:, None], s, -np.inf)
    return np.einsum("agmn,nae->mage", _softmax(s), v)


def _exact_decode(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.einsum("bagn,bnae->bage", _softmax(np.einsum("bagd,bnad->bagn", q, k) / 4), v)


def _exact_mlp(x: np.ndarray, g: np.ndarray, w: np.ndarray, v: np.ndarray) -> np.ndarray:
    gate = _rms(x, g) @ w
    return gate / (1 + np.exp(-gate)) * (_rms(x, g) @ v)


EXACT = {
    "llama_qkv": lambda x, g, *weights: [_rms(x, g) @ w for w in weights],
    "llama_rope": _exact_rope,
    "llama_prefill": _exact_prefill,
    "llama_decode": _exact_decode,
    "llama_attention_out": lambda x, w, rest: x @ w + rest,
    "llama_mlp": _exact_mlp,
    "llama_mlp_out": lambda x, w, rest: x @ w + rest,
}


# --- a whole session --------------------------------------------------------------------------------------------------


def test_ctrl_c_ends_all_jobs(tmp_path: Path) -> None:
    """At once, whatever is begun: a process does not take it for the end of one job alone."""
    command = [sys.executable, "-m", "cleave.tools.cleave_bench", "prepare", str(tmp_path), "--only=matmul", "--jobs=2"]
    log = tmp_path.with_suffix(".log")  # no pipe, which compilers that are at work keep open
    with log.open("w") as file:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background jobs of a shell ignore it
        )
    assert process.stdout and "1 program, the first of 1 launch" in process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(20) == 130 and log.read_text().rstrip().endswith("stopped")
    assert len(list(tmp_path.iterdir())) < 6


def test_the_heaviest_are_prepared_first_and_none_when_time_is_over(tmp_path: Path) -> None:
    chosen = [subgraphs()[name] for name in ("matmul", "qknorm_gqa", "mha_d64")]
    for processes in (1, 2):
        lines = list(prepare(chosen, "decode_16", tmp_path, "sm_90", seconds=-1, jobs=processes))
        assert [line.split()[0] for line in lines] == ["qknorm_gqa", "mha_d64", "matmul"] or processes == 2
        assert len(lines) == 3 and all(line.endswith("decode_16: not begun, no time is left") for line in lines)
    package_path(tmp_path, "matmul", "decode_16", "").touch()
    lines = list(prepare(chosen, "decode_16", tmp_path, "sm_90", seconds=-1, keep=True))
    assert [line.split()[0] for line in lines] == ["qknorm_gqa", "mha_d64"]


def test_a_preparation_of_nothing_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", str(tmp_path), "--only", "matmul", "--shapes", "decode_16", "--seconds", "0"]) == 1
    assert "no package was made in 0 s" in capsys.readouterr().err


@pytest.mark.parametrize("dying", [1, 9])
def test_a_process_that_dies_takes_no_other_package_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dying: int
) -> None:
    pools: list[int] = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, processes: int) -> None:
            super().__init__(1)
            pools.append(processes)

        def submit(self, function: Any, job: Any) -> Any:
            if "mha" in job.subgraph and len(pools) <= dying:
                return super().submit(self.die)
            return super().submit(function, job)

        def die(self) -> None:
            raise BrokenProcessPool

    monkeypatch.setattr("cleave.bench.prepare._pool", Pool)
    chosen = [subgraphs()[name] for name in ("matmul", "mha_d64")]
    lines = sorted(prepare(chosen, "decode_16", tmp_path, "sm_90", seconds=-1, jobs=2))
    assert [line.split()[0] for line in lines] == ["matmul", "mha_d64"]
    assert ("REFUSED a process died" in lines[1]) == (dying == 9) and len(pools) == min(dying + 1, 3)


def test_each_gpu_has_a_share_of_the_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(subgraph: Any, label: str, sizes: Any, packages: Any, *rest: Any) -> Any:
        return (replace(ROW, subgraph=subgraph.name, shape=label, ablation=ablation) for ablation in packages)

    monkeypatch.setattr("cleave.bench.run._measured", measured)
    monkeypatch.setattr("cleave.tuner.timing.Timer", lambda: None)
    chosen, keys = [subgraphs()[name] for name in ("matmul", "lora")], set[tuple[str, str, str]]()
    for subgraph in chosen:
        for label in [*subgraph.shapes][:3]:
            package_path(tmp_path, subgraph.name, label, "").touch()
            keys.add((subgraph.name, label, ""))
    shares = [[row.key for row in measure(chosen, tmp_path, (), math.inf, [""], (), (n, 2))] for n in range(2)]
    assert [len(share) for share in shares] == [3, 3] and {key for share in shares for key in share} == keys
    assert [row.key for row in measure(chosen, tmp_path, (), math.inf, [""], keys - {shares[1][0]}, (1, 2))] == [
        shares[1][0]
    ]
    assert not list(measure(chosen, tmp_path, (), 0.0, [""]))


WRITES = """
import os, sys
from pathlib import Path
from types import SimpleNamespace
from cleave.bench.run import Row, read_rows, write_rows
part, number = Path(sys.argv[1]), sys.argv[2]
rows = read_rows(part)[1] if part.exists() else []
rows.append(Row("matmul", number, os.environ["CUDA_VISIBLE_DEVICES"], {}, len(rows), 0, 0.0, ""))
write_rows(part, rows, {"gpu": "H200"})
sys.exit(int(number))
"""


def test_rows_of_all_gpus_are_merged_and_nothing_known_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert [visible(device) for device in ("0", "1", "2", "GPU-8")] == ["5", "7", "2", "GPU-8"]
    output = tmp_path / "rows.jsonl"
    write_rows(output, [ROW], {"gpu": "H200"})
    write_rows(tmp_path / "rows.jsonl.1", [ABLATED], {"gpu": "H200"})  # of a run that was killed
    spread(["0", "1"], output, lambda number, part: [sys.executable, "-c", WRITES, str(part), str(number)], resume=True)
    where, rows = read_rows(output)
    assert where == {"gpu": "H200"} and rows[:2] == [ROW, ABLATED]
    assert [(row.shape, row.ablation, row.flops) for row in rows[2:]] == [("0", "5", 2), ("1", "7", 2)]
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_old_rows_stay_until_there_is_a_new_one(tmp_path: Path) -> None:
    output = tmp_path / "rows.jsonl"
    write_rows(output, [ROW], {"gpu": "H200"})
    write_rows(tmp_path / "rows.jsonl.7", [ABLATED], {"gpu": "H200"})  # of a run that was killed
    assert not spread(["0", "1"], output, lambda number, part: [sys.executable, "-c", ""], resume=False)
    assert read_rows(output)[1] == [ROW] and [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]

    def one_fails(number: int, part: Path) -> list[str]:
        return [sys.executable, "-c", WRITES if number else "raise SystemExit(1)", str(part), str(number)]

    assert spread(["0", "1"], output, one_fails, resume=False)
    assert [row.shape for row in read_rows(output)[1]] == ["1"], "neither old rows nor those of the killed run"


def test_old_rows_go_with_the_first_new_one(tmp_path: Path) -> None:
    output, seen = tmp_path / "rows.jsonl", tmp_path / "seen"
    write_rows(output, [ROW], {"gpu": "H200"})
    waits = f"import os, pathlib, time\nwhile os.path.exists({str(output)!r}): time.sleep(0.01)\n"
    program = f"{WRITES.replace('sys.exit', 'int')}\n{waits}pathlib.Path({str(seen)!r}).touch()"
    assert spread(["0"], output, lambda number, part: [sys.executable, "-c", program, str(part), "0"], resume=False)
    assert seen.exists() and [row.shape for row in read_rows(output)[1]] == ["0"]


@pytest.mark.parametrize("seconds", ["nan", "-1", "-inf", "x"])
@pytest.mark.parametrize("command", ["prepare", "run"])
def test_seconds_are_a_number_from_0_on(command: str, seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _parser().parse_args([command, "folder", f"--seconds={seconds}"])
    assert f"'{seconds}' is not a number of seconds, 0 or more" in capsys.readouterr().err
    assert _parser().parse_args([command, "folder", "--seconds=inf"]).seconds == float("inf")


@pytest.mark.parametrize("devices", [",", "x", "-1", "0,", "0,,1", "0,0", "GPU-1,0,GPU-1"])
def test_devices_that_are_none(devices: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _parser().parse_args(["run", "folder", f"--devices={devices}"])
    assert re.search("names no GPU; give numbers|is named twice; give each once", capsys.readouterr().err)
    assert _parser().parse_args(["run", "folder", "--devices=0,GPU-8a-1"]).devices == ("0", "GPU-8a-1")


@pytest.mark.parametrize("measured", [True, False])
def test_a_run_on_two_gpus(measured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[Any] = []

    def shares(devices: Any, output: Path, command: Any, *, resume: bool) -> bool:
        assert output.exists() and not resume, "without --resume it starts afresh"
        commands.extend(command(number, Path("part")) for number in range(len(devices)))
        return measured

    def last(module: str, arguments: Any, environment: Any) -> int:
        commands.append(arguments)
        assert environment == {"CUDA_VISIBLE_DEVICES": "3"}
        return 0

    monkeypatch.setattr("cleave.tools.cleave_bench.spread", shares)
    monkeypatch.setattr("cleave.tools.cleave_bench.supervised", last)
    package_path(tmp_path, "matmul", "decode_16", "").touch()
    output = tmp_path / "rows.jsonl"
    output.touch()
    said = ["run", str(tmp_path), "--devices", "3,4", "-o", str(output), "--seconds", "90"]
    assert main(said) == 0
    one, other, rest = (_parser().parse_args(line[line.index("run") :]) for line in commands)
    assert (one.share, other.share, rest.share) == ((0, 2), (1, 2), (0, 1))
    assert one.output == Path("part") and rest.output == output
    assert one.resume and rest.resume == measured
    assert (one.devices, rest.devices, one.seconds) == ((), ("3",), 90) and rest.seconds <= 90
    assert {each.command_line for each in (one, other, rest)} == {" ".join(["cleave-bench", *said])}


def test_subgraphs_without_such_a_shape_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", str(tmp_path), "--only", "softmax,lora", "--shapes", "decode_16", "--seconds=0"]) == 1
    found = capsys.readouterr()
    assert found.err.startswith("without a shape that contains 'decode_16': softmax\n") and found.out.startswith("lora")
