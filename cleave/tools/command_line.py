"""The command line of ``cleave-opt``, after the conventions of ``mlir-opt``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from cleave.errors import CleaveError
from cleave.passes import registry
from cleave.passes.pipeline_text import Element, parse_flag, parse_pipeline
from cleave.tools.arguments import input_of
from cleave.tools.layouts import Lying, parse_layouts

HELP = """\
usage: cleave-opt [options] [input.mlir | -]

Run passes of Cleave and of MLIR on a module; the result goes to standard output.

passes, in the order given (options: "--superopt{keep=4 explain}" or --superopt="keep=4 explain"):
  --import-linalg              raise linalg on tensors to named-dimension ops
  --superopt                   find equal programs that are cheaper for all sizes
  --schedule                   turn tensor functions into kernels over tiles and their launches
  --lower-to-triton            turn kernels into Triton IR
  --cleave-verify, --cleave-cse, --cleave-dce, and every pass of MLIR by its name: --canonicalize
  --pass-pipeline=TEXT         as "builtin.module(func.func(canonicalize),cleave-superopt{keep=2})"
  --list-passes                Cleave's passes and their options

output:
  -o FILE                      write to FILE, which is left alone on failure
  --emit=KIND                  mlir; after --lower-to-triton ttir, ttgir, llir, ptx, cubin, package
  --kernel=NAME                of several kernels, emit this one
  --layouts="in0: m k+"        a package takes such arguments, too: dims in memory, + where padded
  --target=sm_90               the GPU for --schedule and --emit (default sm_90)
  --mlir-print-op-generic      ops in generic form
  --mlir-print-debuginfo       locations

input:
  --split-input-file           treat the parts between "// -----" lines as separate inputs
  --verify-diagnostics         compare diagnostics with "// expected-error @+1 {{text}}" comments
  --allow-unregistered-dialect ops of unknown dialects are fine
  --verify-each=0              do not verify the input and after each pass

looking inside, on standard error:
  --mlir-print-ir-before=PASS,…, --mlir-print-ir-after=PASS,…, --mlir-print-ir-before-all,
  --mlir-print-ir-after-all, --mlir-print-ir-after-change, --mlir-print-ir-after-failure
  --mlir-timing                time of each pass
  --dump-pass-pipeline         the pipeline that runs
  --show-dialects, --help, --version
"""

FLAGS = "<command line"
"""How the names begin under which ``Options.texts`` has flags with passes."""
QUOTE_IT = 'the shell took the braces apart: quote it, as in "--superopt{keep=4 explain}"'

EmitKind = Literal["mlir", "ttir", "ttgir", "llir", "ptx", "cubin", "package"]
EMIT_KINDS: tuple[EmitKind, ...] = ("mlir", "ttir", "ttgir", "llir", "ptx", "cubin", "package")
Action = Literal["run", "help", "version", "list-passes", "show-dialects"]


@dataclass
class Options:
    """What the command line asks for. ``texts`` holds the flags with passes, by the file name in their positions."""

    action: Action = "run"
    input: str = "-"
    output: str = "-"
    elements: list[tuple[Element, bool]] = field(
        default_factory=list[tuple[Element, bool]]
    )  # True: a flag, nests as needed
    texts: dict[str, str] = field(default_factory=dict[str, str])
    emit: EmitKind = "mlir"
    kernel: str | None = None
    layouts: list[tuple[Lying, ...]] = field(default_factory=list[tuple[Lying, ...]])
    target: str = "sm_90"
    target_given: bool = False
    generic: bool = False
    debug_info: bool = False
    split: bool = False
    verify_diagnostics: bool = False
    allow_unregistered: bool = False
    verify_each: bool = True
    print_before: frozenset[str] = frozenset()
    print_after: frozenset[str] = frozenset()
    print_before_all: bool = False
    print_after_all: bool = False
    print_after_change: bool = False
    print_after_failure: bool = False
    timing: bool = False
    dump_pipeline: bool = False


_SWITCHES = {
    "mlir-print-op-generic": "generic",
    "mlir-print-debuginfo": "debug_info",
    "split-input-file": "split",
    "verify-diagnostics": "verify_diagnostics",
    "allow-unregistered-dialect": "allow_unregistered",
    "verify-each": "verify_each",
    "mlir-print-ir-before-all": "print_before_all",
    "mlir-print-ir-after-all": "print_after_all",
    "mlir-print-ir-after-change": "print_after_change",
    "mlir-print-ir-after-failure": "print_after_failure",
    "mlir-timing": "timing",
    "dump-pass-pipeline": "dump_pipeline",
}
_ACTIONS: dict[str, Action] = {
    "help": "help",
    "h": "help",
    "version": "version",
    "list-passes": "list-passes",
    "show-dialects": "show-dialects",
}
_VALUES: dict[str, Callable[[Options, str], None]] = {}
# Accepted since scripts for mlir-opt have them; they say what is the case anyway.
_IGNORED = frozenset(("mlir-disable-threading", "mlir-print-ir-module-scope"))
_BOOLEANS = {"": True, "1": True, "true": True, "0": False, "false": False}


def parse_into(options: Options, arguments: Sequence[str]) -> None:
    """Set the options; CleaveError for what is unknown or malformed, its place in one of ``options.texts`` or none."""
    options.input = input_of("cleave-opt", arguments, partial(_flag, options))
    options.elements = [(_for_target(element, options.target), nests) for element, nests in options.elements]
    _check_form(options)
    _check_printed(options)
    if options.kernel is not None and options.emit in ("mlir", "package"):
        raise CleaveError("--kernel picks what --emit=ttir, ttgir, llir, ptx or cubin writes", "cleave-opt")
    if options.layouts and options.emit != "package":
        raise CleaveError("--layouts are those of a package, which --emit=package writes", "cleave-opt")
    if options.emit != "mlir" and (options.split or options.verify_diagnostics):
        raise CleaveError(
            "--emit writes one module; it goes with neither --split-input-file nor --verify-diagnostics", "cleave-opt"
        )


def _for_target(element: Element, target: str) -> Element:
    """The scheduler's cost model is that of ``--target``, unless its own options name one."""
    is_schedule = element.name in ("schedule", "cleave-schedule")
    if not is_schedule or target == Options.target or "target" in element.options:
        return element
    return replace(element, options=f"{element.options} target={target}".strip())


def other_targets(options: Options) -> Iterator[tuple[Element, str]]:
    """The scheduling passes whose own target is another architecture than ``--target``, and what to say of it."""
    from cleave.schedule.target import target_named

    for element, _ in options.elements if options.target_given else ():
        own = re.search(r"(?<!\S)target=(\w+)", element.options)
        if _full_name(element.name) != "cleave-schedule" or own is None:
            continue
        arch = target_named(own[1]).arch
        if arch != target_named(options.target).arch:
            yield element, f"schedules are chosen for {own[1]} ({arch}), and --target is {options.target}"


def _check_printed(options: Options) -> None:
    """CleaveError where the module is to be printed around a pass that does not run."""
    running = {_full_name(element.name) for element, _ in options.elements}
    for flag, names in (("before", options.print_before), ("after", options.print_after)):
        for name in sorted(names - running):
            text = f"--mlir-print-ir-{flag}: no pass '{name}' runs"
            raise CleaveError(text, "cleave-opt", (f"these do: {', '.join(sorted(running)) or 'none'}",))


def _check_form(options: Options) -> None:
    """CleaveError where kernels would be lowered to a form that ``--target`` has not."""
    if not any(element.name in ("lower-to-ttgir", "cleave-lower-to-ttgir") for element, _ in options.elements):
        return
    from cleave.schedule.target import target_named

    if target_named(options.target).arch != Options.target:
        text = f"--lower-to-ttgir makes warp-specialised kernels for sm_90, and --target is {options.target}"
        raise CleaveError(text, "cleave-opt", ("--lower-to-triton takes every target",))


def _flag(options: Options, argument: str, rest: list[str]) -> None:
    """One flag; takes its value from ``rest`` where it stands apart from it."""
    body = argument.removeprefix("-").removeprefix("-")
    name, equals, value = body.partition("=")
    if name in _ACTIONS:
        options.action = _ACTIONS[name]
    elif name in _SWITCHES:
        setattr(options, _SWITCHES[name], _boolean(argument, value if equals else ""))
    elif name in _VALUES:
        if not equals and not rest:
            raise CleaveError(f"{argument} needs a value", "cleave-opt")
        _VALUES[name](options, value if equals else rest.pop(0))
    elif name not in _IGNORED:
        _pass_flag(options, argument, body)


def _boolean(argument: str, value: str) -> bool:
    if value.lower() not in _BOOLEANS:
        raise CleaveError(f"{argument}: not true or false", "cleave-opt")
    return _BOOLEANS[value.lower()]


def _value(name: str) -> Callable[[Callable[[Options, str], None]], Callable[[Options, str], None]]:
    def register(set_: Callable[[Options, str], None]) -> Callable[[Options, str], None]:
        _VALUES[name] = set_
        return set_

    return register


@_value("o")
def _output(options: Options, value: str) -> None:
    options.output = value


@_value("emit")
def _emit(options: Options, value: str) -> None:
    if value not in EMIT_KINDS:
        raise CleaveError(f"--emit: no '{value}'; it is one of {', '.join(EMIT_KINDS)}", "cleave-opt")
    options.emit = value


@_value("kernel")
def _kernel(options: Options, value: str) -> None:
    options.kernel = value.removeprefix("@")


@_value("layouts")
def _layouts(options: Options, value: str) -> None:
    options.layouts.append(parse_layouts(value, _remember(options, "--layouts", value)))


@_value("target")
def _target(options: Options, value: str) -> None:
    from cleave.schedule.target import target_named

    try:
        target_named(value)
    except CleaveError as error:
        raise CleaveError(f"--target: {error.message}", "cleave-opt", error.notes) from None
    if options.target_given and value != options.target:
        raise CleaveError(f"--target is {options.target} and {value}: a module is compiled for one GPU", "cleave-opt")
    options.target, options.target_given = value, True


@_value("mlir-print-ir-before")
def _print_before(options: Options, value: str) -> None:
    options.print_before |= frozenset(map(_full_name, value.split(",")))


@_value("mlir-print-ir-after")
def _print_after(options: Options, value: str) -> None:
    options.print_after |= frozenset(map(_full_name, value.split(",")))


@_value("pass-pipeline")
def _pipeline(options: Options, value: str) -> None:
    file = _remember(options, "--pass-pipeline", value)
    options.elements += [(element, False) for element in parse_pipeline(value, file)]


def _pass_flag(options: Options, argument: str, body: str) -> None:
    """A pass by its name. Whether MLIR has a pass that we do not know is found out when it is made ready to run."""
    text = f"--{body}"
    file = _remember(options, "command line", text)
    try:
        element = parse_flag(body, file)
    except CleaveError as error:
        cut = "{" in body and "}" not in body
        raise CleaveError(error.message, error.location, (*error.notes, *([QUOTE_IT] if cut else []))) from None
    if not element.name:
        raise CleaveError(f"no option '{argument}'", "cleave-opt", ("--help lists the options",))
    name = _full_name(element.name)
    if name != element.name:
        element = Element(name, element.options, (), element.position, element.options_position)
    options.elements.append((element, True))


def _full_name(name: str) -> str:
    return registry.SHORT_NAMES.get(name.strip(), name.strip())


def _remember(options: Options, file: str, text: str) -> str:
    """Keep the text for excerpts in diagnostics, under ``<file>`` or ``<file 2>``, …."""
    number = sum(known.startswith(f"<{file}") for known in options.texts) + 1
    name = f"<{file}>" if number == 1 else f"<{file} {number}>"
    options.texts[name] = text
    return name


_OF_MLIR = (
    "canonicalize", "cse", "inline", "symbol-dce", "sccp", "loop-invariant-code-motion", "linalg-generalize-named-ops",
    "linalg-fold-unit-extent-dims", "linalg-fuse-elementwise-ops", "convert-elementwise-to-linalg",
)  # fmt: skip
"""Passes of MLIR that modules for Cleave go through; its bindings have no list of all."""


def did_you_mean(name: str) -> str | None:
    """The option or pass of ours nearest to a name that nobody knows."""
    known = [*_SWITCHES, *_ACTIONS, *_VALUES, *registry.PASSES, *registry.SHORT_NAMES, *_OF_MLIR]
    return next(iter(difflib.get_close_matches(name, known, 1, 0.7)), None)


def is_torn(name: str) -> bool:
    """Whether a name that nobody knows is what a shell makes of ``--superopt{keep=4,explain}``."""
    from cleave.passes.options import option_types

    passes = {**{full: full for full in registry.PASSES}, **registry.SHORT_NAMES}
    return any(
        name.removeprefix(short) in option_types(registry.pass_class(full))
        for short, full in passes.items()
        if name.startswith(short)
    )
