"""The report of cleave-superopt is one page without external resources that shows what was found."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import graphs

from cleave.bindings import context, ir
from cleave.passes.graph_io import from_graph
from cleave.passes.superopt import Superopt


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


def test_page_and_certificates(tmp_path: Path) -> None:
    report, certificate = tmp_path / "report.html", tmp_path / "certificate.json"
    ctx = context()
    with ctx, ir.Location.unknown():
        module = ir.Module.create()
        from_graph(graphs.attention(), module)
    (result,) = Superopt(report=str(report), certificate=str(certificate)).run(ctx, module).values()

    tags = Tags()
    tags.feed(report.read_text())
    assert not tags.open and not {"src", "href"} & set(tags.attributes)
    assert "url(" not in report.read_text() and "http" not in report.read_text()
    assert all(str(a.cost.length) in tags.text for a in result.alternatives)
    assert all(form in tags.text for a in result.alternatives for form in a.certificate.normal_form)
    assert f"{result.statistics.classes} classes" in tags.text
    assert all(rejected.why in tags.text for rejected in result.rejected)

    data = json.loads(certificate.read_text())
    programs = data["functions"]["attention"]
    assert data["version"] == 1 and len(programs) == len(result.alternatives)
    for program in programs:
        with context():
            assert ir.Module.parse(program["program"]).operation.verify()
