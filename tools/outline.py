"""Print a module of cleave ops in short: costs, one line for each op, loops by indentation.

usage: cleave-opt … | python tools/outline.py [--costs | --loops | FUNCTION…]

Names are those that MLIR prints. Index arithmetic, masks and constants of kernels are left out: this is for reading,
the module itself for everything else. ``--costs``: only each function and what it costs. ``--loops``: only which
contractions and reductions share which loop.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from cleave import bindings
from cleave.bindings import ir
from cleave.dialects import cleave
from cleave.passes import diagnostics
from cleave.passes.diagnostics import position_of
from cleave.passes.functions import ops_inside
from cleave.tools import files
from cleave.tools.exit_code import exit_code

INDEX_WORK = frozenset(("cleave.extent", "cleave.program_id", "cleave.splat", "cleave.index", "cleave.select"))
HIDDEN_ATTRIBUTES = frozenset(("operandSegmentSizes", "fill", "in_bounds", "value"))


def text_of(attribute: ir.Attribute) -> str:
    """Strings without quotes, arrays with blanks between."""
    if isinstance(attribute, ir.ArrayAttr):
        return ", ".join(text_of(entry) for entry in attribute)
    return attribute.value if isinstance(attribute, ir.StringAttr) else str(attribute)


def type_text(type_: ir.Type) -> str:
    """``[m=32 d=64] f16``; MLIR's own spelling for what is no tensor with dims."""
    if not isinstance(type_, ir.RankedTensorType):
        return str(type_)
    if type_.encoding is None:
        return str(type_)
    tensor, _ = cleave.decode(type_)
    return f"[{' '.join(str(dim).replace(' ', '') for dim in tensor.dims)}] {tensor.dtype}"


def ensure_raised(func: ir.Operation) -> None:
    """SystemExit, with the op, where the function holds linalg: import has raised none of it, or only a part."""
    found = [op for op in ops_inside(func) if op.name.startswith("linalg.") and op.name != "linalg.yield"]
    if found:
        op = next(
            (op for op in found if len(op.operands) > len(op.results)), found[0]
        )  # what others begin with is less
        function, place = text_of(func.attributes["sym_name"]), position_of(op.location)
        line = f" in line {place.line}" if place is not None else ""
        sys.exit(f"outline.py: @{function} is not raised: '{op.name}'{line} is no op of Cleave's")


def name(value: ir.Value) -> str:
    return value.get_name(use_local_scope=True)


def is_shown(op: ir.Operation, *, kernel: bool) -> bool:
    if op.name.startswith("arith.") or (kernel and op.name in INDEX_WORK):
        return False
    if not kernel or not len(op.results):
        return True
    return op.name != "cleave.constant" and not type_text(op.results[0].type).endswith((" i1", " i64"))


def op_line(op: ir.Operation) -> str:
    kind = op.name.removeprefix("cleave.")
    operands = list(op.operands)[: 1 if kind == "load" else 2 if kind == "store" else None]
    if kind == "constant":
        return f"{name(op.results[0])} = {op.attributes['value']}"
    attributes = [f"{key} {text_of(op.attributes[key])}" for key in op.attributes if key not in HIDDEN_ATTRIBUTES]
    call = " ".join([f"{kind}({', '.join(map(name, operands))})", *attributes])
    if not len(op.results):
        return call
    return f"{name(op.results[0])} = {call}".ljust(44) + f" : {type_text(op.results[0].type)}"


def loop_line(op: ir.Operation) -> str:
    low, high, step = (bound(operand) for operand in list(op.operands)[:3])
    carried = ", ".join(type_text(operand.type) for operand in list(op.operands)[3:])
    return f"for {name(op.regions[0].blocks[0].arguments[0])} in {low} … {high} step {step}, carrying {carried}:"


def goes_on(op: ir.Operation) -> bool:
    """Whether a loop goes on with what another one has accumulated: it does the same, with masks."""
    carried = list(op.operands)[3:]
    return any(not isinstance(value.owner, ir.Block) and value.owner.operation.name == "scf.for" for value in carried)


SIGNS = {"arith.addi": "+", "arith.subi": "-", "arith.muli": "*", "arith.divui": "/"}
ENDS = {"arith.minsi": "min", "arith.maxsi": "max", "arith.minui": "min", "arith.maxui": "max"}


def bound(value: ir.Value) -> str:
    """What an index is, in constants, extents and arguments."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return name(value)
    op = owner.operation
    if op.name == "arith.constant":
        return str(op.attributes["value"]).partition(" ")[0]
    if op.name in SIGNS:
        return f" {SIGNS[op.name]} ".join(f"({b})" if " + " in b or " - " in b else b for b in map(bound, op.operands))
    if op.name in ENDS:
        return f"{ENDS[op.name]}({', '.join(map(bound, op.operands))})"
    return text_of(op.attributes["size"]) if op.name == "cleave.extent" else name(value)


def block_lines(block: ir.Block, indent: str, *, kernel: bool) -> Iterator[str]:
    for view in block.operations:
        op = view.operation
        if op.name == "scf.for":
            rest = goes_on(op)
            yield indent + loop_line(op) + (" the same, with masks" if rest else "")
            yield from () if rest else block_lines(op.regions[0].blocks[0], indent + "    ", kernel=kernel)
        elif op.name == "scf.if":
            for word, region in zip(("if", "else"), op.regions, strict=True):
                yield f"{indent}{word} {name(op.operands[0])}:" if word == "if" else f"{indent}else:"
                for inner in region.blocks:
                    yield from block_lines(inner, indent + "    ", kernel=kernel)
        elif op.name == "func.call" and "cleave.grid" in op.attributes:
            yield f"{indent}launch {op.attributes['callee']}, grid {text_of(op.attributes['cleave.grid'])}"
        elif op.name.endswith((".return", ".yield")):
            yield f"{indent}{op.name.rpartition('.')[2]} {', '.join(map(name, op.operands))}".rstrip()
        elif is_shown(op, kernel=kernel):
            yield indent + op_line(op)


def outline(func: ir.Operation) -> Iterator[str]:
    if not func.regions[0].blocks:
        yield f"declaration @{text_of(func.attributes['sym_name'])}"
        return
    block, kernel = func.regions[0].blocks[0], "cleave.kernel" in func.attributes
    arguments = ", ".join(f"{name(argument)} {type_text(argument.type)}" for argument in block.arguments)
    yield f"{'kernel' if kernel else 'function'} @{text_of(func.attributes['sym_name'])}({arguments})"
    yield from block_lines(block, "  ", kernel=kernel)


def loops(func: ir.Operation) -> Iterator[str]:
    """A kernel's loops by what they go over, with the contractions and reductions right in them."""
    if "cleave.kernel" in func.attributes:
        yield f"kernel @{text_of(func.attributes['sym_name'])}"
        yield from loop_lines(func.regions[0].blocks[0], "  ")


def loop_lines(block: ir.Block, indent: str) -> list[str]:
    """A loop and the one for what is left of its dim, with the same in them, are one."""
    lines: list[str] = []
    last: tuple[int, list[str]] = (0, [])
    for view in block.operations:
        op = view.operation
        inner = [loop_lines(b, indent + "  ") for region in op.regions for b in region.blocks]
        if op.name in ("cleave.reduce", "cleave.contract"):
            words = [op.name.removeprefix("cleave."), *(text_of(op.attributes[key]) for key in op.attributes)]
            lines.append(indent + " ".join(words))
        elif op.name == "scf.for":
            at = last[0] if inner[0] == last[1] else len(lines)
            lines[at:] = [f"{indent}for {bound(op.operands[1])}", *inner[0]]
            last = (at, inner[0])
        elif op.name == "scf.if":
            lines += [
                line for word, part in zip(("branch", "else"), inner, strict=False) for line in (indent + word, *part)
            ]
    return lines


def costs(func: ir.Operation) -> Iterator[str]:
    if "cleave.cost" in func.attributes:
        yield f"@{text_of(func.attributes['sym_name'])}"
        yield from (f"    {part}" for part in text_of(func.attributes["cleave.cost"]).split("; "))


def parsed(text: str | bytes, context: ir.Context) -> ir.Module:
    """SystemExit, after what MLIR says of it, where the text is no module."""

    def show(info: ir.Diagnostic) -> bool:
        print(str(diagnostics.render(diagnostics.from_mlir(info))).replace("-:", "<stdin>:", 1), file=sys.stderr)
        return True

    handler: Any = context.attach_diagnostic_handler(show)
    try:
        return ir.Module.parse(text, context)
    except bindings.MLIRError:
        sys.exit("outline.py: the input is no module that parses")
    finally:
        handler.detach()


def main() -> None:
    parser = argparse.ArgumentParser(description="Print a module of cleave ops, read from standard input, in short.")
    parser.add_argument("--costs", action="store_true", help="only each function and what it costs")
    parser.add_argument("--loops", action="store_true", help="only which contractions and reductions share a loop")
    parser.add_argument("functions", nargs="*", help="without names: all")
    arguments = parser.parse_args()
    source = files.read_source("-", "outline.py")
    context = bindings.context()
    with context:
        module = parsed(source.text or source.data, context)
        functions = [op.operation for op in module.body.operations if op.operation.name == "func.func"]
        named = {text_of(func.attributes["sym_name"]): func for func in functions}
        unknown = [name for name in arguments.functions if name not in named]
        if unknown:
            sys.exit(f"outline.py: there is no function {unknown[0]}; functions: {', '.join(named) or 'none'}")
        chosen = [named[name] for name in arguments.functions or named]
        if arguments.costs or arguments.loops:
            show = costs if arguments.costs else loops
            print("\n".join(line for func in chosen for line in show(func)))
            return
        for func in chosen:
            ensure_raised(func)
        print("\n\n".join("\n".join(outline(func)) for func in chosen))


if __name__ == "__main__":
    sys.exit(exit_code("outline.py", main))
