"""Predicted against measured: rank correlations, what following the model costs, the worst mispredictions."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]

FIRST = (1, 4, 8, 16)
WORST = 12
PARTS = ("dram", "l2", "tensor", "special", "alu", "latency", "launch", "total")


def predict_rows(results: Path) -> int:
    """Put the predictions of this working tree's cost model into the rows, in microseconds by part."""
    from cost_cases import predicted, subjects
    from cost_rebuild import rebuilt

    graphs = {subject.name: subject.graph.deduplicated() for subject in subjects()}
    rows = _read(results)
    for row in rows:
        program = rebuilt(graphs[row["subgraph"]], tuple(row["tilings"]))
        row["predicted"] = {part: round(us, 2) for part, us in predicted(program, row["sizes"]).items()}
    results.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return 0


def _read(results: Path) -> list[Json]:
    return [json.loads(line) for line in results.read_text().splitlines()]


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """The rank correlation, equal values sharing the mean of their ranks; NaN where one side does not vary."""
    a, b = _ranks(one), _ranks(other)
    mean = (len(a) + 1) / 2
    covariance = sum((x - mean) * (y - mean) for x, y in zip(a, b, strict=True))
    spread = math.sqrt(sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b))
    return covariance / spread if spread else math.nan


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=lambda i: values[i])
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for place in order[start : end + 1]:
            ranks[place] = (start + end) / 2 + 1
        start = end + 1
    return ranks


def report_rows(results: Path) -> int:
    """Print the Markdown tables."""
    print("\n".join(report(_read(results))))
    return 0


def report(rows: Sequence[Json]) -> list[str]:
    wrong = [row for row in rows if not row["ok"] or row["us"] is None]
    rows = [row for row in rows if row["ok"] and row["us"] is not None]
    groups = _grouped(rows, lambda row: (row["subgraph"], row["rows"]))
    programs = len({row["key"] for row in rows})
    regrets = [_regrets(group) for group in groups.values()]
    inside = [_correlation(group) for group in groups.values()]
    lines = [
        f"{len(rows)} pairs ({programs} schedules of {len(_grouped(rows, _subgraph))} subgraphs), {len(wrong)} wrong.",
        "",
        f"Rank correlation over all pairs: **{_correlation(rows):.3f}**; mean over subgraphs and sizes, of the "
        f"schedules of one: {_mean(inside):.3f}. Median of predicted / measured: "
        f"{_median([_ratio(row) for row in rows]):.2f}; within a factor 1.5: {_share(rows, 1.5):.0%}, of 2: "
        f"{_share(rows, 2.0):.0%}.",
        "",
        f"Best of the model's first N over the best measured, geometric mean and worst of {len(groups)}: "
        + "; ".join(
            f"N = {first}: {_geometric([r[i] for r in regrets]):.3f}, {max(r[i] for r in regrets):.2f}"
            for i, first in enumerate(FIRST)
        )
        + ".",
        "",
        "| subgraph | rows | schedules | rank correlation | best µs | first µs | "
        + " | ".join(f"best of {n} / best" for n in FIRST) + " |",
        "|---|---|---|---|---|---|" + "---|" * len(FIRST),
    ]  # fmt: skip
    for (subgraph, count), group in sorted(groups.items()):
        best = min(row["us"] for row in group)
        regret = _regrets(group)
        found = f"{len(group)} | {_correlation(group):.2f} | {best:.1f} | {best * regret[0]:.1f}"
        lines.append(
            f"| {subgraph} | {count} | {found} | "
            + " | ".join(f"{each:.2f}" for each in regret) + " |"
        )  # fmt: skip
    lines += ["", "| subgraph | pairs | rank correlation |", "|---|---|---|"]
    for subgraph, group in sorted(_grouped(rows, _subgraph).items()):
        lines.append(f"| {subgraph} | {len(group)} | {_correlation(group):.2f} |")
    return [*lines, "", *_worst(rows)]


def _worst(rows: Sequence[Json]) -> list[str]:
    lines = [
        "| worst: schedule | rows | measured µs | " + " | ".join(PARTS) + " | registers | spills |",
        "|---|---|---|" + "---|" * (len(PARTS) + 2),
    ]
    for row in sorted(rows, key=lambda row: -abs(math.log(_ratio(row))))[:WORST]:
        parts = " | ".join(f"{row['predicted'][part]:.1f}" for part in PARTS)
        kernels = row["kernels"]
        resources = " | ".join(", ".join(str(k[name]) for k in kernels) for name in ("registers", "spills"))
        tilings = "; ".join(row["tilings"]).replace("*", "\\*")
        lines.append(f"| {row['subgraph']}: {tilings} | {row['rows']} | {row['us']:.1f} | {parts} | {resources} |")
    return lines


def _subgraph(row: Json) -> str:
    return row["subgraph"]


def _grouped(rows: Sequence[Json], key: Callable[[Json], Any]) -> dict[Any, list[Json]]:
    groups: dict[Any, list[Json]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def _correlation(rows: Sequence[Json]) -> float:
    return spearman([row["predicted"]["total"] for row in rows], [row["us"] for row in rows])


def _regrets(group: Sequence[Json]) -> list[float]:
    """For each of ``FIRST`` the best time of so many, taken in the model's order, over the best of all."""
    times = [row["us"] for row in sorted(group, key=lambda row: row["predicted"]["total"])]
    return [min(times[:first]) / min(times) for first in FIRST]


def _ratio(row: Json) -> float:
    return row["predicted"]["total"] / row["us"]


def _share(rows: Sequence[Json], factor: float) -> float:
    return sum(1 / factor <= _ratio(row) <= factor for row in rows) / max(1, len(rows))


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2] if values else math.nan


def _geometric(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))
