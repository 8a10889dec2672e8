"""Programs in floating point: in f64, and in their declared types, on draws that are meant to hurt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cleave.dialects import ops
from cleave.dialects.graph import Graph, Value
from cleave.search.certificate import FloatCheck
from cleave.search.check_sizes import completed, reduced_symbols, symbols_of
from cleave.search.interpret import Interpreter, Unsupported

SMALL = (5, 3, 7, 4, 6, 9, 2, 8, 11, 10, 13, 12)
MAX_EXTENT = 512  # reduced dims are checked at their own size up to this
MAX_ELEMENTS = 1 << 21
BUDGET = 2.0
# What an error may exceed the budget by, for on few elements errors vary by chance: part of a rounding to the output.
_CHANCE = {"f16": 2.0**-13, "bf16": 2.0**-10, "f32": 2.0**-22, "f64": 2.0**-50}


class FloatDomain:
    """f64 arrays; in the ``declared`` types every result is rounded as its type says."""

    def __init__(self, declared: bool) -> None:
        self.declared = declared

    def constant(self, value: float | int, dtype: str) -> Any:
        import numpy as np

        if ops.is_float(dtype):
            return round_to(np.asarray(value, dtype=np.float64), dtype)
        return np.asarray(value, dtype=bool if dtype == "i1" else np.int64)

    def positions(self, count: int, dtype: str) -> Any:
        import numpy as np

        return np.arange(count)

    def pointwise(self, value: Value, args: Sequence[Any]) -> Any:
        import numpy as np

        if value.op == "cast":
            return args[0].astype(
                np.float64 if ops.is_float(value.dtype) else bool if value.dtype == "i1" else np.int64
            )
        if value.op == "cmp":
            return _COMPARISONS[value.attrs["predicate"]](np)(*args)
        if value.op == "select":
            return np.where(*args)
        if value.dtype == "i1":
            return np.logical_and(*args) if value.op in ("mul", "min") else np.logical_or(*args)
        if value.op == "div" and not ops.is_float(value.dtype):
            return np.trunc(args[0] / args[1]).astype(np.int64)
        return _FUNCTIONS[value.op](np)(*args)

    def reduce(self, kind: str, array: Any, axes: tuple[int, ...], valid: Any, value: Value) -> Any:
        import numpy as np

        neutral: Any
        function: Any
        if value.dtype == "i1":
            neutral, function = (True, np.all) if kind in ("min", "prod") else (False, np.any)
        else:
            neutral, function = {
                "sum": (0, np.sum),
                "prod": (1, np.prod),
                "max": (-np.inf, np.max),
                "min": (np.inf, np.min),
            }[kind]
        if valid is not None:
            array = np.where(valid, array, neutral)
        if kind in ("max", "min") and value.dtype != "i1":
            return function(array, axis=axes, initial=neutral)
        return function(array, axis=axes)

    def rounded(self, array: Any, value: Value, transparent: bool) -> Any:
        return round_to(array, value.dtype) if self.declared and ops.is_float(value.dtype) else array


def round_to(array: Any, dtype: str) -> Any:
    """f64 values rounded to nearest even as the type would hold them."""
    import numpy as np

    if dtype == "f64":
        return array
    single = np.asarray(array, dtype=np.float64).astype(np.float32)
    if dtype == "f32":
        return single.astype(np.float64)
    if dtype == "f16":
        return np.asarray(array, dtype=np.float64).astype(np.float16).astype(np.float64)
    bits = {"bf16": 16, "tf32": 13}.get(dtype)
    if bits is None:
        raise Unsupported(f"'{dtype}' is not rounded here")
    raw = single.view(np.uint32)
    half = np.uint32((1 << (bits - 1)) - 1) + ((raw >> np.uint32(bits)) & np.uint32(1))
    cut = ((raw + half) & np.uint32(0xFFFFFFFF ^ ((1 << bits) - 1))).view(np.float32)
    return np.where(np.isfinite(single), cut, single).astype(np.float64)


def _erf(np: Any) -> Callable[[Any], Any]:
    import math

    return np.vectorize(math.erf, otypes=[float])


_COMPARISONS: Mapping[str, Callable[[Any], Any]] = {
    "lt": lambda np: np.less,
    "le": lambda np: np.less_equal,
    "eq": lambda np: np.equal,
    "ne": lambda np: np.not_equal,
    "gt": lambda np: np.greater,
    "ge": lambda np: np.greater_equal,
}
_FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "neg": lambda np: np.negative,
    "exp": lambda np: np.exp,
    "exp2": lambda np: np.exp2,
    "log": lambda np: np.log,
    "sqrt": lambda np: np.sqrt,
    "rsqrt": lambda np: lambda x: 1.0 / np.sqrt(x),
    "tanh": lambda np: np.tanh,
    "erf": _erf,
    "sigmoid": lambda np: lambda x: 1.0 / (1.0 + np.exp(-x)),
    "abs": lambda np: np.abs,
    "add": lambda np: np.add,
    "sub": lambda np: np.subtract,
    "mul": lambda np: np.multiply,
    "div": lambda np: np.divide,
    "max": lambda np: np.maximum,
    "min": lambda np: np.minimum,
    "pow": lambda np: np.power,
}


@dataclass(frozen=True)
class Draw:
    """A way to fill float inputs. ``masked`` puts -inf into inputs that are only added; ``only``: the one input that is
    filled so, the others being ordinary."""

    name: str
    scale: float = 1.0
    mean: float = 0.0
    spread: float = 0.0  # decades over which magnitudes vary
    masked: bool = False
    only: int | None = None


DRAWS = (
    Draw("ordinary"),
    Draw("large logits", scale=40.0),
    Draw("large mean", scale=1.0, mean=100.0),
    Draw("f16 range", scale=1.0, spread=4.0),
    Draw("masked", masked=True),
)
_FAR = 1e25  # its square leaves f32's range: what divides by a maximum before it squares does so for this
_WIDE = ("f32", "bf16", "f64")


def draws(source: Graph) -> list[Draw]:
    """All draws for a source: those of ``DRAWS``, and each input of wide range very large and very small."""
    wide = [value.attrs["index"] for value in source.inputs if value.dtype in _WIDE]
    sizes = (("large", _FAR), ("small", 1.0 / _FAR))
    return [
        *DRAWS,
        *(Draw(f"input {index} {name}", scale=scale, only=index) for index in wide for name, scale in sizes),
    ]


class FloatChecker:
    """Compares alternatives with one source; the source is evaluated once for each draw."""

    def __init__(self, source: Graph, seed: int, fixed: Mapping[str, int]) -> None:
        """``fixed`` has the symbols whose static extent the normal form relies on."""
        self.source, self.seed = source, seed
        self.sizes = check_sizes(source, fixed)
        self._references: dict[str, tuple[list[Any], list[Any], list[Any]]] = {}

    def check(self, graph: Graph) -> tuple[FloatCheck | None, str]:
        """The result, or None and what is worse than the source's."""
        import numpy as np

        differences, source_error, error, names = 0.0, 0.0, 0.0, []
        with np.errstate(all="ignore"):
            for draw in draws(self.source):
                if draw.masked and not mask_inputs(self.source):
                    continue
                inputs, exact, own = self.reference(draw)
                if not draw.spread and not draw.mean and draw.only is None:
                    mine = self._run(graph, inputs, declared=False)
                    differences = max(differences, *(distance(a, b) for a, b in zip(mine, exact, strict=True)))
                    if differences > 1e-7:
                        return None, f"differs by {differences:.1e} in f64 on the draw '{draw.name}'"
                for a, b, reference, output in zip(
                    self._run(graph, inputs, declared=True), own, exact, graph.outputs, strict=True
                ):
                    finite = np.isfinite(b) & np.isfinite(reference)
                    if draw.only is not None:  # out there, only what the source gets right counts
                        finite &= np.abs(b - reference) <= 0.01 * np.abs(reference)
                    if np.any((finite if draw.only is not None else np.isfinite(b)) & ~np.isfinite(a)):
                        return None, f"not finite where the source is, on the draw '{draw.name}'"
                    theirs, ours = relative(b, reference, finite), relative(a, reference, finite)
                    if ours > BUDGET * theirs + _CHANCE.get(output.dtype, 2.0**-22):
                        return None, f"error {ours:.1e} against the source's {theirs:.1e} on the draw '{draw.name}'"
                    source_error, error = max(source_error, theirs), max(error, ours)
                names.append(draw.name)
        return FloatCheck(dict(self.sizes), tuple(names), differences, source_error, error), ""

    def reference(self, draw: Draw) -> tuple[list[Any], list[Any], list[Any]]:
        """Inputs and what the source makes of them: exactly, and in its types.

        A draw on which the source itself overflows shows nothing about accuracy, so it is taken smaller.
        """
        import numpy as np

        found = self._references.get(draw.name)
        if found is not None:
            return found
        for shrink in (1.0, 0.25, 1 / 16, 1 / 64, 1 / 512):
            smaller = replace(draw, scale=draw.scale * shrink, mean=draw.mean * shrink)
            inputs = draw_inputs(self.source, self.sizes, smaller, self.seed)
            with np.errstate(all="ignore"):
                found = (inputs, self._run(self.source, inputs, False), self._run(self.source, inputs, True))
            if all(np.all(np.isfinite(own) | ~np.isfinite(exact)) for exact, own in zip(*found[1:], strict=True)):
                break
        assert found is not None
        self._references[draw.name] = found
        return found

    def _run(self, graph: Graph, inputs: list[Any], declared: bool) -> list[Any]:
        return Interpreter(FloatDomain(declared), self.sizes).run(graph, inputs)


def relative(a: Any, reference: Any, finite: Any) -> float:
    import numpy as np

    a, reference = np.where(finite, a, 0.0), np.where(finite, reference, 0.0)
    scale = float(np.linalg.norm(reference))
    return float(np.linalg.norm(a - reference)) / scale if scale else float(np.max(np.abs(a), initial=0.0))


def distance(a: Any, b: Any) -> float:
    """Relative difference where both are finite; infinite if they disagree on where that is and b is finite."""
    import numpy as np

    if np.any(np.isfinite(b) & ~np.isfinite(a)):
        return float("inf")
    return relative(a, b, np.isfinite(a) & np.isfinite(b))


def mask_inputs(graph: Graph) -> list[int]:
    """Float inputs that are only ever added to something: what -inf goes into."""
    users = graph.users()
    return [
        value.attrs["index"]
        for value in graph.inputs
        if users[value]
        and ops.is_float(value.dtype)
        and value.dims
        and all(
            user.op == "add" or (user.op == "cast" and all(u.op == "add" for u in users[user])) for user in users[value]
        )
    ]


def check_sizes(graph: Graph, fixed: Mapping[str, int]) -> dict[str, int]:
    """Small sizes; reduced dims have their real extent where it is not too large. Of four parts the last are empty."""
    reduced = reduced_symbols(graph)
    sizes: dict[str, int] = {}
    for number, symbol in enumerate(symbols_of(graph)):
        extent = graph.extents.get(symbol)
        real = extent is not None and symbol in reduced and extent <= MAX_EXTENT
        sizes[symbol] = extent if real and extent is not None else SMALL[number % len(SMALL)]
    return completed(graph, sizes, 4, fixed)


def draw_inputs(graph: Graph, sizes: Mapping[str, int], draw: Draw, seed: int) -> list[Any]:
    """Arrays for the inputs, representable in their types. Integers are small and valid as positions."""
    import numpy as np

    masked = set(mask_inputs(graph)) if draw.masked else set[int]()
    arrays: list[Any] = []
    for number, value in enumerate(graph.inputs):
        random = np.random.default_rng([seed, number, len(draw.name)])
        shape = tuple(dim.size.evaluate(sizes) for dim in value.dims)
        if int(np.prod(shape)) > MAX_ELEMENTS:
            raise Unsupported("an input is too large to check")
        if not ops.is_float(value.dtype):
            array = random.integers(0, 2, size=shape)
            arrays.append(array.astype(bool) if value.dtype == "i1" else array)
            continue
        ordinary = draw.only is not None and number != draw.only
        array = random.standard_normal(shape) * (1.0 if ordinary else draw.scale) + draw.mean
        if draw.spread:
            array = array * 10.0 ** random.uniform(-draw.spread, draw.spread / 2, size=shape)
        if number in masked:
            array = np.where(random.random(shape) < 0.4, -np.inf, array)
        arrays.append(round_to(array, value.dtype))
    return arrays
