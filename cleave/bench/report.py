"""Results as a table and as a page: bars for each shape, and a roofline."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from cleave.bench.run import Row

PEAK_FLOPS = 800e12
"""Of f16 tensor cores on an H200 at its usual clocks: about what a large product by cuBLAS reaches."""


def geometric_mean(values: Sequence[float]) -> float:
    """NaN for none."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


FLOPS_ARE = "FLOP are the source's: what was found to need fewer may be above 100 % of the roofline."


def table(rows: Sequence[Row], bandwidth: float) -> str:
    """Markdown: one line for each shape, one for each subgraph."""
    lines = ["| subgraph | shape | µs | best baseline | µs | ratio | GB/s | TFLOP/s | of roofline | error |"]
    lines.append("|---|---|---:|---|---:|---:|---:|---:|---:|---:|")
    lines += [_line(row, bandwidth) for row in rows]
    plain = [row for row in rows if not row.ablation and not row.wrong and not math.isnan(row.ratio)]
    names = list(dict.fromkeys(row.subgraph for row in plain))
    lines += ["", "| subgraph | geometric mean of the ratios | worst | best |", "|---|---:|---:|---:|"]
    for name in names:
        ratios = [row.ratio for row in plain if row.subgraph == name]
        lines.append(f"| {name} | {geometric_mean(ratios):.2f} | {min(ratios):.2f} | {max(ratios):.2f} |")
    overall = geometric_mean([row.ratio for row in plain])
    lines.append(f"| all shapes | {overall:.2f} | | |")
    return "\n".join([*lines, *_ablations(rows), "", FLOPS_ARE])


def _line(row: Row, bandwidth: float) -> str:
    name = row.subgraph + (f" ({row.ablation})" if row.ablation else "")
    label, other = row.best
    if row.wrong:
        return f"| {name} | {row.shape} | WRONG: {row.wrong} | {label} | {other:.1f} | | | | | {row.error:.1e} |"
    us, by = row.microseconds["cleave"], " (cuBLAS)" * bool(row.library)
    seconds, floor = us * 1e-6, roofline(row, bandwidth)
    rates = f"{row.traffic / seconds / 1e9:.0f} | {row.flops / seconds / 1e12:.0f} | {floor / seconds:.0%}"
    return (
        f"| {name} | {row.shape} | {us:.1f}{by} | {label} | {other:.1f} | {row.ratio:.2f} | {rates} | {row.error:.1e} |"
    )


def roofline(row: Row, bandwidth: float) -> float:
    """Seconds that no program goes below: its bytes once, or its contractions at the tensor cores' speed."""
    return max(row.traffic / bandwidth, row.flops / PEAK_FLOPS)


def _ablations(rows: Sequence[Row]) -> list[str]:
    """How much slower each ablation is, over the shapes that have it."""
    whole = {(row.subgraph, row.shape): row.microseconds.get("cleave") for row in rows if not row.ablation}
    lines: list[str] = []
    for ablation in dict.fromkeys(row.ablation for row in rows if row.ablation):
        slower = [
            row.microseconds["cleave"] / base
            for row in rows
            if row.ablation == ablation and "cleave" in row.microseconds and (base := whole[row.subgraph, row.shape])
        ]
        worst = max(slower, default=math.nan)
        lines.append(f"| {ablation} | {geometric_mean(slower):.2f} × the time | {worst:.2f} × at most |")
    return ["", "| without | geometric mean | worst |", "|---|---|---|", *lines] if lines else []


# --- the page --------------------------------------------------------------------------------------------------------

_STYLE = """
body { font: 14px system-ui, sans-serif; max-width: 70em; margin: 2em auto; color: #222; }
h2 { margin-top: 2em; } td { padding: 2px 10px; }
svg text { font: 11px system-ui, sans-serif; } .cleave { fill: #2a6f97; } .other { fill: #c9c9c9; }
"""
_BAR, _GAP, _WIDTH, _LABEL = 14, 8, 560, 210


def page(rows: Sequence[Row], environment: Mapping[str, Any]) -> str:
    """One HTML page that needs nothing else."""
    bandwidth = float(environment.get("copy GB/s", 4000)) * 1e9
    facts = "".join(f"<tr><td>{_text(k)}</td><td>{_text(v)}</td></tr>" for k, v in environment.items())
    groups = dict.fromkeys(row.subgraph for row in rows)
    charts = "".join(f"<h2>{_text(name)}</h2>{_bars([r for r in rows if r.subgraph == name])}" for name in groups)
    return (
        f"<!doctype html><meta charset=utf-8><title>cleave-bench</title><style>{_STYLE}</style><h1>cleave-bench</h1>"
        f"<table>{facts}</table><h2>Roofline</h2>{_roofline(rows, bandwidth)}{charts}"
    )


def _text(value: Any) -> str:
    return html.escape(str(value))


def _bars(rows: Sequence[Row]) -> str:
    """Microseconds: each program of each shape."""
    bars: list[str] = []
    y = 0.0
    for row in rows:
        longest = max(row.microseconds.values(), default=1.0)
        title = f"{row.shape} {row.ablation}".strip()
        for label, us in sorted(row.microseconds.items(), key=lambda item: item[0] != "cleave"):
            by = " (cuBLAS)" * (label == "cleave" and bool(row.library))
            width, kind = _WIDTH * us / longest, "cleave" if label == "cleave" else "other"
            bars.append(
                f'<text x="{_LABEL - 6}" y="{y + 11}" text-anchor="end">{_text(title)} {_text(label)}{by}</text>'
                f'<rect class="{kind}" x="{_LABEL}" y="{y}" width="{width:.1f}" height="{_BAR}"/>'
                f'<text x="{_LABEL + width + 4:.1f}" y="{y + 11}">{us:.1f} µs</text>'
            )
            y += _BAR + 2
        y += _GAP
    return f'<svg width="{_LABEL + _WIDTH + 90}" height="{y:.0f}">{"".join(bars)}</svg>'


def _roofline(rows: Sequence[Row], bandwidth: float) -> str:
    """Operations a second over operations a byte, both logarithmic, with the two ceilings."""
    width, height = 760, 320
    low, high, bottom, top = 0.1, 1e4, 1e11, 2e15

    def x(intensity: float) -> float:
        return width * math.log(max(intensity, low) / low) / math.log(high / low)

    def y(rate: float) -> float:
        return height * (1 - math.log(max(rate, bottom) / bottom) / math.log(top / bottom))

    ridge = PEAK_FLOPS / bandwidth
    ceiling = (
        f"{x(low):.0f},{y(low * bandwidth):.0f} {x(ridge):.0f},{y(PEAK_FLOPS):.0f} {x(high):.0f},{y(PEAK_FLOPS):.0f}"
    )
    points = "".join(
        f'<circle class="cleave" cx="{x(row.flops / row.traffic):.1f}" r="3" '
        f'cy="{y(row.flops / (row.microseconds["cleave"] * 1e-6)):.1f}">'
        f"<title>{_text(row.subgraph)} {_text(row.shape)}</title></circle>"
        for row in rows
        if "cleave" in row.microseconds and not row.ablation
    )
    return (
        f'<svg width="{width}" height="{height + 20}"><polyline points="{ceiling}" fill="none" stroke="#999"/>{points}'
        f'<text x="4" y="{height + 14}">floating-point operations per byte: {low} to {high:.0f}</text></svg>'
    )
