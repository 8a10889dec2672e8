"""A reader for TTIR in MLIR's generic form: text in, ``Module`` out, no MLIR needed.

It reads what TTIR modules use (operations with quoted names, regions, blocks, ``module {…}``, the builtin and ``tt``
types, the builtin attributes); other dialects' types and attributes are kept as text. Locations and their aliases are
skipped. Operand counts and types are checked against the functional type; what an operation requires beyond that is the
concern of whoever uses the module.
"""

from __future__ import annotations

from typing import Any

from cleave.errors import CleaveError
from cleave.runtime.ttir_attributes import AttributeParser
from cleave.runtime.ttir_ir import Block, Function, FunctionType, Module, Operation, Region, Type, Value


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
    except (ValueError, OverflowError) as error:
        parser.fail(f"a literal that cannot be read: {error}")
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


class _Parser(AttributeParser):
    """``values`` are the SSA values in scope by name, ``%0`` as ``%0#0``."""

    def __init__(self, text: str, file: str) -> None:
        super().__init__(text, file)
        self.values: dict[str, Value] = {}
        self.bound: list[str] = []  # The names in ``values``, in the order of definition.

    def top_level(self) -> list[Operation]:
        operations: list[Operation] = []
        while self.kind != "end":
            if self.kind in ("hash", "bang"):
                self.alias()
            elif self.kind == "word" and self.token == "module":
                operations.append(self.module())
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

    def module(self) -> Operation:
        """The short form of the outermost operation: ``module @name attributes {…} {…}``."""
        position = self.position()
        self.advance()
        if self.kind == "symbol":
            self.symbol()
        attributes = self.dictionary() if self.accept("attributes") else {}
        region = self.region("builtin.module")
        self.skip_location()
        return Operation("builtin.module", [], [], attributes, [region], [], position)

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
        if not names:
            return [Value("", type_) for type_ in types]
        total = sum(count or 1 for _, count in names)
        if total != len(types):
            self.fail(f"{total} names for {len(types)} results", start)
        flat = [f"{name}#{i}" for name, count in names for i in range(count or 1)]
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
