"""What came of the device check: the runs of each case judged, a table of subjects, and the times."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from children import Json, rows_of, skipped


def label_of(key: str, sizes: Mapping[str, int]) -> str:
    """Names a program, ``key``, with inputs of these sizes."""
    return f"{key} {dict(sizes)}"


def dead(out: Path) -> set[str]:
    """The keys of programs of which a case crashed or hung."""
    return {label.partition(" ")[0] for label in skipped(out)}


def report(cases: Json, out: Path, environment: Json) -> int:
    """Write ``table.txt``, and JSON for all of it; 1 if a case is wrong, crashed or was not run, or if none was."""
    crashed = dead(out)
    checks = judged(cases, rows_of(out / "runs.jsonl"))
    times = rows_of(out / "times.jsonl")
    result = {"environment": environment, "crashed": sorted(crashed), "checks": checks, "times": times}
    (out / "results.json").write_text(json.dumps(result))
    bad = [check for check in checks if not check["ok"]]
    complete = [check for check in checks if check["key"] not in crashed]
    passes = min((check["runs"] for check in complete), default=0)
    not_run = sum(program["key"] not in crashed for program, _ in _pairs(cases)) - len(complete)
    summary = f"{len(checks)} cases, each run {passes} times, {len(bad)} wrong, {len(crashed)} programs crashed"
    lines = [
        json.dumps(environment), "", *_subject_lines(checks), "",
        *(f"WRONG {json.dumps(check)}" for check in bad), *(f"CRASHED {key}" for key in sorted(crashed)), "",
        *_time_lines(times), f"{summary}, {not_run} not run",
    ]  # fmt: skip
    (out / "table.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 1 if bad or crashed or not_run or not checks else 0


def judged(cases: Json, runs: Sequence[Json]) -> list[Json]:
    """For each case that was run what its runs have in common: right only if all are, and all to the bit the same."""
    by_label: dict[str, list[Json]] = {}
    for run in runs:
        by_label.setdefault(run["label"], []).append(run)
    found = {label_of(program["key"], entry["sizes"]): (program, entry) for program, entry in _pairs(cases)}
    return [_judged(*found[label], by_label[label]) for label in sorted(by_label)]


def _pairs(cases: Json) -> list[tuple[Json, Json]]:
    """Each program with each of its inputs: the cases."""
    return [(p, entry) for p in cases["programs"] for entry in cases["data"] if entry["subject"] == p["subject"]]


def _judged(program: Json, entry: Json, runs: Sequence[Json]) -> Json:
    tolerance = entry["tolerance"]
    error, largest = (max(run[name] for run in runs) for name in ("error", "largest"))
    moves = len({run["digest"] for run in runs}) > 1
    refusal = next((run["refusal"] for run in runs if run["refusal"]), "")
    right = error <= tolerance and largest <= 4 * tolerance and not moves and not refusal
    return {
        "subject": entry["subject"], "key": program["key"], "sizes": entry["sizes"], "ok": right,
        "error": error, "largest": largest, "tolerance": tolerance, "moves": moves,
        "runs": len(runs), "refusal": refusal, **({} if right else {"tilings": program["tilings"]}),
    }  # fmt: skip


def _subject_lines(checks: Sequence[Json]) -> list[str]:
    subjects: dict[str, list[Json]] = {}
    for check in checks:
        subjects.setdefault(check["subject"], []).append(check)
    lines = [f"{'subject':34} {'cases':>5} {'wrong':>5} {'largest error / tolerance':>26}"]
    for name, entries in subjects.items():
        wrong = sum(not entry["ok"] for entry in entries)
        worst = max(entry["error"] / entry["tolerance"] for entry in entries)
        lines.append(f"{name:34} {len(entries):5} {wrong:5} {worst:26.3f}")
    return lines


def _time_lines(times: Sequence[Json]) -> list[str]:
    """For each graph and sizes the schedule that was chosen (for the first hint) and the fastest that was tried."""
    groups: dict[tuple[str, str], list[Json]] = {}
    for entry in times:
        sizes = " ".join(f"{name}={n}" for name, n in entry["sizes"].items())
        groups.setdefault((entry["key"].rpartition(".")[0], sizes), []).append(entry)
    lines = [f"{'microseconds, L2 cold':34} {'sizes':36} {'chosen':>9} {'fastest':>9} {'torch':>9}"]
    for (subject, sizes), entries in groups.items():
        chosen = next((f"{entry['us']:.1f}" for entry in entries if entry["key"].endswith(".1")), "-")
        best = min(entry["us"] for entry in entries)
        lines.append(f"{subject:34} {sizes:36} {chosen:>9} {best:9.1f} {entries[0]['torch_us']:9.1f}")
    return lines
