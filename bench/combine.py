"""Splits whose results are combined by a second launch, by one that overlaps, or in the same launch: numbers and times.

    python bench/combine.py prepare CASES        # here: schedules and cubins for sm_90
    python bench/combine.py run CASES OUT        # on the GPU

``run`` needs only PyTorch and ``cleave.runtime``. Each program runs on poisoned memory, 100 times, from a graph that
was captured before and one captured after the first launch, on two streams at once, and at other counts of parts; times
are medians of 20 between events with a cold L2 cache, in microseconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from cleave.tools.exit_code import exit_code

FORMS = ("plain", "pdl", "share")
Json = dict[str, Any]


# --- prepare ----------------------------------------------------------------------------------------------------------


def _subjects() -> Iterator[tuple[str, Any, Mapping[str, int], Sequence[int]]]:
    from device_cases import graphs, static

    for rows in (16, 128):
        yield f"matmul 4096², {rows} rows", static(graphs.split_matmul(), n=4096, k=4096), {"m": rows}, (2, 4)
    for head in (64, 128):
        graph, sizes = graphs.split_attention(head=head), {"h": 32, "m": 16, "n": 4096}
        yield f"attention 16 × 4096, d {head}", graph, sizes, (8,)
    for rows, counts in ((64, (16,)), (512, (2, 4))):
        graph, sizes = graphs.split_attention(head=128), {"h": 8, "m": rows, "n": 4096}
        yield f"GQA 8 × {rows} packed rows × 4096, d 128", graph, sizes, counts


def prepare(folder: Path) -> None:
    from device_cases import graphs  # noqa: F401  # which puts the tests' modules on the path
    from lowered_programs import metadata

    from cleave.lowering.compile_ttir import compile_many
    from cleave.lowering.targets import Target

    cases: list[Json] = []
    requests: list[tuple[Json, Any]] = []
    for name, graph, sizes, counts in _subjects():
        for count, form in ((count, form) for count in counts for form in FORMS):
            plan, kernels = _lowered(graph, {**sizes, "s": count}, form)
            known = {**graph.extents, **sizes}
            shapes = [[dim.size.evaluate(known) for dim in value.dims] for value in graph.inputs]
            case = {"name": name, "parts": count, "form": form, "plan": plan.to_json(), "shapes": shapes, "kernels": []}
            cases.append(case)
            requests += [(case, kernel) for kernel in kernels]
    folder.mkdir(parents=True, exist_ok=True)
    outcomes = compile_many([kernel.request(Target.parse("sm_90")) for _, kernel in requests])
    with zipfile.ZipFile(folder / "cubins.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number, ((case, _), found) in enumerate(zip(requests, outcomes, strict=True)):
            if isinstance(found, Exception):
                raise found
            archive.writestr(str(number), found.cubin or b"")
            case["kernels"].append(metadata(found, str(number)))
    (folder / "cases.json").write_text(json.dumps(cases))
    print(f"{len(cases)} programs, {len(requests)} kernels")


def _lowered(graph: Any, sizes: Mapping[str, int], form: Any) -> tuple[Any, list[Any]]:
    from lowered_programs import lower

    from cleave.schedule.arrange import arranged
    from cleave.schedule.scheduler import ScheduleOptions, schedule

    options = ScheduleOptions(sizes=sizes, combine=form)
    return lower(arranged(schedule(graph.deduplicated(), options), options))


# --- run --------------------------------------------------------------------------------------------------------------


def run(folder: Path, out: Path) -> int:
    import torch

    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    archive = zipfile.ZipFile(folder / "cubins.zip")
    rows = [_row(case, archive, flush) for case in json.loads((folder / "cases.json").read_text())]
    (out / "combine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for row in rows:
        print(
            f"{row['name']:42} {row['parts']:2} parts {row['form']:5} {'right' if row['right'] else 'WRONG'} "
            f"{row['stream']:6.2f} {row['graph']:6.2f} {row['zeroing graph']:6.2f}  {' '.join(row['launches'])}"
        )
    return sum(not row["right"] for row in rows)


def _row(case: Json, archive: zipfile.ZipFile, flush: Any) -> Json:
    import torch
    from gpu_runs import program_of

    program = program_of(archive, case)
    program.load()
    torch.manual_seed(0)
    inputs = [torch.randn(shape, device="cuda").half() for shape in case["shapes"]]
    check = _Check(program, inputs, case["parts"])
    right = check.run()
    launches = [launch.kernel.partition("__")[2] for launch, _ in check.second._launches]
    times = {
        "stream": _median(lambda: check.second.launch(_stream()), flush),
        "graph": _median(check.late.replay, flush),
        "zeroing graph": _median(check.early.replay, flush),
    }
    resources = [
        {key: k[key] for key in ("name", "shared", "num_warps", "registers", "spills")} for k in case["kernels"]
    ]
    return {**{key: case[key] for key in ("name", "parts", "form")}, "right": right, "error": check.error,
            "launches": launches, **times, "kernels": resources}  # fmt: skip


class _Check:
    """Two prepared calls of a program, and graphs captured before and after their first launch."""

    def __init__(self, program: Any, inputs: Sequence[Any], parts: int) -> None:
        self.program, self.inputs, self.parts = program, inputs, parts
        self.expected = _reference(*(x.double() for x in inputs))
        self.first, self.second = (program.prepare(inputs, _poison, {"s": parts}) for _ in range(2))
        self.early, self.error = _graph(self.first), 0.0

    def run(self) -> bool:
        import torch

        for _ in range(3):
            self._judge(self._again(self.early.replay, self.first))
        bits = self._again(lambda: self.second.launch(_stream()), self.second).clone()
        self._judge(bits)
        self.late = _graph(self.second)
        same = all(
            torch.equal(bits, self._again(step, self.second))
            for step in [lambda: self.second.launch(_stream())] * 100 + [self.late.replay] * 50
        )
        streams = [torch.cuda.Stream(), torch.cuda.Stream()]
        torch.cuda.synchronize()
        for _ in range(100):
            for call, stream in zip((self.first, self.second), streams, strict=True):
                call.launch(stream.cuda_stream)
        torch.cuda.synchronize()
        same = same and all(torch.equal(bits, call.results[0]) for call in (self.first, self.second))
        for count in (1, 3, 7, 33):
            self._judge(self.program(self.inputs, _poison, _stream(), {"s": count})[0])
        return same and self.error < 2e-3

    def _again(self, step: Callable[[], Any], call: Any) -> Any:
        import torch

        call.results[0].fill_(float("nan"))
        step()
        torch.cuda.synchronize()
        return call.results[0]

    def _judge(self, actual: Any) -> None:
        error = ((actual.double() - self.expected).norm() / self.expected.norm()).item()
        self.error = max(self.error, error if error == error else float("inf"))


def _reference(x: Any, w: Any, *rest: Any) -> Any:
    import torch

    if not rest:
        return x @ w
    logits = torch.einsum("hmd,hnd->hmn", x, w) * 0.125
    return torch.einsum("hmn,hnd->hmd", torch.softmax(logits, -1), rest[0])


def _poison(shape: tuple[int, ...], dtype: str) -> Any:
    import torch

    kind = {"f16": torch.float16, "f32": torch.float32, "i32": torch.int32}[dtype]
    new = torch.empty(shape, dtype=kind, device="cuda")
    return new.fill_(float("nan") if kind.is_floating_point else -1)


def _stream() -> int:
    import torch

    return torch.cuda.current_stream().cuda_stream


def _graph(call: Any) -> Any:
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
        call.launch(_stream())
    return graph


def _median(call: Callable[[], Any], flush: Any) -> float:
    import torch

    times: list[float] = []
    for _ in range(23):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        flush.zero_()
        torch.cuda._sleep(300_000)  # cycles, in which the host enqueues the call
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(1000 * start.elapsed_time(end))
    return statistics.median(times[3:])


def main() -> int | None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for command, folders in (("prepare", ["cases"]), ("run", ["cases", "out"])):
        each = commands.add_parser(command)
        for folder in folders:
            each.add_argument(folder, type=Path)
    arguments = parser.parse_args()
    return prepare(arguments.cases) if arguments.command == "prepare" else run(arguments.cases, arguments.out)


if __name__ == "__main__":
    sys.exit(exit_code("combine.py", main))
