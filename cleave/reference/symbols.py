"""The values of size symbols, bound from the shapes of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cleave.dialects.dims import NO_FACTS, Dim, Facts, Size
from cleave.dialects.tensor_type import TensorType
from cleave.errors import CleaveError


class Symbols:
    """Symbols and their values; each remembers the tensor that bound it, for messages."""

    def __init__(self, values: Mapping[str, int] | None = None, facts: Facts = NO_FACTS) -> None:
        self.values: dict[str, int] = dict(values or {})
        self._facts = facts
        self._bound_by = dict.fromkeys(self.values, "the given sizes")

    def bind(self, tensors: Sequence[tuple[str, TensorType, Sequence[int]]]) -> None:
        """Bind what the shapes of ``(name, type, shape)`` say. CleaveError where two tensors disagree."""
        pending = [
            (name, dim, extent) for name, type_, shape in tensors for dim, extent in zip(type_.dims, shape, strict=True)
        ]
        pending.sort(key=lambda entry: len(entry[1].size.symbols))
        while pending:
            left = [entry for entry in pending if not self._bind(*entry)]
            if len(left) == len(pending):
                return
            pending = left

    def _bind(self, name: str, dim: Dim, extent: int) -> bool:
        """Check or learn from one extent; False while more than one symbol is unknown."""
        size = self._facts.simplify(dim.size)
        unknown = size.symbols - self.values.keys()
        if len(unknown) > 1:
            return False
        if unknown:
            (symbol,) = unknown
            value = self._solve(size, symbol, extent, f"dimension '{dim.name}' of {name}")
            if value is None:
                return False
            self.values[symbol], self._bound_by[symbol] = value, name
        elif size.evaluate(self.values) != extent:
            self._refuse(name, dim, size, extent)
        return True

    def _solve(self, size: Size, symbol: str, extent: int, where: str) -> int | None:
        """The one value of ``symbol`` for which ``size`` is ``extent``; None where that needs more than bisection."""

        def value_at(candidate: int) -> int:
            return size.evaluate({**self.values, symbol: candidate})

        try:
            low, high = 0, max(extent, 1)
            if value_at(0) >= value_at(high):
                return None
        except CleaveError:  # a divisor
            return None
        while value_at(high) < extent:
            high *= 2
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if value_at(middle) < extent else (low, middle)
        if value_at(low) != extent:
            raise CleaveError(f"{where} is {extent}, but {size} is that for no {symbol}")
        return low if value_at(low + 1) != extent else None

    def _refuse(self, name: str, dim: Dim, size: Size, extent: int) -> None:
        bound = size.evaluate(self.values)
        makers = {self._bound_by[symbol] for symbol in size.symbols}
        by = " and ".join(sorted(makers)) or "its type"
        raise CleaveError(f"dimension '{dim.name}' is {bound} by {by} and {extent} in {name}")

    def evaluate(self, dim: Dim | Size) -> int:
        """The size's value; CleaveError when a symbol has none."""
        size = dim.size if isinstance(dim, Dim) else dim
        missing = size.symbols - self.values.keys()
        if missing:
            size = self._facts.simplify(size)
            missing = size.symbols - self.values.keys()
        if missing:
            raise CleaveError(f"no input gives size '{min(missing)}' a value", notes=("pass it in sizes",))
        return size.evaluate(self.values)
