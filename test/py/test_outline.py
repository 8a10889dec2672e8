"""``tools/outline.py`` behind tools that read no further."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_it_ends_quietly_where_nobody_reads_on() -> None:
    command = [sys.executable, str(ROOT / "tools" / "outline.py")]
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, text=True) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdout.close()
        process.stdin.write((ROOT / "examples" / "attention.mlir").read_text())
        process.stdin.close()
        assert process.stderr.read() == ""
    assert process.returncode == -signal.SIGPIPE
