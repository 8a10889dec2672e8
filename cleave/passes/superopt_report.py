"""One self-contained HTML page on what the superoptimiser explored, found and proved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from html import escape

from cleave.dialects.graph import Graph, Value
from cleave.search.result import Alternative, SearchResult

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 90rem; padding: 0 1rem; color: #222 }
pre { font: 12.5px/1.45 ui-monospace, monospace; background: #f6f6f4; padding: .8rem; overflow-x: auto; margin: 0 }
table { border-collapse: collapse } th, td { text-align: left; padding: .2rem .8rem .2rem 0; vertical-align: top }
th { border-bottom: 1px solid #999; font-weight: 600 } td { border-bottom: 1px solid #e4e4e0 }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem } .pair > div { min-width: 0 }
.new { background: #d9f2dd } .reduction { font-weight: 700 } summary { cursor: pointer }
"""


def page(results: Mapping[str, SearchResult]) -> str:
    """The page for the functions of a module, each by its name."""
    body = "".join(_function(name, result) for name, result in results.items()) or "<p>No tensor function.</p>"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Superoptimiser report</title>'
        f"<style>{_STYLE}</style></head>\n<body><h1>What the superoptimiser found</h1>\n{body}</body></html>\n"
    )


def _function(name: str, result: SearchResult) -> str:
    source, *others = result.alternatives
    found = "".join(_alternative(number, source, other) for number, other in enumerate(others, 1))
    return (
        f"<h2>{escape(name)}</h2>\n{_front(result.alternatives)}\n{_space(result)}\n"
        f"{found or '<p>Nothing was found beside the source.</p>' + _pre(_listing(source.graph))}\n"
    )


def _front(alternatives: tuple[Alternative, ...]) -> str:
    """The programs that no other one dominates for all sizes."""
    rows = [
        (_label(i), a.split or "–", a.cost.depth, *a.cost.parts, _count(a.graph)) for i, a in enumerate(alternatives)
    ]
    head = "program|cuts|dependent reductions|reduction chain|contraction flops|pointwise|materialised|ops"
    return f"<h3>Pareto front</h3>{_table(head.split('|'), rows)}"


def _label(index: int) -> str:
    return f"alternative {index}" if index else "source"


def _count(graph: Graph) -> int:
    return sum(value.op != "input" for value in graph.deduplicated().topological())


def _space(result: SearchResult) -> str:
    s = result.statistics
    end = "The space was explored to its end." if s.complete else f"It stopped early: {escape('; '.join(s.stopped))}."
    reasons = Counter((rejected.what, rejected.why) for rejected in result.rejected)
    rows = [(what, why, count) for (what, why), count in reasons.most_common()]
    pruned = f"<details><summary>{len(rows)} reasons for rejection</summary>{_table(['what', 'why', 'times'], rows)}"
    spaces = "".join(f"<li>{escape(space)}</li>" for space in s.spaces)
    return (
        f"<h3>Space explored</h3><p>{s.classes} classes of equal values with {s.nodes} implementations; "
        f"{s.candidates} candidates; {s.seconds:.2f} s. {end}</p><ul>{spaces}</ul>{_cuts(result)}{pruned}</details>"
    )


def _cuts(result: SearchResult) -> str:
    """Where a graph beyond the bound was cut: each part was searched with these values as its inputs."""
    if not result.cuts:
        return ""
    numbers = {value: number for number, value in enumerate(result.alternatives[0].graph.topological())}
    rows = [(f"%{numbers[value]}", value.op, value.type, value.location or "") for value in result.cuts]
    return (
        f"<details><summary>searched in parts, cut at {len(rows)} values, which each part takes as given</summary>"
        f"{_table(['value', 'op', 'type', 'where'], rows)}</details>"
    )


def _alternative(number: int, source: Alternative, other: Alternative) -> str:
    table: dict[object, int] = {}
    known = set(_identities(source.graph, table).values())
    new = {value for value, key in _identities(other.graph, table).items() if key not in known}
    return (
        f"<h3>{_label(number).capitalize()}</h3>\n<p>{escape(str(other.cost))}</p>\n"
        f'<div class="pair"><div><p>before</p>{_pre(_listing(source.graph))}</div>'
        f"<div><p>after (values that the source does not compute are marked)</p>{_pre(_listing(other.graph, new))}"
        f"</div></div>\n{_proof(other)}"
    )


def _proof(alternative: Alternative) -> str:
    c = alternative.certificate
    forms = "\n".join(f"output {i}: {form}" for i, form in enumerate(c.normal_form))
    lines = [f"fact used: {fact}" for fact in c.facts] + [f"note: {note}" for note in c.notes]
    if c.fingerprint is not None:
        f = c.fingerprint
        lines.append(
            f"prime fields {f.p} and {f.q}: {f.samples} random points at {_sizes(f.sizes)}, seed {f.seed}, "
            f"error bound {f.error_bound:.1e} {f.note}"
        )
    if c.floats is not None:
        f = c.floats
        lines.append(
            f"floats at {_sizes(f.sizes)}, drawn {', '.join(f.draws)}: f64 difference {f.f64_difference:.1e}, "
            f"error {f.error:.1e}, the source's {f.source_error:.1e} {f.note}"
        )
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return (
        "<details><summary>Proof: source and alternative have one normal form, for all sizes</summary>"
        f"{_pre(escape(forms))}<ul>{items}</ul></details>"
    )


def _sizes(sizes: Mapping[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in sizes.items())


# --- listings ---------------------------------------------------------------------------------------------------------


def _identities(graph: Graph, table: dict[object, int]) -> dict[Value, int]:
    """A number for each value, equal where the same op stands on equal operands."""
    found: dict[Value, int] = {}
    for value in graph.topological():
        key = (value.op, tuple(found[operand] for operand in value.operands), str(value.type), _attrs(value))
        found[value] = table.setdefault(key, len(table))
    return found


def _attrs(value: Value) -> str:
    return "".join(f" {key}={_attr(attr)}" for key, attr in value.attrs.items())


def _attr(attr: object) -> str:
    return ",".join(map(str, attr)) if isinstance(attr, tuple) else str(attr)  # pyright: ignore[reportUnknownVariableType]


def _listing(graph: Graph, new: Iterable[Value] = ()) -> str:
    """Escaped HTML lines, op by op; reductions are bold and the ``new`` values marked."""
    new, names, lines = set(new), dict[Value, str](), list[str]()
    for number, value in enumerate(graph.topological()):
        names[value] = f"%{number}"
        operands = ", ".join(names[operand] for operand in value.operands)
        attrs = "" if value.op == "input" else _attrs(value)
        text = escape(f"{names[value]} = {value.op}({operands}){attrs} : {value.type}")
        classes = ["reduction"] * (value.op in ("contract", "reduce")) + ["new"] * (value in new)
        lines.append(f'<span class="{" ".join(classes)}">{text}</span>' if classes else text)
    return "\n".join([*lines, f"return {', '.join(names[output] for output in graph.outputs)}"])


def _pre(html: str) -> str:
    return f"<pre>{html}</pre>"


def _table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    header = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>\n" for row in rows)
    return f"<table><tr>{header}</tr>\n{body}</table>"
