"""What a parsed TTIR module is made of: types, values, operations, blocks, functions.

Only what Triton's IR uses; no MLIR bindings are needed to build or to read it.
Attribute values are plain Python: int, float, bool, str, list, dict, tuple (``array<i32: …>``), a type, or one of
``SymbolRef``, ``DenseElements``, ``OpaqueAttribute``. A unit attribute is True.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cleave.errors import Position


@dataclass(frozen=True)
class ScalarType:
    """An integer (``i32``), float (``f16``, ``f8E4M3FN``) or ``index`` type."""

    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def is_float(self) -> bool:
        return self.name in FLOAT_FORMATS


@dataclass(frozen=True)
class PointerType:
    """``!tt.ptr<pointee, address_space>``."""

    pointee: Type
    address_space: int = 1

    def __str__(self) -> str:
        space = "" if self.address_space == 1 else f", {self.address_space}"
        return f"!tt.ptr<{self.pointee}{space}>"


@dataclass(frozen=True)
class TensorType:
    """A tile of static shape; its element is a scalar or a pointer."""

    shape: tuple[int, ...]
    element: ScalarType | PointerType

    def __str__(self) -> str:
        return "tensor<" + "".join(f"{n}x" for n in self.shape) + f"{self.element}>"


@dataclass(frozen=True)
class DescriptorType:
    """``!tt.tensordesc<tensor<…>>``: a tensor in memory read and written in blocks of this type."""

    block: TensorType

    def __str__(self) -> str:
        return f"!tt.tensordesc<{self.block}>"


@dataclass(frozen=True)
class FunctionType:
    inputs: tuple[Type, ...]
    results: tuple[Type, ...]

    def __str__(self) -> str:
        inputs, results = (f"({', '.join(map(str, types))})" for types in (self.inputs, self.results))
        return f"{inputs} -> {results}"


@dataclass(frozen=True)
class OpaqueType:
    """A type that the interpreter knows nothing about, as its text."""

    text: str

    def __str__(self) -> str:
        return self.text


Type = ScalarType | PointerType | TensorType | DescriptorType | FunctionType | OpaqueType

# name: exponent bits, mantissa bits, exponent bias, and whether the top exponent holds infinities (else one NaN only)
FLOAT_FORMATS: dict[str, tuple[int, int, int, bool]] = {
    "f16": (5, 10, 15, True),
    "bf16": (8, 7, 127, True),
    "f32": (8, 23, 127, True),
    "f64": (11, 52, 1023, True),
    "f8E5M2": (5, 2, 15, True),
    "f8E4M3FN": (4, 3, 7, False),
}


def float_from_bits(bits: int, name: str) -> float:
    """The value of a bit pattern of the float type ``name`` (a key of ``FLOAT_FORMATS``)."""
    exponent_bits, mantissa_bits, bias, has_infinity = FLOAT_FORMATS[name]
    mantissa = bits & ((1 << mantissa_bits) - 1)
    top = (1 << exponent_bits) - 1
    exponent = bits >> mantissa_bits & top
    sign = -1.0 if bits >> (mantissa_bits + exponent_bits) & 1 else 1.0
    if exponent == top and has_infinity:
        return sign * float("nan" if mantissa else "inf")
    if exponent == top and mantissa == (1 << mantissa_bits) - 1:
        return float("nan")
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias - mantissa_bits)
    return sign * ((1 << mantissa_bits) + mantissa) * 2.0 ** (exponent - bias - mantissa_bits)


@dataclass(frozen=True)
class SymbolRef:
    """``@name`` (nested references keep their ``::``)."""

    name: str


@dataclass(frozen=True)
class OpaqueAttribute:
    """A dialect attribute such as ``#arith.fastmath<none>``, as its text."""

    text: str


@dataclass(frozen=True)
class DenseElements:
    """``dense<…> : type``: one value (a splat), one per element in row-major order, or their little-endian bytes."""

    type: TensorType
    values: tuple[int | float | bool, ...] | bytes


@dataclass(slots=True, eq=False)
class Value:
    """An SSA value: a result of an operation or an argument of a block."""

    name: str
    type: Type


@dataclass(slots=True, eq=False)
class Block:
    """``label`` is its name with the ``^``, or empty for an entry block that has none."""

    label: str
    arguments: list[Value]
    operations: list[Operation]


@dataclass(slots=True, eq=False)
class Region:
    blocks: list[Block]


@dataclass(slots=True, eq=False)
class Operation:
    """An operation; ``attributes`` holds properties and discardable attributes together."""

    name: str
    operands: list[Value]
    results: list[Value]
    attributes: dict[str, Any]
    regions: list[Region]
    successors: list[str]
    position: Position

    @property
    def line(self) -> int:
        return self.position.line

    @property
    def result_types(self) -> list[Type]:
        return [result.type for result in self.results]


@dataclass(eq=False)
class Function:
    """A ``tt.func``; ``module`` is the one it stands in, for calls; ``compiled`` is the interpreter's, to keep."""

    name: str
    type: FunctionType
    body: Region
    is_public: bool
    argument_attributes: list[dict[str, Any]]
    position: Position
    module: Module = field(repr=False)
    compiled: dict[bool, Any] = field(default_factory=dict[bool, Any], repr=False)


@dataclass(eq=False)
class Module:
    functions: dict[str, Function]
    attributes: dict[str, Any]
    operations: list[Operation] = field(repr=False)
