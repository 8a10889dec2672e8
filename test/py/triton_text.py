"""Generic-form TTIR of @triton.jit kernels, for tests.

Triton prints its own form only. MLIR falls back to the generic form for invalid IR, so a second ``tt.return`` is put
at the end of every function before printing, and taken out of the text.
"""

from __future__ import annotations

from typing import Any


def generic_ttir(
    kernel: Any, signature: dict[str, str], constants: dict[str, Any], optimised: bool = True, debug: bool = False
) -> str:
    """The kernel's TTIR for sm_90, after Triton's ``make_ttir`` passes if ``optimised``; ``debug`` keeps assertions."""
    from triton._C.libtriton import ir  # pyright: ignore
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import ASTSource, make_backend

    target = GPUTarget("cuda", 90, 32)
    backend: Any = make_backend(target)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    options = backend.parse_options({"debug": debug})
    signature = {**signature, **dict.fromkeys(constants, "constexpr")}
    source = ASTSource(kernel, signature, constants)
    module: Any = source.make_ir(
        target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
    )
    module.context = context
    if optimised:
        module = backend.make_ttir(module, {}, options, 90)
    returns: list[tuple[Any, Any]] = []
    module.walk(lambda op: returns.append((op, op.get_block())) if op.get_name() == "tt.return" else None)
    builder = ir.builder(context)
    for op, block in returns:
        builder.set_insertion_point_to_end(block)
        builder.ret([op.get_operand(i) for i in range(op.get_num_operands())])
    return _without_second_returns(module.str_nodebug())


def _without_second_returns(text: str) -> str:
    lines = text.splitlines(keepends=True)
    twice = [i for i in range(1, len(lines)) if '"tt.return"' in lines[i] and lines[i] == lines[i - 1]]
    return "".join(line for i, line in enumerate(lines) if i not in twice)
