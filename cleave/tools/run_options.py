"""The command line of ``cleave-run``."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from cleave.errors import CleaveError
from cleave.passes.options import parse_sizes
from cleave.tools import files
from cleave.tools.arguments import input_of

TOOL = "cleave-run"
HELP = """\
usage: cleave-run [options] [input.mlir | -]

Compile a function and run it on the CPU, its kernels by an interpreter of Triton's IR. The input is linalg on tensors
or a module of Cleave's at any stage; the passes that are left to do are run.

what to run:
  --function=NAME      the function (needed where the module has several)
  --sizes=m=128,n=40   sizes of dynamic dimensions, by their names after --import-linalg (default: chosen and shown)
  --inputs=FILE.npz    arrays in0, in1, … (default: random ones; integers are 0 to 3)
  --seed=0             of the random inputs
  --no-superopt        compile the program as it is written
  --alternative=N      compile the N-th alternative of the search, not what the cost model chooses; 0: the source
  --stage=reference    run the source with the NumPy reference executor and compile nothing (default: --stage=ttir)

what comes out:
  --check              compare with the source program computed in f64: print ‖out−ref‖/‖ref‖ of the compiled program
                       and of the source run as it is written; exit 1 if the first is more than twice the second
                       (and one unit in the last place of the result's type; four of f32 and f64), or if infinities
                       and NaN are not the source's; warn where the second is so large that zeros would pass
  --outputs=FILE.npz   write out0, out1, …
  --json               print one JSON object instead of text
  --help, --version
"""


@dataclass
class RunOptions:
    """What the command line asks for; ``temporary`` is where the outputs are until they are complete."""

    action: Literal["run", "help", "version"] = "run"
    input: str = "-"
    function: str | None = None
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    inputs: str | None = None
    outputs: str | None = None
    temporary: str = ""
    seed: int = 0
    superopt: bool = True
    alternative: int | None = None
    stage: Literal["ttir", "reference"] = "ttir"
    check: bool = False
    json: bool = False


def parse(arguments: Sequence[str]) -> RunOptions:
    """The options; CleaveError for what is unknown or malformed."""
    options = RunOptions()
    options.input = input_of(TOOL, arguments, partial(_flag, options))
    return options


def _flag(options: RunOptions, argument: str, rest: list[str]) -> None:
    name, equals, value = argument.lstrip("-").partition("=")
    name = {"h": "help"}.get(name, name)
    if name in ("help", "version"):
        options.action = name
    elif name in _SWITCHES:
        if equals:
            raise CleaveError(f"--{name} takes no value", TOOL)
        _SWITCHES[name](options)
    elif name in _VALUES:
        if not equals and not rest:
            raise CleaveError(f"--{name} needs a value", TOOL)
        _VALUES[name](options, value if equals else rest.pop(0))
    else:
        near = difflib.get_close_matches(name, [*_SWITCHES, *_VALUES, "help", "version"], 1)
        hint = f"; did you mean --{near[0]}?" if near else ""
        raise CleaveError(f"no option '{argument}'{hint}", TOOL, ("--help lists the options",))


def _no_superopt(options: RunOptions) -> None:
    options.superopt = False


def _check(options: RunOptions) -> None:
    options.check = True


def _json(options: RunOptions) -> None:
    options.json = True


def _function(options: RunOptions, text: str) -> None:
    options.function = text.removeprefix("@")


def _sizes(options: RunOptions, text: str) -> None:
    try:
        given = parse_sizes(text)
    except CleaveError as error:
        raise CleaveError(f"--sizes: {error.message}", TOOL, error.notes) from None
    for name, size in given.items():
        if options.sizes.setdefault(name, size) != size:
            raise CleaveError(f"--sizes: '{name}' is given twice", TOOL)


def _inputs(options: RunOptions, text: str) -> None:
    options.inputs = _npz(text)


def _outputs(options: RunOptions, text: str) -> None:
    options.outputs = _npz(text)
    options.temporary = files.temporary_name(text)


def _npz(path: str) -> str:
    if not path.endswith(".npz"):
        raise CleaveError("a file of arrays must be called .npz", path)
    return path


def _seed(options: RunOptions, text: str) -> None:
    if not (text.isascii() and text.isdigit()):
        raise CleaveError(f"--seed: '{text}' is no whole number from 0", TOOL)
    options.seed = int(text)


def _alternative(options: RunOptions, text: str) -> None:
    if not (text.isascii() and text.isdigit()):
        raise CleaveError(f"--alternative: '{text}' is no whole number from 0", TOOL)
    options.alternative = int(text)


def _stage(options: RunOptions, text: str) -> None:
    if text not in ("ttir", "reference"):
        raise CleaveError(f"--stage: '{text}' is not ttir or reference", TOOL)
    options.stage = text


_SWITCHES: dict[str, Callable[[RunOptions], None]] = {"no-superopt": _no_superopt, "check": _check, "json": _json}
_VALUES: dict[str, Callable[[RunOptions, str], None]] = {
    "function": _function,
    "sizes": _sizes,
    "inputs": _inputs,
    "outputs": _outputs,
    "seed": _seed,
    "alternative": _alternative,
    "stage": _stage,
}
