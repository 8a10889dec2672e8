"""What the command lines of several tools share."""

from __future__ import annotations

import pytest

from cleave.tools.arguments import chosen


def test_names_of_a_command_line_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    known = {"attention": 1, "mlp": 2}
    assert chosen(["mlp", "attention"], known, "program", None) == ["mlp", "attention"]
    assert chosen([], known, "program", None) == []
    with pytest.raises(SystemExit) as ended:
        chosen(["mlp", "mpl"], known, "program", None)
    assert ended.value.code == 2 and "there is no program mpl; --help lists them" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        chosen(["--help"], known, "program", "What it does.")
    assert "of attention, mlp" in capsys.readouterr().out
