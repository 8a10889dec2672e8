"""The states of a cascaded sum: the sum itself and its derivatives by what its body is a polynomial in.

If P(q; x) is a polynomial in q, F = Σ P and its derivatives Fⁱ = Σ ∂ⁱP/∂qⁱ at one q give F at any other by Taylor's
formula, exactly. Of variance, Σ(x − μ)², they are −2Σ(x − μ) and 2n: Chan's and Welford's recurrence.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

from cleave.dialects import ops
from cleave.dialects.dims import Dim
from cleave.dialects.graph import Value
from cleave.dialects.tensor_type import TensorType
from cleave.schedule.monoid import accumulator_of
from cleave.schedule.separability import ANY, Body, Form

Order = tuple[int, ...]
"""How often a state is derived by each value of ``State.shifts``."""


@dataclass(frozen=True)
class State:
    """What a loop carries for one reduction. ``derivatives``: reductions without the factors of ``form.powers``, of
    orders above zero; those that are zero are left out."""

    reduction: Value
    form: Form = ANY
    derivatives: Mapping[Order, Value] = field(default_factory=dict[Order, Value])

    @property
    def shifts(self) -> tuple[Value, ...]:
        return tuple(self.form.degrees)

    @property
    def reductions(self) -> tuple[Value, ...]:
        return (self.reduction, *self.derivatives.values())

    @property
    def centres(self) -> tuple[Value, ...]:
        """The values at whose estimates the state is kept."""
        return (*self.form.powers, *self.form.degrees)


def state_of(reduction: Value, body: Body, upstream: dict[Value, frozenset[Value]]) -> State | None:
    """The state of a reduction in a loop with these running values; None if its body does not separate.

    New values are entered in ``upstream``.
    """
    form = body.form(reduction)
    if form is None:
        return None
    dtype = accumulator_of(reduction)
    derived = _Derivatives(body, form, upstream, dtype).all_of(reduction) if form.degrees else {}
    return None if derived is None else State(reduction, form, derived)


class _Derivatives:
    def __init__(self, body: Body, form: Form, upstream: dict[Value, frozenset[Value]], dtype: str) -> None:
        self.body, self.form, self.upstream, self.dtype = body, form, upstream, dtype
        self._new: set[Value] = set()
        self._constants: dict[float, Value] = {}

    def all_of(self, reduction: Value) -> dict[Order, Value] | None:
        """The derivatives of all orders; None if one is no single reduction."""
        start = tuple(self._stripped(operand) for operand in reduction.operands)
        found: dict[Order, tuple[Value, ...]] = {tuple(0 for _ in self.form.degrees): start}
        for order in sorted(itertools.product(*(range(d + 1) for d in self.form.degrees.values())), key=sum):
            by = next((i for i, count in enumerate(order) if count), None)
            if by is None:
                continue
            lower = (*order[:by], order[by] - 1, *order[by + 1 :])
            parts = self._of_product(found[lower], list(self.form.degrees)[by]) if lower in found else []
            if len(parts) > 1:
                return None
            if parts:
                found[order] = parts[0]
        return {order: self._reduction(reduction, operands) for order, operands in found.items() if any(order)}

    def _of_product(self, operands: tuple[Value, ...], q: Value) -> list[tuple[Value, ...]]:
        """The derivative of a product, as a sum of products."""
        found: list[tuple[Value, ...]] = []
        for index, operand in enumerate(operands):
            derived = self._of(operand, q)
            if derived is not None:
                found.append((*operands[:index], derived, *operands[index + 1 :]))
        return found

    def _reduction(self, source: Value, operands: tuple[Value, ...]) -> Value:
        """A reduction as ``source``, accumulated and kept in full width, of other operands."""
        if source.op == "contract":
            operands = tuple(
                self._fed(operand, of, other)
                for operand, of, other in zip(operands, source.operands, reversed(operands), strict=True)
            )
        sizes: dict[str, Dim] = {dim.name: dim for operand in operands for dim in operand.dims}
        dims = tuple(dim for name, dim in sizes.items() if name not in source.attrs["over"])
        return self._made(source.op, operands, TensorType(dims, self.dtype), source.attrs)

    def _fed(self, operand: Value, source: Value, other: Value) -> Value:
        """An operand of a contraction: in the source's narrow type if the tensor cores are to have it."""
        if source.dtype in ("f32", "f64") or operand.dtype != "f32" or set(operand.names) <= set(other.names):
            return operand
        narrow = source.dtype if source.dtype == "bf16" else "tf32"
        return self._made("cast", (operand,), TensorType(operand.dims, narrow), {})

    # --- values ---

    def _stripped(self, value: Value) -> Value:
        """The value without the factors of ``form.powers``."""
        if value in self.form.powers:
            return self._constant(1.0)
        if self.body.is_coefficient(value) or self.upstream[value].isdisjoint(self.form.powers):
            return value
        operands = [self._stripped(operand) for operand in value.operands]
        return self._reduction(value, tuple(operands)) if value.op in ops.REDUCTIONS else self._op(value, operands)

    def _of(self, value: Value, q: Value) -> Value | None:
        """The derivative of a stripped value; None: zero."""
        if value is q:
            return self._constant(1.0)
        if q not in self.upstream[value] or self._is_other_coefficient(value) or value.op in ("exp", "exp2"):
            return None
        if value.op in ops.REDUCTIONS:
            parts = [self._reduction(value, operands) for operands in self._of_product(value.operands, q)]
            return self._total(parts)
        if value.op == "mul" and value.operands[0] is value.operands[1]:
            derived = self._of(value.operands[0], q)
            return (
                None if derived is None else self._times(self._times(self._constant(2.0), derived), value.operands[0])
            )
        if value.op == "mul":
            return self._total([self._times(*pair) for pair in self._of_product(value.operands, q)])
        derived = [self._of(operand, q) for operand in value.operands]
        if value.op == "div":
            return None if derived[0] is None else self._op(value, [derived[0], value.operands[1]])
        if value.op in ("add", "sub"):
            return self._difference(derived[0], derived[1], value.op)
        if value.op == "select":
            return self._chosen(value, derived[1], derived[2])
        return None if derived[0] is None else self._op(value, [derived[0]])  # neg, cast

    def _is_other_coefficient(self, value: Value) -> bool:
        return value not in self._new and self.body.is_coefficient(value)

    def _chosen(self, source: Value, a: Value | None, b: Value | None) -> Value | None:
        zero = self._constant(0.0)
        return None if a is None and b is None else self._op(source, [source.operands[0], a or zero, b or zero])

    def _difference(self, a: Value | None, b: Value | None, op: str) -> Value | None:
        if a is None or b is None:
            negated = b is not None and op == "sub"
            return self._times(self._constant(-1.0), b) if b is not None and negated else a or b
        return self._total([a, b if op == "add" else self._times(self._constant(-1.0), b)])

    def _op(self, source: Value, operands: list[Value]) -> Value:
        """The op of ``source`` on other operands, in full width."""
        if source.op == "cast":
            return operands[0]
        if source.op == "mul":
            return self._times(*operands)
        if source.op == "div" and _constant_of(operands[1]) == 1:
            return operands[0]
        numbers = source.op != "select"
        wide = [self._widened(v) if numbers or i else v for i, v in enumerate(operands)]
        return self._made(
            source.op, tuple(wide), ops.infer(source.op, [v.type for v in wide], source.attrs), source.attrs
        )

    def _times(self, a: Value, b: Value) -> Value:
        x, y = _constant_of(a), _constant_of(b)
        if x == 1 or y == 1:
            return b if x == 1 else a
        if x is not None and y is not None:
            return self._constant(x * y)
        return self._pointwise("mul", a, b)

    def _total(self, parts: list[Value]) -> Value | None:
        if len(parts) < 2:
            return parts[0] if parts else None
        x, y = (_constant_of(part) for part in parts)
        return self._constant(x + y) if x is not None and y is not None else self._pointwise("add", *parts)

    def _pointwise(self, op: str, *operands: Value) -> Value:
        wide = tuple(self._widened(operand) for operand in operands)
        return self._made(op, wide, ops.infer(op, [v.type for v in wide], {}), {})

    def _widened(self, value: Value) -> Value:
        if value.dtype == self.dtype:
            return value
        return self._made("cast", (value,), TensorType(value.dims, self.dtype), {})

    def _constant(self, number: float) -> Value:
        if number not in self._constants:
            self._constants[number] = self._made("constant", (), TensorType((), self.dtype), {"value": number})
        return self._constants[number]

    def _made(self, op: str, operands: tuple[Value, ...], type_: TensorType, attrs: Mapping[str, object]) -> Value:
        value = Value(op, operands, type_, attrs)
        self._new.add(value)
        self.upstream[value] = frozenset(operands).union(*(self.upstream[operand] for operand in operands))
        return value


def _constant_of(value: Value) -> float | None:
    return value.attrs["value"] if value.op == "constant" else None
