"""What several of the tools' command lines have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cleave.errors import CleaveError


def positive(text: str) -> int:
    """A number from 1 on."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        import argparse  # which cleave-opt starts without

        raise argparse.ArgumentTypeError(f"'{text}' is no number from 1 on")
    return int(text)


def chosen(arguments: Sequence[str], known: Iterable[str], what: str, description: str | None) -> list[str]:
    """The names on a command line of nothing else; ends the process for one that is not ``known``, and for help."""
    import argparse

    known = list(known)
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}")
    names: list[str] = parser.parse_args(arguments).names
    for name in names:
        if name not in known:
            parser.error(f"there is no {what} {name}; --help lists them")
    return names


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
