"""Options of passes: from the text ``keep=4 explain``, or from Python values, to the fields of a pass's dataclass.

A field's type is its option's type: ``bool``, ``int``, ``float``, ``str``, a ``Literal`` of texts, any of these or
None, or ``tuple[T, ...]`` of one of them, written with commas.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cleave.dialects.given_sizes import LARGEST_EXTENT, too_large
from cleave.errors import CleaveError, Position


@dataclass(frozen=True)
class OptionText:
    """One option as written; ``value`` is None for a bare name; ``offset`` counts from the start of the text."""

    name: str
    value: str | None
    offset: int


def from_text(cls: type[Any], pass_name: str, text: str, place: Callable[[int], Position | None]) -> Any:
    """An instance of the pass with the options in ``text``; ``place`` maps an offset in the text to a position.

    CleaveError, located, for an option that is unknown, given twice, or not of its type.
    """
    values: dict[str, Any] = {}
    for option in split(text):
        key = option.name.replace("-", "_")
        try:
            if key in values:
                raise CleaveError(f"option '{option.name}' of {pass_name} is given twice")
            values[key] = _parse(_type_of(cls, pass_name, option.name), option.value, pass_name, option.name)
        except CleaveError as error:
            raise CleaveError(error.message, place(option.offset), error.notes) from None
    try:
        return _construct(cls, pass_name, values)
    except CleaveError as error:
        raise CleaveError(error.message, place(0), error.notes) from None


def from_values(cls: type[Any], pass_name: str, values: Mapping[str, Any]) -> Any:
    """An instance of the pass with the given options; CleaveError for one that is unknown or not of its type."""
    for key, value in values.items():
        wanted = _type_of(cls, pass_name, key)
        if not _fits(wanted, value):
            raise CleaveError(f"option '{key}' of {pass_name} must be {describe(wanted)}, not {value!r}")
    return _construct(cls, pass_name, dict(values))


def _construct(cls: type[Any], pass_name: str, values: dict[str, Any]) -> Any:
    """What a pass requires beyond types its ``__post_init__`` checks, by ValueError or CleaveError."""
    try:
        return cls(**values)
    except ValueError as error:
        raise CleaveError(f"{pass_name}: {error}") from None
    except CleaveError as error:
        raise CleaveError(f"{pass_name}: {error.message}", error.location, error.notes) from None
    except TypeError:
        missing = [field.name for field in dataclasses.fields(cls) if _required(field) and field.name not in values]
        raise CleaveError(f"{pass_name} needs the option '{missing[0]}'", notes=(_listing(cls),)) from None


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


# --- what a pass's options are ---------------------------------------------------------------------------------------


def option_types(cls: type[Any]) -> dict[str, Any]:
    """Name and type of each option of the pass."""
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}


def option_lines(cls: type[Any]) -> list[str]:
    """One line for each option: its name, its type and its default."""
    kinds = option_types(cls)
    lines: list[str] = []
    for field in dataclasses.fields(cls):
        if field.init:
            default = "" if field.default is dataclasses.MISSING else f" (default {_show(field.default)})"
            lines.append(f"{field.name}={describe(kinds[field.name])}{default}")
    return lines


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(_show, typing.cast("tuple[Any, ...]", value))) or "empty"
    return "none" if value is None else str(value) or '""'


def describe(kind: Any) -> str:
    """The type in words that a user reads in a message."""
    if typing.get_origin(kind) is Literal:
        return " or ".join(map(str, typing.get_args(kind)))
    if typing.get_origin(kind) is tuple:
        return f"{describe(typing.get_args(kind)[0])},…"
    if _is_union(kind):
        return " or ".join(describe(arm) for arm in typing.get_args(kind) if arm is not types.NoneType)
    return {bool: "true or false", int: "an integer", float: "a finite number", str: "a text"}.get(kind, str(kind))


def _type_of(cls: type[Any], pass_name: str, option: str) -> Any:
    kinds = option_types(cls)
    key = option.replace("-", "_")
    if key in kinds:
        return kinds[key]
    near = difflib.get_close_matches(key, kinds, 1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    raise CleaveError(f"{pass_name} has no option '{option}'{hint}", notes=(_listing(cls),))


def _listing(cls: type[Any]) -> str:
    lines = option_lines(cls)
    return f"its options: {'; '.join(lines)}" if lines else "it has no options"


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in (typing.Union, types.UnionType)


# --- values ----------------------------------------------------------------------------------------------------------

_BOOLEANS = {"true": True, "1": True, "on": True, "false": False, "0": False, "off": False}


def _parse(kind: Any, text: str | None, pass_name: str, option: str) -> Any:
    try:
        return _value(kind, text)
    except ValueError:
        given = "nothing" if text is None else f"'{text}'"
        raise CleaveError(f"option '{option}' of {pass_name} must be {describe(kind)}, not {given}") from None


def _value(kind: Any, text: str | None) -> Any:
    """``text`` as a value of the type; ValueError if it is none. A bare name is ``true``."""
    if _is_union(kind):
        return _first_value([arm for arm in typing.get_args(kind) if arm is not types.NoneType], text)
    if kind is bool:
        return _lookup(_BOOLEANS, "true" if text is None else text.lower())
    if text is None:
        raise ValueError
    if typing.get_origin(kind) is Literal:
        return _lookup({str(choice): choice for choice in typing.get_args(kind)}, text)
    if typing.get_origin(kind) is tuple:
        return tuple(_value(typing.get_args(kind)[0], part.strip()) for part in text.split(",") if part.strip())
    value = kind(text)
    if kind is float and not math.isfinite(value):
        raise ValueError
    return value


def _first_value(kinds: list[Any], text: str | None) -> Any:
    for kind in kinds[:-1]:
        try:
            return _value(kind, text)
        except ValueError:
            continue
    return _value(kinds[-1], text)


def _lookup(table: Mapping[str, Any], text: str) -> Any:
    if text not in table:
        raise ValueError
    return table[text]


def _fits(kind: Any, value: Any) -> bool:
    if _is_union(kind):
        return any(value is None if arm is types.NoneType else _fits(arm, value) for arm in typing.get_args(kind))
    if typing.get_origin(kind) is Literal:
        return value in typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        element = typing.get_args(kind)[0]
        return isinstance(value, tuple) and all(_fits(element, part) for part in typing.cast("tuple[Any]", value))
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


# --- text ------------------------------------------------------------------------------------------------------------


def split(text: str) -> Iterator[OptionText]:
    """The options in ``text``, which blanks separate; quotes and brackets hold a value together."""
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        end = _end_of_option(text, at)
        name, equals, value = text[at:end].partition("=")
        yield OptionText(name, _unquoted(value) if equals else None, at)
        at = end


def _end_of_option(text: str, start: int) -> int:
    depth, quote = 0, ""
    for at in range(start, len(text)):
        char = text[at]
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "{[(":
            depth += 1
        elif char in "}])":
            depth -= 1
        elif char.isspace() and depth <= 0:
            return at
    return len(text)


def _unquoted(value: str) -> str:
    for left, right in ('""', "''", "{}"):
        if len(value) >= 2 and value[0] == left and value[-1] == right:
            return value[1:-1]
    return value


def parse_sizes(text: str) -> dict[str, int]:
    """``"m=128,n=4096"`` as a dict; CleaveError where it is none."""
    sizes: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        name, _, size = (word.strip() for word in part.partition("="))
        if not name.isidentifier() or not (size.isascii() and size.isdigit()):
            raise CleaveError(f"'{part}' is no size", notes=("write sizes as in m=128,n=4096",))
        if len(size.lstrip("0")) > len(str(LARGEST_EXTENT)) or int(size) > LARGEST_EXTENT:
            raise too_large(name, size)
        if sizes.setdefault(name, int(size)) != int(size):
            raise CleaveError(f"'{name}' is given twice")
    return sizes
