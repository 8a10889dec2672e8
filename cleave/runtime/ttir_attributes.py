"""Types and attributes of MLIR's textual form, as far as TTIR modules use them."""

from __future__ import annotations

import re
from typing import Any, cast

from cleave.runtime.ttir_ir import (
    DenseElements,
    DescriptorType,
    FunctionType,
    OpaqueAttribute,
    OpaqueType,
    PointerType,
    ScalarType,
    SymbolRef,
    TensorType,
    Type,
    float_from_bits,
)
from cleave.runtime.ttir_lexer import Lexer

_SHAPE = re.compile(r"\s*((?:\d+\s*x\s*)*)")
_INTEGER_TYPE = re.compile(r"[su]?i\d+\Z")
_FLOAT_NAMES = frozenset(
    ["f16", "bf16", "f32", "f64", "tf32", "f8E5M2", "f8E4M3FN", "f8E4M3FNUZ", "f8E5M2FNUZ", "f8E4M3B11FNUZ", "f4E2M1FN"]
)
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2}|.)")
_NAMED_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


class AttributeParser(Lexer):
    """Recursive descent from the next token on; what is read is taken."""

    def __init__(self, text: str, file: str) -> None:
        super().__init__(text, file)
        self.aliases: dict[str, Any] = {}

    # Types

    def function_type(self) -> FunctionType:
        self.expect("(", "before the operand types")
        inputs = self.types(")")
        self.expect("->", "before the result types")
        return FunctionType(inputs, self.types(")") if self.accept("(") else (self.type(),))

    def types(self, close: str) -> tuple[Type, ...]:
        types: list[Type] = []
        while self.token != close:
            types.append(self.type())
            if not self.accept(","):
                break
        self.expect(close, "after the types")
        return tuple(types)

    def type(self) -> Type:
        if self.kind == "word":
            return self.tensor_type() if self.token == "tensor" else self.scalar_type()
        if self.kind == "bang":
            return self.dialect_type()
        if self.token != "(":
            self.fail(f"expected a type, got {self.found()}")
        return self.function_type()

    def scalar_type(self) -> ScalarType:
        name = self.token
        if name not in ("index", "none") and name not in _FLOAT_NAMES and not _INTEGER_TYPE.match(name):
            self.fail(f"'{name}' is not a type that TTIR uses")
        self.advance()
        return ScalarType(name)

    def tensor_type(self) -> TensorType:
        self.advance()
        if self.token != "<":
            self.fail("expected '<' after 'tensor'")
        return self.shaped()

    def shaped(self) -> TensorType:
        """From the '<' (the next token) of ``<64x32xf16, encoding>`` to its '>'."""
        match = cast("re.Match[str]", _SHAPE.match(self.text, self.end))
        self.end = match.end()  # The lexer would read 32xf16 as a number and a word.
        self.advance()
        if self.token in ("?", "*"):
            self.fail("tiles have static shapes")
        element = self.type()
        if not isinstance(element, ScalarType | PointerType):
            self.fail(f"{element} cannot be an element of a tensor")
        if self.accept(","):
            self.attribute()  # The layout encoding of TTGIR says nothing about values.
        self.expect(">", "after a tensor type")
        return TensorType(tuple(int(n) for n in match[1].split("x") if n.strip()), element)

    def dialect_type(self) -> Type:
        start, name = self.start, self.advance()
        if name in self.aliases:
            return self.aliases[name]
        if name == "!tt.ptr":
            self.expect("<", "after '!tt.ptr'")
            pointee = self.type()
            space = int(self.expect_kind("number", "an address space")) if self.accept(",") else 1
            self.expect(">", "after a pointer type")
            return PointerType(pointee, space)
        if name == "!tt.tensordesc":
            return self.descriptor_type()
        body_end = start + len(name)
        if self.token == "<" and self.start == body_end:
            return OpaqueType(name + self.skip_balanced())
        return OpaqueType(name)

    def descriptor_type(self) -> DescriptorType:
        """``<tensor<128x64xf16>>`` (Triton 3.6, 3.7) or ``<128x64xf16>`` (later)."""
        if self.token != "<":
            self.fail("expected '<' after '!tt.tensordesc'")
        if not self.text.startswith("tensor", self.end):
            return DescriptorType(self.shaped())
        self.advance()
        block = self.tensor_type()
        if self.accept(","):
            self.attribute()
        self.expect(">", "after a descriptor type")
        return DescriptorType(block)

    # Attributes

    def dictionary(self) -> dict[str, Any]:
        self.expect("{", "before the attributes")
        entries: dict[str, Any] = {}
        while self.token != "}":
            if self.kind not in ("word", "string"):
                self.fail(f"expected an attribute's name, got {self.found()}")
            name = self.string() if self.kind == "string" else self.advance()
            entries[name] = self.attribute() if self.accept("=") else True
            if not self.accept(","):
                break
        self.expect("}", "after the attributes")
        return entries

    def attribute(self) -> Any:
        kind = self.kind
        if kind == "number":
            return self.number(self.start, self.advance(), self.type() if self.accept(":") else None)
        if kind == "string":
            text = self.string()
            if self.accept(":"):
                self.type()
            return text
        if kind == "symbol":
            return self.symbol()
        if kind == "hash":
            return self.opaque_attribute()
        if kind == "word":
            return self.word_attribute()
        if self.token == "[":
            return self.list_attribute()
        if self.token == "{":
            return self.dictionary()
        return self.type()

    def word_attribute(self) -> Any:
        word = self.token
        if word in ("true", "false", "unit"):
            self.advance()
            return word != "false"
        if word == "dense":
            return self.dense()
        if word == "array":
            return self.array()
        return self.type()

    def list_attribute(self) -> list[Any]:
        self.advance()
        items: list[Any] = []
        while self.token != "]":
            items.append(self.attribute())
            if not self.accept(","):
                break
        self.expect("]", "after the list")
        return items

    def symbol(self) -> SymbolRef:
        name = self.advance()[1:]
        while self.accept("::"):
            name += "::" + self.expect_kind("symbol", "a symbol after '::'")[1:]
        return SymbolRef(name.strip('"'))

    def opaque_attribute(self) -> Any:
        name = self.advance()
        if name in self.aliases:
            return self.aliases[name]
        return OpaqueAttribute(name + (self.skip_balanced() if self.token == "<" else ""))

    def string(self) -> str:
        def replace(match: re.Match[str]) -> str:
            code = match[1]
            return _NAMED_ESCAPES.get(code) or (chr(int(code, 16)) if len(code) == 2 else code)

        return _ESCAPE.sub(replace, self.advance()[1:-1])

    def number(self, start: int, token: str, type_: Type | None) -> int | float | bool:
        """A literal as its type reads it; a hexadecimal literal of a float type gives the bits."""
        is_float = isinstance(type_, ScalarType) and type_.name in _FLOAT_NAMES
        if "0x" in token:
            bits = int(token, 16)
            if not is_float:
                return bits
            try:
                return float_from_bits(bits, cast(ScalarType, type_).name)
            except KeyError:
                self.fail(f"hexadecimal literals of type {type_} are not read", start)
        if "." in token:
            if type_ is not None and not is_float:
                self.fail(f"a float literal of type {type_}", start)
            return float(token)
        return float(token) if is_float else int(token)

    def array(self) -> tuple[Any, ...]:
        """``array<i32: 1, 2>``."""
        self.advance()
        self.expect("<", "after 'array'")
        element = self.type()
        items: list[Any] = []
        if self.accept(":"):
            while self.token != ">":
                items.append(self.literal(element))
                if not self.accept(","):
                    break
        self.expect(">", "after the array")
        return tuple(items)

    def literal(self, type_: Type) -> int | float | bool:
        if self.kind == "word" and self.token in ("true", "false"):
            return self.advance() == "true"
        return self.number(self.start, self.expect_kind("number", "a number"), type_)

    def dense(self) -> DenseElements:
        start = self.start
        self.advance()
        self.expect("<", "after 'dense'")
        items: list[tuple[int, str]] = []
        blob: bytes | None = None
        while self.token != ">":
            if self.kind == "string" and self.token.startswith('"0x'):
                blob = bytes.fromhex(self.advance()[3:-1])
            elif self.kind == "number" or self.token in ("true", "false"):
                items.append((self.start, self.advance()))
            elif self.token in ("[", "]", ","):
                self.advance()
            else:
                self.fail(f"expected an element of a dense attribute, got {self.found()}")
        self.advance()
        self.expect(":", "before the type of a dense attribute")
        type_ = self.type()
        if not isinstance(type_, TensorType):
            self.fail(f"a dense attribute of type {type_}", start)
        if blob is not None:
            return DenseElements(type_, blob)
        values = tuple(token == "true" if token in ("true", "false") else self.number(at, token, type_.element)
                       for at, token in items)  # fmt: skip
        count = 1
        for extent in type_.shape:
            count *= extent
        if len(values) not in (1, count):
            self.fail(f"{len(values)} elements for {type_}", start)
        return DenseElements(type_, values)
