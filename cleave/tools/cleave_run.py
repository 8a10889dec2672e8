"""``cleave-run``: compile a function, run it on the CPU, and compare it with its source."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from cleave.errors import CleaveError, Position
from cleave.passes import diagnostics
from cleave.passes.diagnostics import Diagnostic
from cleave.tools import files, run_options
from cleave.tools.files import Source
from cleave.tools.internal_error import REPORT, describe_exception
from cleave.tools.isolation import BROKEN_PIPE, INTERRUPTED, Watch, ensure_stderr, run_isolated
from cleave.tools.run_options import TOOL, RunOptions


def main(arguments: Sequence[str] | None = None) -> int:
    """Run with the arguments (None: of the process); returns the exit code and raises nothing."""
    ensure_stderr()
    try:
        return _main(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return BROKEN_PIPE
    except Exception as error:
        print(diagnostics.render(describe_exception(error, TOOL, None), fallback=TOOL), file=sys.stderr)
        return 1


def _main(arguments: Sequence[str]) -> int:
    try:
        options = run_options.parse(arguments)
        if options.action != "run":
            files.write_output("-", (run_options.HELP if options.action == "help" else _version()).encode(), "")
            return 0
        source = files.read_source(options.input, TOOL)
    except CleaveError as error:
        _show(error)
        return 1
    return _isolated(options, source)


def _version() -> str:
    from cleave import __version__

    return f"{TOOL} {__version__}\n"


def _isolated(options: RunOptions, source: Source) -> int:
    """Work in a child process, since MLIR may abort, and account for how it ends."""
    result = run_isolated(lambda watch: _child(options, source, watch))
    if options.temporary and os.path.exists(options.temporary):
        os.unlink(options.temporary)  # the child ended while it was writing
    if isinstance(result, int):
        return result
    position = Position(source.name, 1, 1)
    notes = tuple(Diagnostic("note", position, note) for note in (result.detail, REPORT) if note)
    print(diagnostics.render(Diagnostic("error", position, str(result), notes)), file=sys.stderr)
    return 1


def _child(options: RunOptions, source: Source, watch: Watch) -> int:
    """Everything that needs MLIR; the exit code."""
    from cleave.tools.run_session import RunSession

    try:
        session = RunSession(options, source, watch)
        session.run()
        report = session.report_of_run
        if report is None:
            return 1
        files.write_output("-", (report.json() if options.json else report.text()).encode(), "")
    except CleaveError as error:
        _show(error)
        return 1
    except BrokenPipeError:
        return BROKEN_PIPE
    except Exception as error:
        print(diagnostics.render(describe_exception(error, TOOL, Position(source.name, 1, 1))), file=sys.stderr)
        return 1
    return 0 if report.passed else 1


def _show(error: CleaveError) -> None:
    """Print errors that stand in no input file: the place is a file as a whole, or the tool."""
    for diagnostic in diagnostics.from_error(error):
        place = str(error.location) if error.location else TOOL
        print(diagnostics.render(diagnostic, fallback=place), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
