"""Tables of the decode measurements: what the model's first choice costs against the best and against PyTorch."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from cost_rebuild import rebuilt
from cost_report import spearman

from cleave.dialects.graph import Graph
from cleave.errors import CleaveError
from cleave.schedule.part_lengths import in_whole_vectors
from cleave.schedule.tile_program import TileProgram
from cleave.search import SearchOptions, superoptimise

Json = dict[str, Any]

ANCHOR_NAMES = {"mla_1024/128": "mla/decode_1024", "mla_4096/128": "mla/decode_4096"}


def predict_rows(results: Path) -> int:
    """Put the predictions of this working tree's cost model into the rows, in microseconds by part."""
    from cost_cases import predicted
    from decode_cases import workloads

    found = {(workload.name, workload.rows): workload for workload in workloads()}
    rows = _read(results)
    for row in rows:
        workload = found[row["workload"], row["rows"]]
        program = _program(workload.graph, tuple(row["tilings"]))
        known = {**workload.graph.extents, **workload.sizes, **row["given"]}
        row["predicted"] = {part: round(us, 2) for part, us in predicted(program, known).items()}
    results.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return 0


def _program(graph: Graph, tilings: tuple[str, ...]) -> TileProgram:
    """The program of one of the graph's alternatives with these tilings; of the source only if no other has such dims,
    since what was measured is of the best ones."""
    source, *others = _alternatives(graph)
    for alternative in (*others, source):
        with contextlib.suppress(CleaveError):
            return rebuilt(alternative, tilings)
    raise CleaveError(f"no alternative of {graph.name} has the tilings {tilings}")


@cache
def _alternatives(graph: Graph) -> list[Graph]:
    found = superoptimise(graph.deduplicated(), SearchOptions(split=True)).alternatives
    return [in_whole_vectors(each.graph, {}).deduplicated() for each in found]


def _read(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def report_rows(results: Path, anchors: Path | None) -> int:
    """Print the Markdown table; ``baselines.jsonl`` lies beside the results."""
    rows = _read(results)
    base = {f"{b['workload']}/{b['rows']}": b["torch"] for b in _read(results.with_name("decode-baselines.jsonl"))}
    known = {row["w"]: row for row in _read(anchors)} if anchors else {}
    good = [row for row in rows if row["ok"] and row["us"]]
    wrong = [row for row in rows if row["us"] and not row["ok"]]
    refused = [row for row in rows if not row["us"]]
    groups: dict[str, list[Json]] = {}
    for row in good:
        groups.setdefault(f"{row['workload']}/{row['rows']}", []).append(row)
    print(f"{len(good)} times, {len(wrong)} wrong, {len(refused)} not run; rank correlation over all {_rank(good):.3f}")
    print("\n| workload/rows | schedules | rank | first µs | best µs | torch here | torch's best (anchors) | best |")
    print("|---|---|---|---|---|---|---|---|")
    for name, group in groups.items():
        first = min(group, key=lambda row: row["predicted"]["total"])
        best = min(group, key=lambda row: row["us"])
        print(
            f"| {name} | {len(group)} | {_rank(group):.2f} | {first['us']:.1f} | {best['us']:.1f} | "
            f"{base.get(name, float('nan')):.1f} | {_anchor(name, known)} | {_text(best)} |"
        )
    for row in (*wrong, *refused):
        print(f"\nnot counted: {row['key']} {row['given']} error {row['error']} {row['refusal'][:120]} {_text(row)}")
    return 0


def _rank(rows: Sequence[Json]) -> float:
    return spearman([row["predicted"]["total"] for row in rows], [row["us"] for row in rows])


def _text(row: Json) -> str:
    count = "".join(f" {name} = {n}" for name, n in row["given"].items())
    return "; ".join(row["tilings"]).replace("*", "\\*") + count


def _anchor(name: str, known: Mapping[str, Json]) -> str:
    workload, rows = name.split("/")
    base, _, size = workload.partition("_d")
    anchor = ANCHOR_NAMES.get(name, f"{base}/decode_{rows}" + (f"_d{size}" if size.isdigit() else ""))
    found = known.get(anchor)
    if found is None:
        return ""
    us, label = min((value, key) for key, value in found.items() if key not in ("w", "floor", "eager_nomax"))
    return f"{us:.1f} ({label})"
