"""Whether an alternative of a certificate equals its source: in prime fields, and in f64 by the reference executor.

Nothing of the search is used; what is shared with it are the dialect, its reader and the table of what rounds.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cleave.bindings import MLIRError, context, ir
from cleave.dialects.dims import Dim, parse
from cleave.dialects.graph import Graph
from cleave.dialects.tensor_type import is_float
from cleave.errors import CleaveError
from cleave.passes.graph_io import from_graph, to_graph
from cleave.passes.verify import verify
from cleave.reference import run
from cleave.tools import field_evaluator
from cleave.tools.field_numbers import PRIMES, same

FIELD_DRAWS, ENOUGH, MAX_WORK = 40, 12, 300_000
FLOAT_DRAWS = 3
LAWLESS = frozenset(("log", "exp2", "pow"))  # log(a·b) = log a + log b is true, and false of the fields' hashes
TOLERANCE = 1e-8  # of the largest element: forms that are equal over the reals round differently in f64
_STORAGE = {"f16": "float16", "f32": "float32", "f64": "float64", "i1": "bool", "index": "int64"}


@dataclass(frozen=True)
class Verdict:
    """One check. ``passed`` is None where it cannot judge; ``text`` says what was compared, or what differs."""

    passed: bool | None
    text: str


def read_program(text: str) -> Graph:
    """The one function of a module as a graph. CleaveError for a text that is no such module."""
    ctx = context()
    ctx.attach_diagnostic_handler(lambda diagnostic: True)
    with ctx, ir.Location.unknown():
        try:
            module = ir.Module.parse(text)
        except MLIRError as error:
            raise CleaveError(f"the program does not parse: {error}") from None
        functions = [op.operation for op in module.body.operations]
        if len(functions) != 1 or functions[0].name != "func.func":
            raise CleaveError("the program is not one function")
        problems = verify(module)
        if problems:
            raise CleaveError(f"the program is not valid: {problems[0].message}")
        return to_graph(functions[0])


def check_signature(source: Graph, other: Graph) -> Verdict:
    for kind, mine, its in (("input", source.inputs, other.inputs), ("output", source.outputs, other.outputs)):
        if [value.type for value in mine] != [value.type for value in its]:
            return Verdict(False, f"the {kind}s have other types than the source's")
    if dict(source.extents) != {name: other.extents.get(name) for name in source.extents}:
        return Verdict(False, "a static extent differs")
    return Verdict(True, "the same")


def pinned_extents(source: Graph, facts: Sequence[str]) -> dict[str, int]:
    """Static extents that the proof uses, and those of dims cut at fixed places. CleaveError for one that is none."""
    pinned: dict[str, int] = {}
    for fact in facts:
        name, equals, size = fact.replace(" ", "").partition("=")
        if equals and name.isidentifier() and size.isdecimal():
            if source.extents.get(name) != int(size):
                raise CleaveError(f"the certificate uses {fact}, which the program does not state")
            pinned[name] = int(size)
    for value in source.topological():
        if value.op in ("slice", "concat"):
            symbols = {s for v in (value, *value.operands) for dim in v.dims for s in dim.size.symbols}
            pinned |= {name: source.extents[name] for name in symbols if name in source.extents}
    return pinned


# --- what the certificate says was tested ---------------------------------------------------------------------------

DIFFERENCE, BOUND, BUDGET, FLOOR = 1e-7, 1e-9, 2.0, 2.0**-10


def check_record(data: Mapping[str, Any]) -> Verdict:
    """Whether the fingerprint and the float check that the certificate reports are ones that prove something.

    Its fields are a pair of primes p = 2q + 1 and the error bound is one for points of those; the programs agree in
    f64; in their own types the alternative's error is within the budget. None where it says that a test does not apply.
    """
    try:
        return _record(data.get("fingerprint"), data.get("floats"))
    except (KeyError, TypeError, ValueError) as error:
        return Verdict(False, f"the record of the tests is incomplete: {error!r}")


def _record(fields: Mapping[str, Any] | None, floats: Mapping[str, Any] | None) -> Verdict:
    said: list[str] = []
    if fields is not None and fields["samples"]:
        p, q, samples, bound = int(fields["p"]), int(fields["q"]), int(fields["samples"]), float(fields["error_bound"])
        if p != 2 * q + 1 or not (_is_prime(p) and _is_prime(q)):
            return Verdict(False, "the fingerprint's fields are no pair of primes")
        if not 1 / float(p) ** samples <= bound <= BOUND:
            return Verdict(False, f"the fingerprint's error bound {bound:.1e} is none for {samples} points mod {p}")
        said.append(f"{samples} points mod {p}, seed {int(fields['seed'])}, error bound {bound:.0e}")
    if floats is not None:
        mine, its, difference = (float(floats[key]) for key in ("source_error", "error", "f64_difference"))
        if not difference <= DIFFERENCE:
            return Verdict(False, f"the programs differ by {difference:.1e} in f64")
        if not its <= BUDGET * mine + FLOOR:
            return Verdict(False, f"the error {its:.1e} is beyond twice the source's {mine:.1e}")
        said.append(f"{len(floats['draws'])} draws, error {its:.0e} against {mine:.0e}")
    return Verdict(True if said else None, "; ".join(said) or "no test applied")


def _is_prime(n: int) -> bool:
    """Miller-Rabin; below 3.3e24 these bases decide."""
    d, r = n - 1, 0
    while d % 2 == 0:
        d, r = d // 2, r + 1
    if n < 50 or n % 2 == 0:
        return n in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41):
        x = pow(base, d, n)
        if x not in (1, n - 1) and not any((x := x * x % n) == n - 1 for _ in range(r - 1)):
            return False
    return True


# --- sizes ------------------------------------------------------------------------------------------------------------


def symbols_of(*graphs: Graph) -> list[str]:
    return sorted({s for g in graphs for v in g.topological() for dim in v.dims for s in dim.size.symbols})


def draw_sizes(
    source: Graph, other: Graph, facts: Sequence[str], pinned: Mapping[str, int], rng: random.Random, largest: int
) -> dict[str, int]:
    """Random small sizes that the facts allow, of splits in several parts that do not divide where there are any."""
    found: list[dict[str, int]] = []
    least = {name: 1 if f"1 <= {name}" in facts else 2 for name in symbols_of(source, other)}
    for _ in range(200):
        sizes = {name: rng.randint(low, largest) for name, low in least.items()} | dict(pinned)
        if all(_holds(fact, sizes) for fact in facts):
            found.append(sizes)
            if _uneven(other, sizes) == 1:
                break
    if not found:
        raise CleaveError(f"no sizes up to {largest} satisfy the facts: {', '.join(facts)}")
    return max(reversed(found), key=lambda sizes: _uneven(other, sizes))


def _holds(fact: str, sizes: Mapping[str, int]) -> bool:
    left, relation, right = re.split(r"(<=|<|=)", fact, maxsplit=1)
    if relation == "=" and left.strip().isidentifier() and left.strip() not in sizes:
        return True  # a definition, substituted everywhere
    a, b = (parse(side).evaluate(sizes) for side in (left, right))
    return a <= b if relation == "<=" else a < b if relation == "<" else a == b


def _uneven(graph: Graph, sizes: Mapping[str, int]) -> float:
    """How much of this holds of the splits: several parts have elements, and (half as much) the last one not all."""
    splits = [v for v in graph.topological() if v.op == "split" and "ceildiv" in str(v.attrs["into"])]
    held: list[float] = []
    for split in splits:
        parts, length = (Dim.parse(text).size.evaluate(sizes) for text in split.attrs["into"])
        whole = split.operands[0].size(split.attrs["dim"]).evaluate(sizes)
        held.append((2 * (length < whole) + (parts * length > whole)) / 3)
    return sum(held) / len(held) if held else 1


def work(graph: Graph, sizes: Mapping[str, int]) -> int:
    """Elements that evaluation computes."""
    total = 0
    for value in graph.topological():
        dims = {dim.name: dim.size.evaluate(sizes) for v in (value, *value.operands) for dim in v.dims}
        total += int(np.prod(list(dims.values()), dtype=np.int64))
    return total


def show_sizes(sizes: Mapping[str, int]) -> str:
    return " ".join(f"{name}={size}" for name, size in sizes.items())


# --- prime fields -----------------------------------------------------------------------------------------------------


def check_fields(source: Graph, other: Graph, facts: Sequence[str], pinned: Mapping[str, int], seed: int) -> Verdict:
    """Both programs at random points, at several sizes, until enough elements are known on both sides."""
    compared, used = 0, dict[str, int]()
    for attempt in range(FIELD_DRAWS):
        rng = random.Random(f"{seed} {attempt}")
        sizes = draw_sizes(source, other, facts, pinned, rng, 2 if attempt % 2 else 3)
        if work(source, sizes) + work(other, sizes) > MAX_WORK:
            continue
        inputs = field_evaluator.draw(source, sizes, rng)
        try:
            expected, actual = (field_evaluator.evaluate(graph, inputs, sizes) for graph in (source, other))
        except (CleaveError, IndexError) as error:
            return Verdict(None, f"cannot judge: {getattr(error, 'message', error)}")
        for number, (mine, its) in enumerate(zip(expected, actual, strict=True)):
            equal = [same(a, b) for a, b in zip(mine.ravel(), its.ravel(), strict=True)]
            if False in equal:
                return _difference_in_fields(source, other, number, sizes)
            compared += len(equal) - equal.count(None)
        used = sizes if compared else used
        if compared >= ENOUGH and attempt >= 2:
            break
    if not compared:
        return Verdict(None, "cannot judge: no element is known on both sides (roots, nested exponentials, or size)")
    return Verdict(True, f"{compared} elements mod {PRIMES[0]} and below, last at {show_sizes(used)}")


def _difference_in_fields(source: Graph, other: Graph, number: int, sizes: Mapping[str, int]) -> Verdict:
    """A failure, unless an op stands in the way of which the fields know too little: f64 decides then."""
    lawless = sorted({v.op for graph in (source, other) for v in graph.topological()} & LAWLESS)
    if lawless:
        return Verdict(None, f"cannot judge: output {number} differs, but {', '.join(lawless)} has no laws there")
    return Verdict(False, f"output {number} differs at {show_sizes(sizes)}")


# --- f64 --------------------------------------------------------------------------------------------------------------


def check_floats(source: Graph, other: Graph, facts: Sequence[str], pinned: Mapping[str, int], seed: int) -> Verdict:
    """Both programs by the reference executor in f64, casts between floats being the identity."""
    worst, used = 0.0, list[str]()
    for attempt in range(FLOAT_DRAWS):
        rng = random.Random(f"{seed} f64 {attempt}")
        sizes = draw_sizes(source, other, facts, pinned, rng, 7)
        inputs = _draw_floats(source, sizes, np.random.default_rng(rng.getrandbits(32)), 10.0 ** (attempt - 1))
        expected, actual = (_execute(graph, inputs, sizes) for graph in (source, other))
        for number, (mine, its) in enumerate(zip(expected, actual, strict=True)):
            difference = _difference(mine, its)
            if difference > TOLERANCE:
                return Verdict(False, f"output {number} differs by {difference:.1e} at {show_sizes(sizes)}")
            worst = max(worst, difference)
        used.append(show_sizes(sizes))
    return Verdict(True, f"{worst:.0e} at most, last at {used[-1]}")


def _difference(expected: Any, actual: Any) -> float:
    """The largest difference beside the largest element; infinite where one is NaN or infinite and the other is not."""
    if expected.shape != actual.shape:
        return float("inf")
    a, b = expected.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    largest = np.abs(a[finite]).max(initial=0.0)
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0) / (largest or 1.0))


def _execute(graph: Graph, inputs: list[Any], sizes: Mapping[str, int]) -> list[Any]:
    with context(), ir.Location.unknown():
        module = ir.Module.create()
        from_graph(replace(graph, extents={}), module)
        return run(module, graph.name, inputs, precision="f64", sizes=sizes)


def _draw_floats(graph: Graph, sizes: Mapping[str, int], rng: np.random.Generator, scale: float) -> list[Any]:
    arrays: list[Any] = []
    for value in graph.inputs:
        shape = [dim.size.evaluate(sizes) for dim in value.dims]
        if is_float(value.dtype):
            arrays.append(rng.standard_normal(shape) * scale)
        else:
            arrays.append(rng.integers(0, 2, shape).astype(_STORAGE.get(value.dtype, value.dtype.replace("i", "int"))))
    return arrays
