"""What cleave-superopt tells people: one page, without external resources, on all it found; a line while it runs."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
import tempfile
from functools import cache
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path

import graphs
import pytest

from cleave.bindings import context, ir
from cleave.dialects.graph import Graph, GraphBuilder
from cleave.passes.diagnostics import Diagnostic, collecting
from cleave.passes.graph_io import from_graph
from cleave.passes.superopt import Superopt
from cleave.passes.superopt_rejected import LISTED, remark_rejected
from cleave.passes.superopt_report import page as page_of
from cleave.search import SearchOptions, SearchResult, superoptimise
from cleave.search.result import Rejected

LABELS = [f"alternative {number}" for number in range(1, 20)]


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [name for name, _ in attrs]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@cache
def reported() -> tuple[SearchResult, str, str]:
    """What the pass found in attention, the page and the certificates that it wrote."""
    ctx = context()
    with ctx, ir.Location.unknown(), tempfile.TemporaryDirectory() as folder:
        report, certificate = Path(folder) / "report.html", Path(folder) / "certificate.json"
        module = ir.Module.create()
        from_graph(graphs.attention(), module)
        (result,) = Superopt(report=str(report), certificate=str(certificate)).run(ctx, module).values()
        return result, report.read_text(), certificate.read_text()


def tags_of(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    return tags


def sections() -> tuple[str, list[str]]:
    """The page up to the first alternative, and the section of each."""
    front, *found = reported()[1].split("<h3>Alternative ")
    return front, found


def text_of(section: str) -> str:
    return unescape(re.sub("<[^>]*>", "", section))


def test_the_page_is_whole_and_self_contained() -> None:
    _, page, _ = reported()
    tags = tags_of(page)
    assert not tags.open and not {"src", "href"} & set(tags.attributes)
    assert "url(" not in page and "http" not in page


def test_the_page_has_the_space_and_what_was_rejected() -> None:
    result, page, _ = reported()
    text, statistics = tags_of(page).text, result.statistics
    assert f"{statistics.classes} classes of equal values with {statistics.nodes} implementations" in text
    assert result.rejected and all(r.what in text and r.why in text for r in result.rejected)
    assert all(space in text for space in statistics.spaces)


def test_the_page_has_each_program_with_its_cost_beside_the_source() -> None:
    result, (front, found) = reported()[0], sections()
    source, *others = result.alternatives
    assert others and len(found) == len(others)
    for number, (alternative, label) in enumerate(zip(result.alternatives, ("source", *LABELS), strict=False)):
        cells = [label, alternative.split or "–", alternative.cost.depth, *alternative.cost.parts]
        assert "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells) in front, number
    for alternative, section in zip(others, found, strict=True):
        text = text_of(section)
        assert str(alternative.cost) in text
        for graph in (source.graph, alternative.graph):
            assert all(f"%{i} = {v.op}(" in text and str(v.type) in text for i, v in enumerate(graph.topological()))
        assert re.search('<span class="[a-z ]*new">', section)


def test_the_page_has_each_certificate() -> None:
    for alternative, section in zip(reported()[0].alternatives[1:], sections()[1], strict=True):
        proof, text = alternative.certificate, text_of(section)
        assert proof.fingerprint is not None and proof.floats is not None
        assert all(form in text for form in proof.normal_form)
        assert all(f"fact used: {fact}" in text for fact in proof.facts)
        assert f"prime fields {proof.fingerprint.p} and {proof.fingerprint.q}" in text
        assert f"seed {proof.fingerprint.seed}, error bound {proof.fingerprint.error_bound:.1e}" in text
        assert f"drawn {', '.join(proof.floats.draws)}" in text
        assert f"error {proof.floats.error:.1e}, the source's {proof.floats.source_error:.1e}" in text


def test_certificates() -> None:
    result, _, certificate = reported()
    data = json.loads(certificate)
    programs = data["functions"]["attention"]
    assert data["version"] == 1 and len(programs) == len(result.alternatives)
    for program in programs:
        with context():
            assert ir.Module.parse(program["program"]).operation.verify()


def test_the_page_says_where_a_graph_was_cut() -> None:
    source = graphs.attention()
    result = superoptimise(source, SearchOptions(max_ops=4))
    text = tags_of(page_of({"attention": result})).text
    assert result.cuts and f"searched in parts, cut at {len(result.cuts)} values" in text


# --- the line on a terminal -------------------------------------------------------------------------------------------


def stderr_of(terminal: bool) -> str:
    """What cleave-opt says on a terminal, or on a pipe, while it searches one function."""
    ctx = context()
    with ctx, ir.Location.unknown():
        module = ir.Module.create()
        from_graph(graphs.matmul(), module)
    read, write = pty.openpty() if terminal else os.pipe()
    command = [sys.executable, "-m", "cleave.tools.cleave_opt", "--superopt", "-"]
    try:
        done = subprocess.run(command, input=str(module), stdout=subprocess.PIPE, stderr=write, text=True, check=True)
    finally:
        os.close(write)
    assert "cleave.alternative_of" in done.stdout and "superopt:" not in done.stdout
    with os.fdopen(read, "rb", closefd=True) as stream:
        try:
            return stream.read1().decode()
        except OSError:  # a terminal of which the other end is closed, with nothing left to read
            return ""


def test_a_terminal_sees_a_line_that_is_gone_in_the_end() -> None:
    assert stderr_of(terminal=True) == "\r\033[Ksuperopt: matmul (1 of 1)\r\033[K"


def test_what_is_no_terminal_sees_nothing() -> None:
    assert stderr_of(terminal=False) == ""


def test_the_line_tells_the_parts_of_a_large_function(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", stream)
    ctx = context()
    with ctx, ir.Location.unknown():
        module = ir.Module.create()
        from_graph(graphs.attention(), module)
        Superopt(max_ops=4).run(ctx, module)
    _, title, *lines, rest = stream.getvalue().split("\r\033[K")
    assert title == "superopt: attention (1 of 1)" and not rest.startswith("superopt")
    count = int(lines[0].split()[-1])
    parts = [f"{title}, part {number} of {count}" for number in range(1, count + 1)]
    assert lines == [*parts, f"{title}, the whole of {count} parts"]


def test_each_rejected_program_is_told_once_and_only_the_first() -> None:
    """Those that failed a check first; what is left is counted by its reason."""
    programs = [_scaled(number) for number in range(20)]
    rejected = [Rejected("whole: cheap", "another one is as good", each, passed_over=True) for each in programs[:10]]
    rejected += [Rejected("whole: dear", "wrong on a draw", each) for each in (*programs[10:], programs[10])]
    told: list[Diagnostic] = []
    ctx = context()
    with ctx, ir.Location.unknown(ctx), collecting(told.append):
        module = ir.Module.create()
        remark_rejected(from_graph(programs[0], module), [*rejected, Rejected("m cut", "none there")])
    assert [each.message for each in told] == [
        "rejected m cut: none there",
        *["rejected whole: dear: wrong on a draw"] * 10,
        *["rejected whole: cheap: another one is as good"] * 2,
        "rejected 8 more programs",
    ]
    shown = [note.message for each in told[1:-1] for note in each.notes]
    assert len(set(shown)) == LISTED and all('"cleave.constant"() {value' in text for text in shown)
    assert [note.message for note in told[-1].notes] == ["8: another one is as good"]


def _scaled(factor: int) -> Graph:
    b = GraphBuilder("scaled")
    return b.build(b.mul(b.input("m", "f32"), b.constant(factor, "f32")))
