"""A reader for TTIR in MLIR's generic form: text in, ``Module`` out, no MLIR needed.

It reads what TTIR modules use (operations with quoted names, regions, blocks, the builtin and ``tt`` types, the builtin
attributes); other dialects' types and attributes are kept as text. Locations and their aliases are skipped. Operand
counts and types are checked against the functional type; what an operation requires beyond that is the reader's user's
concern.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Any, NoReturn, cast

from cleave.errors import CleaveError, Position
from cleave.runtime.ttir_ir import (
    Block,
    DenseElements,
    DescriptorType,
    Function,
    FunctionType,
    Module,
    OpaqueAttribute,
    OpaqueType,
    Operation,
    PointerType,
    Region,
    ScalarType,
    SymbolRef,
    TensorType,
    Type,
    Value,
    float_from_bits,
)

_TOKEN = re.compile(
    r"""(?:\s+|//[^\n]*)*(?:
        (?P<value>%[\w$.\-]+(?:\#\d+)?)
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<word>[A-Za-z_][\w$.]*)
      | (?P<mark>->|::|[<>(){}\[\],:=*?])
      | (?P<number>-?(?:0x[0-9A-Fa-f]+|\d+(?:\.\d*(?:[eE][+-]?\d+)?)?))
      | (?P<block>\^[\w$.\-]+)
      | (?P<hash>\#[A-Za-z_0-9][\w$.]*)
      | (?P<bang>![A-Za-z_][\w$.]*)
      | (?P<symbol>@(?:[\w$.\-]+|"(?:[^"\\\n]|\\.)*"))
      | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_BRACKET = re.compile(r'"(?:[^"\\\n]|\\.)*"|->|[<>(){}\[\]]')
_SHAPE = re.compile(r"\s*((?:\d+\s*x\s*)*)")
_INTEGER_TYPE = re.compile(r"[su]?i\d+\Z")
_FLOAT_NAMES = frozenset(
    ["f16", "bf16", "f32", "f64", "tf32", "f8E5M2", "f8E4M3FN", "f8E4M3FNUZ", "f8E5M2FNUZ", "f8E4M3B11FNUZ", "f4E2M1FN"]
)
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2}|.)")
_NAMED_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


def parse_ttir(text: str, file: str = "<ttir>") -> Module:
    """The module that ``text`` holds (one ``builtin.module`` in generic form, or the functions alone).

    Raises ``CleaveError`` with ``file:line:column`` at the first thing that is not generic-form MLIR, at uses of
    undefined values, and where operands disagree with the functional type.
    """
    parser = _Parser(text, file)
    try:
        operations = parser.top_level()
    except RecursionError:
        parser.fail("nested too deeply to be read")
    return _module(operations)


def _module(operations: list[Operation]) -> Module:
    attributes: dict[str, Any] = {}
    if len(operations) == 1 and operations[0].name == "builtin.module":
        attributes = operations[0].attributes
        operations = [op for region in operations[0].regions for block in region.blocks for op in block.operations]
    module = Module({}, attributes, operations)
    for operation in operations:
        if operation.name == "tt.func":
            function = _function(operation, module)
            if function.name in module.functions:
                raise CleaveError(f"a second function @{function.name}", operation.position)
            module.functions[function.name] = function
    return module


def _function(operation: Operation, module: Module) -> Function:
    attributes, where = operation.attributes, operation.position
    name, function_type = attributes.get("sym_name"), attributes.get("function_type")
    if not isinstance(name, str) or not isinstance(function_type, FunctionType):
        raise CleaveError("'tt.func' needs a sym_name and a function_type", where)
    if len(operation.regions) != 1 or not operation.regions[0].blocks:
        raise CleaveError(f"'tt.func' @{name} has no body", where)
    body = operation.regions[0]
    if tuple(argument.type for argument in body.blocks[0].arguments) != function_type.inputs:
        raise CleaveError(f"the arguments of @{name}'s entry block differ from its type {function_type}", where)
    is_public = attributes.get("sym_visibility", "public") == "public"
    argument_attributes: list[dict[str, Any]] = attributes.get("arg_attrs") or [{} for _ in function_type.inputs]
    return Function(name, function_type, body, is_public, argument_attributes, where, module)


class _Parser:
    """Recursive descent with one token of lookahead: ``kind`` and ``token`` are the next one, not yet taken."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self.values: dict[str, Value] = {}
        self.bound: list[str] = []  # The names in ``values``, in the order of definition.
        self.aliases: dict[str, Any] = {}
        self.start = self.end = 0
        self.kind = self.token = ""
        self.advance()

    # Tokens

    def advance(self) -> str:
        """Take the next token and look at the one after it."""
        taken = self.token
        match = _TOKEN.match(self.text, self.end)
        if match is None:
            self.start = len(self.text) - len(self.text[self.end :].lstrip())
            self.fail(f"unexpected character {self.text[self.start]!r}")
        self.kind = cast(str, match.lastgroup)
        self.start, self.end = match.span(self.kind)
        self.token = match[self.kind]
        return taken

    def position(self, offset: int | None = None) -> Position:
        offset = self.start if offset is None else offset
        line = bisect_right(self.line_starts, offset)
        return Position(self.file, line, offset - self.line_starts[line - 1] + 1)

    def fail(self, message: str, offset: int | None = None, notes: tuple[str, ...] = ()) -> NoReturn:
        raise CleaveError(message, self.position(offset), notes)

    def accept(self, token: str) -> bool:
        if self.token == token and self.kind != "string":
            self.advance()
            return True
        return False

    def expect(self, token: str, where: str) -> None:
        if not self.accept(token):
            self.fail(f"expected '{token}' {where}, got {self.found()}")

    def expect_kind(self, kind: str, what: str) -> str:
        if self.kind != kind:
            self.fail(f"expected {what}, got {self.found()}")
        return self.advance()

    def found(self) -> str:
        return "the end of the text" if self.kind == "end" else f"'{self.token}'"

    def skip_balanced(self) -> str:
        """Skip from the bracket that is the next token to its partner; return the text between, both included."""
        start, depth = self.start, 0
        for match in _BRACKET.finditer(self.text, start):
            bracket = match[0]
            depth += 1 if bracket in "<({[" else -1 if bracket in ">)}]" else 0
            if depth == 0:
                self.end = match.end()
                self.advance()
                return self.text[start : match.end()]
        self.fail(f"'{self.token}' is never closed")

    def skip_location(self) -> None:
        if self.kind == "word" and self.token == "loc":
            self.advance()
            self.skip_balanced()

    # Structure

    def top_level(self) -> list[Operation]:
        operations: list[Operation] = []
        while self.kind != "end":
            if self.kind in ("hash", "bang"):
                self.alias()
            else:
                operations.append(self.operation())
        return operations

    def alias(self) -> None:
        name = self.advance()
        self.expect("=", f"after the alias {name}")
        if self.token == "loc":
            self.skip_location()
        else:
            self.aliases[name] = self.attribute()

    def operation(self) -> Operation:
        start = self.start
        names = self.result_names() if self.kind == "value" else []
        if self.kind != "string":
            hint = "print the module in generic form (mlir-print-op-generic)"
            self.fail(f"expected an operation's quoted name, got {self.found()}", notes=(hint,))
        name = self.string()
        self.expect("(", f"after '{name}'")
        operands = self.uses()
        successors = self.successors() if self.accept("[") else []
        attributes: dict[str, Any] = {}
        if self.accept("<"):
            attributes = self.dictionary()
            self.expect(">", "after the properties")
        regions = self.regions(name) if self.accept("(") else []
        if self.token == "{":
            attributes = {**attributes, **self.dictionary()}
        self.expect(":", f"before the type of '{name}'")
        type_start = self.start
        signature = self.function_type()
        self.skip_location()
        self.check_operands(name, operands, signature, type_start)
        results = self.define(names, signature.results, start)
        return Operation(name, operands, results, attributes, regions, successors, self.position(start))

    def result_names(self) -> list[tuple[str, int]]:
        names: list[tuple[str, int]] = []
        while True:
            name = self.expect_kind("value", "a result's name")
            count = int(self.expect_kind("number", "a number of results")) if self.accept(":") else 0
            names.append((name, count))
            if not self.accept(","):
                self.expect("=", "after the results")
                return names

    def define(self, names: list[tuple[str, int]], types: tuple[Type, ...], start: int) -> list[Value]:
        flat = [f"{name}#{i}" for name, count in names for i in range(count or 1)]
        if not names:
            return [Value("", type_) for type_ in types]
        if len(flat) != len(types):
            self.fail(f"{len(flat)} names for {len(types)} results", start)
        results = [Value(name, type_) for name, type_ in zip(flat, types, strict=True)]
        for value in results:
            self.bind(value.name, value, start)
        return results

    def bind(self, name: str, value: Value, start: int) -> None:
        if name in self.values:
            self.fail(f"{name.removesuffix('#0')} is defined twice", start)
        self.values[name] = value
        self.bound.append(name)

    def uses(self) -> list[Value]:
        """Operands, up to and with the closing parenthesis."""
        operands: list[Value] = []
        while self.kind == "value":
            name = self.token if "#" in self.token else self.token + "#0"
            value = self.values.get(name)
            if value is None:
                self.fail(f"{self.token} is not defined here")
            operands.append(value)
            self.advance()
            if not self.accept(","):
                break
        self.expect(")", "after the operands")
        return operands

    def successors(self) -> list[str]:
        names: list[str] = []
        while not self.accept("]"):
            names.append(self.expect_kind("block", "a successor block"))
            self.accept(",")
        return names

    def check_operands(self, name: str, operands: list[Value], signature: FunctionType, offset: int) -> None:
        if len(operands) != len(signature.inputs):
            self.fail(f"'{name}' has {len(operands)} operands but its type lists {len(signature.inputs)}", offset)
        for i, (operand, type_) in enumerate(zip(operands, signature.inputs, strict=True)):
            if operand.type != type_:
                self.fail(f"operand {i} of '{name}' is {operand.type}, but its type says {type_}", offset)

    def regions(self, owner: str) -> list[Region]:
        regions = [self.region(owner)]
        while self.accept(","):
            regions.append(self.region(owner))
        self.expect(")", "after the regions")
        return regions

    def region(self, owner: str) -> Region:
        self.expect("{", "before a region")
        outer, mark = self.values, len(self.bound)
        if owner == "tt.func":  # It sees nothing from outside; other regions see all.
            self.values = {}
        blocks: list[Block] = []
        if self.kind != "block" and self.token != "}":
            blocks.append(Block("", [], self.operations()))
        while self.kind == "block":
            label = self.advance()
            arguments = self.block_arguments() if self.accept("(") else []
            self.expect(":", "after the block's label")
            blocks.append(Block(label, arguments, self.operations()))
        for name in self.bound[mark:]:
            del self.values[name]
        del self.bound[mark:]
        self.values = outer
        self.expect("}", "after a region")
        return Region(blocks)

    def operations(self) -> list[Operation]:
        operations: list[Operation] = []
        while self.kind in ("value", "string"):
            operations.append(self.operation())
        if self.token != "}" and self.kind != "block":
            self.operation()  # Says what was expected.
        return operations

    def block_arguments(self) -> list[Value]:
        arguments: list[Value] = []
        while not self.accept(")"):
            start, name = self.start, self.expect_kind("value", "a block argument")
            self.expect(":", f"after {name}")
            arguments.append(Value(name, self.type()))
            self.bind(name + "#0", arguments[-1], start)
            self.skip_location()
            if not self.accept(",") and self.token != ")":
                self.fail(f"expected ',' or ')' after a block argument, got {self.found()}")
        return arguments

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
        if self.token == "(":
            return self.function_type()
        self.fail(f"expected a type, got {self.found()}")

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
