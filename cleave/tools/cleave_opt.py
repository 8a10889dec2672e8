"""``cleave-opt``: run passes of Cleave and of MLIR on a module."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from cleave.errors import CleaveError, Position
from cleave.passes import diagnostics
from cleave.passes.diagnostics import Diagnostic
from cleave.tools import command_line, files
from cleave.tools.command_line import Options
from cleave.tools.files import Source
from cleave.tools.internal_error import REPORT, describe_exception
from cleave.tools.isolation import BROKEN_PIPE, INTERRUPTED, Watch, ensure_stderr, run_isolated


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
        print(diagnostics.render(describe_exception(error, "cleave-opt", None), fallback="cleave-opt"), file=sys.stderr)
        return 1


def _main(arguments: Sequence[str]) -> int:
    options = Options()
    try:
        command_line.parse_into(options, arguments)
        if options.action != "run":
            return _inform(options)
        if options.emit in ("cubin", "package") and options.output == "-" and files.stdout_is_terminal():
            text = f"--emit={options.emit} writes no text, which is not for a terminal"
            raise CleaveError(text, "cleave-opt", ("-o FILE, or > FILE, takes it",))
        source = files.read_source(options.input, "cleave-opt")
    except CleaveError as error:
        _show(error, options.texts)
        return 1
    return _compile(options, source)


def _compile(options: Options, source: Source) -> int:
    """Run the passes in a child process and account for how it ends."""
    temporary = files.temporary_name(options.output)
    result = run_isolated(lambda watch: _child(options, source, temporary, watch))
    if options.output != "-" and os.path.exists(temporary):
        os.unlink(temporary)  # the child ended while it was writing
    if isinstance(result, int):
        return result
    position = Position(source.name, 1, 1)
    notes = [note for note in (result.detail, REPORT) if note]
    crash = Diagnostic("error", position, str(result), tuple(Diagnostic("note", position, note) for note in notes))
    print(diagnostics.render(crash), file=sys.stderr)
    return 1


def _child(options: Options, source: Source, temporary: str, watch: Watch) -> int:
    """Everything that needs MLIR; the exit code."""
    from cleave.tools.session import Session

    try:
        outputs = Session(options, source, watch).run()
        if outputs is None:
            return 1
        files.write_output(options.output, _joined(outputs), temporary)
    except CleaveError as error:
        _show(error, options.texts)
        return 1
    except BrokenPipeError:
        return BROKEN_PIPE
    except Exception as error:
        print(diagnostics.render(describe_exception(error, "cleave-opt", Position(source.name, 1, 1))), file=sys.stderr)
        return 1
    return 0


def _joined(outputs: Sequence[str | bytes]) -> bytes:
    return b"// -----\n".join(output.encode() if isinstance(output, str) else output for output in outputs)


def _show(error: CleaveError, sources: Mapping[str, str]) -> None:
    """Print errors that stand in no input file: the place is an option's text, a file as a whole, or the tool."""
    for diagnostic in diagnostics.from_error(error):
        place = str(error.location) if error.location else "cleave-opt"
        print(diagnostics.render(diagnostic, sources, place), file=sys.stderr)


def _inform(options: Options) -> int:
    """The actions that print something and need no input."""
    if options.action == "help":
        text = command_line.HELP
    elif options.action == "version":
        text = _version()
    else:
        from cleave.tools import listings

        text = listings.passes() if options.action == "list-passes" else listings.dialects()
    files.write_output("-", text.encode(), "")
    return 0


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    from cleave import __version__

    lines = [f"cleave-opt {__version__}"]
    for package in ("xtc-mlir-python-bindings", "triton"):
        try:
            lines.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            lines.append(f"{package} is not installed")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
