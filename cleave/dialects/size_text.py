"""Text of sizes: `parse` and `render`. ``parse(render(x)) is x``."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple, NoReturn, TypeVar

from cleave.dialects.size import (
    FUNCTIONS,
    MAX_LENGTH,
    Atom,
    Size,
    const,
    divide_monomials,
    from_atom,
    from_terms,
    multiply,
    multiply_monomials,
    sym,
)
from cleave.dialects.size_rules import apply, floordiv
from cleave.errors import CleaveError

_MAX_NESTING = 64  # parentheses and calls in a text
_MAX_DIGITS = 38  # within MAX_COEFFICIENT
_TOKEN = re.compile(r"(?P<space>[ \t\r\n]+)|(?P<integer>[0-9]+)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<mark>[-+*/(),])")
_WINDOW = 72  # characters of a long text that an error shows
_T = TypeVar("_T")


class _Token(NamedTuple):
    kind: str  # integer, name, mark or end
    text: str
    start: int


@lru_cache(maxsize=1 << 12)
def parse(text: str) -> Size:
    """The size a text means: + - * / ( ), integers, names, and floordiv, mod, ceildiv, min, max.

    ``a/b`` is floordiv(a, b): the writer promises that b divides a. CleaveError with a caret for anything else.
    """
    return _Parser(text).whole()


def syntax_error(text: str, start: int, problem: str) -> CleaveError:
    """``problem`` at the given place (counted from 0) of a text, with the text and a caret below it."""
    first = max(0, min(start - _WINDOW // 2, len(text) - _WINDOW))
    shown = re.sub(r"\s", " ", text[first : first + _WINDOW])
    left, right = "..." if first else "", "..." if first + _WINDOW < len(text) else ""
    caret = " " * (len(left) + start - first) + "^"
    return CleaveError(f"cannot read the size: {problem} at column {start + 1}\n  {left}{shown}{right}\n  {caret}")


class _Parser:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.nesting = 0
        if len(text) > MAX_LENGTH:
            raise syntax_error(text, MAX_LENGTH, f"it has {len(text)} characters, more than the {MAX_LENGTH} allowed,")
        self.tokens = self._scan()
        self.next = 0

    def _scan(self) -> list[_Token]:
        tokens: list[_Token] = []
        position = 0
        while position < len(self.text):
            match = _TOKEN.match(self.text, position)
            if match is None:
                raise syntax_error(self.text, position, f"unexpected character {self.text[position]!r}")
            if match.lastgroup != "space":
                tokens.append(_Token(match.lastgroup or "", match.group(), position))
            position = match.end()
        return [*tokens, _Token("end", "the end", len(self.text))]

    def _fail(self, token: _Token, problem: str) -> NoReturn:
        raise syntax_error(self.text, token.start, problem)

    def _take(self, *marks: str) -> _Token | None:
        token = self.tokens[self.next]
        if token.kind != "mark" or token.text not in marks:
            return None
        self.next += 1
        return token

    def _expect(self, mark: str, purpose: str) -> None:
        if self._take(mark) is None:
            token = self.tokens[self.next]
            self._fail(token, f"expected {mark!r} {purpose}, found {_quote(token)}")

    def whole(self) -> Size:
        size = self._sum()
        token = self.tokens[self.next]
        if token.kind != "end":
            self._fail(token, f"expected an operator, found {_quote(token)}")
        return size

    def _sum(self) -> Size:
        total = self._product()
        while token := self._take("+", "-"):
            total = self._build(token, total.__add__ if token.text == "+" else total.__sub__, self._product())
        return total

    def _product(self) -> Size:
        total = self._factor()
        while token := self._take("*", "/"):
            total = self._build(token, partial(multiply if token.text == "*" else floordiv, total), self._factor())
        return total

    def _build(self, token: _Token, make: Callable[[_T], Size], argument: _T) -> Size:
        """make(argument), with its complaint pointing at the token."""
        try:
            return make(argument)
        except CleaveError as error:
            raise syntax_error(self.text, token.start, error.message) from None

    def _factor(self) -> Size:
        negative = False
        while sign := self._take("-", "+"):
            negative ^= sign.text == "-"
        size = self._primary()
        return -size if negative else size

    def _primary(self) -> Size:
        token = self.tokens[self.next]
        self.next += 1
        if token.kind == "integer":
            return self._integer(token)
        if token.kind == "name":
            return self._call(token) if token.text in FUNCTIONS else self._build(token, sym, token.text)
        if token.text == "(":
            return self._nested(token, self._group)
        return self._fail(token, f"expected a number, a name or '(', found {_quote(token)}")

    def _nested(self, token: _Token, read: Callable[[], Size]) -> Size:
        self.nesting += 1
        if self.nesting > _MAX_NESTING:
            self._fail(token, f"nested more than {_MAX_NESTING} deep")
        size = read()
        self.nesting -= 1
        return size

    def _group(self) -> Size:
        size = self._sum()
        self._expect(")", "to close the group")
        return size

    def _integer(self, token: _Token) -> Size:
        if len(token.text) > _MAX_DIGITS:
            self._fail(token, f"an integer of {len(token.text)} digits; at most {_MAX_DIGITS} are allowed")
        return const(int(token.text))

    def _call(self, name: _Token) -> Size:
        return self._nested(name, partial(self._arguments, name))

    def _arguments(self, name: _Token) -> Size:
        self._expect("(", f"after {name.text}")
        args = [self._sum()]
        while self._take(","):
            args.append(self._sum())
        self._expect(")", f"to close {name.text}(...)")
        if len(args) != 2 and (name.text not in ("min", "max") or len(args) < 2):
            least = "at least two" if name.text in ("min", "max") else "two"
            self._fail(name, f"{name.text} takes {least} arguments, not {len(args)},")
        return self._build(name, partial(apply, name.text), tuple(args))


def _quote(token: _Token) -> str:
    return "the end" if token.kind == "end" else repr(token.text)


def render(size: Size) -> str:
    """The canonical text: terms by falling degree, a product per term, remainders written as mod."""
    remainders: list[str] = []
    while (found := _find_remainder(size)) is not None:
        text, size = found
        remainders.append(text)
    terms = [_term([atom.text for atom in monomial], coefficient) for monomial, coefficient in size.terms]
    at = len(terms) - (1 if size.constant_term else 0)
    return _join(terms[:at] + remainders + terms[at:])


def _join(terms: list[str]) -> str:
    if not terms:
        return "0"
    first = next((index for index, term in enumerate(terms) if not term.startswith("-")), 0)
    terms = [terms[first], *terms[:first], *terms[first + 1 :]]
    signed = "".join(f" - {term[1:]}" if term.startswith("-") else f" + {term}" for term in terms)
    return signed[3:] if signed.startswith(" + ") else "-" + signed[3:]


def _term(factors: list[str], coefficient: int) -> str:
    product = "*".join(factors)
    if not product:
        return str(coefficient)
    if coefficient in (1, -1):
        return product if coefficient == 1 else f"-{product}"
    return f"{coefficient}*{product}"


def _find_remainder(size: Size) -> tuple[str, Size] | None:
    """(text, rest) with size = k*mod(a, b) + rest, for a quotient of a and b in the size, if that is shorter."""
    for monomial, coefficient in size.terms:
        for atom in dict.fromkeys(monomial):
            if atom.kind not in ("floordiv", "ceildiv"):
                continue
            divisor = atom.args[1]
            lead, c = divisor.terms[0]
            cofactor = divide_monomials(monomial, multiply_monomials((atom,), lead))
            if cofactor is None or coefficient % c:
                continue
            try:
                numerator, remainder = _remainder(atom)
                rest = size + remainder * from_terms((cofactor, coefficient // c))
            except CleaveError:  # too large
                continue
            if len(rest.terms) + 1 < len(size.terms):
                factors = [*(factor.text for factor in cofactor), f"mod({numerator}, {divisor})"]
                return _term(factors, -coefficient // c), rest
    return None


def _remainder(atom: Atom) -> tuple[Size, Size]:
    """(a, mod(a, b)) for the quotient of a and b. (ceildiv(x, b) is the quotient of x + b - 1.)"""
    numerator, divisor = atom.args
    quotient = from_atom(atom)
    if atom.kind == "ceildiv" and divisor.value is None:  # the quotient of x - 1, plus 1
        return numerator - 1, numerator - 1 - divisor * (quotient - 1)
    if atom.kind == "ceildiv":
        numerator = numerator + divisor - 1
    return numerator, numerator - divisor * quotient
