"""Which element type a contraction's operand gets (docs/architecture.md, casts).

The source decides: what it feeds to tensor cores in a narrow type may be fed so again. A value that the source never
had in that type gets it only if it is range safe; else ``tf32``, which rounds alike and has the range of f32. An
operand with a factor that the source contracts in f32 stays f32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy

from cleave.dialects.graph import Graph, Value
from cleave.search.terms import Atom, Mono, Number, Poly, parts

Signature = tuple[object, ...]
Terms = Iterable[tuple[Mono, Number]]
"""Of a sum."""
_NARROW = ("f16", "bf16", "tf32")


class Feeds:
    """The source's contraction operands: by normal form, and by the factors in them."""

    def __init__(self, graph: Graph, forms: Mapping[Value, Poly]) -> None:
        self.exact: dict[Poly, str] = {}
        self.factors: dict[Signature, str] = {}
        contractions = (value for value in graph.topological() if value.op == "contract")
        for operand in (operand for contraction in contractions for operand in contraction.operands):
            form = forms[operand]
            self.exact[form] = wider(self.exact.get(form, operand.dtype), operand.dtype)
            for signature in _fed(form):
                self.factors[signature] = wider(self.factors.get(signature, operand.dtype), operand.dtype)

    def in_parts(self, part: Callable[[Poly], Poly]) -> Feeds:
        """With the parts of the operands where a dim is cut: the source rounds each element of them alike."""
        extended = copy(self)
        extended.exact = dict(self.exact)
        for poly, kind in self.exact.items():
            found = part(poly)
            extended.exact[found] = wider(extended.exact.get(found, kind), kind)
        return extended

    def narrow(self, poly: Poly) -> str | None:
        """The narrow type in which the source feeds all factors of the value, if there is one."""
        if poly in self.exact:
            return self.exact[poly] if self.exact[poly] in _NARROW else None
        found = [self.factors.get(signature, "f32") for signature in _fed(poly)]
        kinds = dict.fromkeys(found)
        if not found or any(kind not in _NARROW for kind in kinds):
            return None
        return found[0] if len(kinds) == 1 else "tf32"


def wider(a: str, b: str) -> str:
    """Of two operand types the one that loses less; two different narrow ones make tf32."""
    if a == b:
        return a
    for kind in ("f64", "f32"):
        if kind in (a, b):
            return kind
    return "tf32"


def signatures(terms: Terms) -> list[Signature]:
    """What the factors are, whatever the names of their dims."""
    return list(dict.fromkeys(s for mono, _ in terms for atom, _ in mono for s in signatures_of_atom(atom)))


def signatures_of_atom(atom: Atom) -> Iterable[Signature]:
    """The factors of an atom; a sum's are those of what it sums."""
    if atom.kind in ("sum", "poly"):
        return [signature for part in parts(atom) for signature in signatures(part)]
    return _own(atom)


def _own(atom: Atom) -> list[Signature]:
    kind, data = atom.kind, atom.data
    if kind in ("prime", "size"):
        return []
    if kind == "leaf":
        return [("leaf", data[0])]
    name = data[0] if kind == "fn" else ""
    return [(kind, name, *sorted(_leaves(atom)))]


def _fed(terms: Terms) -> list[Signature]:
    """As ``signatures``, with exponentials that are multiplied as one factor.

    Those of the summands of a logit and that of its maximum, which divides by the largest of them and cancels in a
    ratio, have the range of none of them alone.
    """
    found: dict[Signature, None] = {}
    for mono, _ in terms:
        exponents = {leaf for atom, _ in mono if atom.kind == "exp" for leaf in _leaves(atom)}
        if exponents:
            found["exp", "", *sorted(exponents)] = None
        for atom, _ in mono:
            if atom.kind in ("sum", "poly"):
                found |= dict.fromkeys(signature for part in parts(atom) for signature in _fed(part))
            elif atom.kind != "exp":
                found |= dict.fromkeys(_own(atom))
    return list(found)


def _leaves(atom: Atom) -> set[int]:
    if atom.kind == "leaf":
        return {atom.data[0]}
    return {leaf for part in parts(atom) for mono, _ in part for a, _ in mono for leaf in _leaves(a)}
