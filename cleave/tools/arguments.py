"""What several of the tools' command lines have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cleave.errors import CleaveError


def positive(text: str) -> int:
    """A number from 1 on."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        import argparse  # which cleave-opt starts without

        raise argparse.ArgumentTypeError(f"'{text}' is no number from 1 on")
    return int(text)


def input_of(tool: str, arguments: Sequence[str], flag: Callable[[str, list[str]], None]) -> str:
    """The one input file, ``-`` if none is named; ``flag`` takes each flag, and its value from the words behind it."""
    inputs: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument == "--":
            inputs += rest
            break
        if argument == "-" or not argument.startswith("-"):
            inputs.append(argument)
        else:
            flag(argument, rest)
    if len(inputs) > 1:
        raise CleaveError(f"more than one input: {', '.join(inputs)}", tool)
    return inputs[0] if inputs else "-"
