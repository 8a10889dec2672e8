"""Functions that are one instruction, in TTGIR, as that.

Triton makes a call of ``math.exp2``, links the library that has its body, and LLVM finds that it is one instruction:
hundreds of times in an attention kernel, which is a fifth of LLVM's time. As a call of LLVM's intrinsic it is the same
instruction at once. In TTIR the op stays, as Triton's passes know it.
"""

from __future__ import annotations

import re

from cleave.lowering.triton_spelling import Version, parse_version

_EXP2: dict[Version, str] = {(3, 6): "llvm.nvvm.ex2.approx.ftz.f", (3, 9): "llvm.nvvm.ex2.approx.ftz.f32"}
"""What the LLVM of each version of Triton calls it; others were not looked at."""
_CALLS = re.compile(r'"math\.exp2"\((%[\w#]+)\) <\{[^{}]*\}>(?= : \((?:f32|tensor<[x\d]*xf32[,>]))')


def with_intrinsics(version: str, text: str) -> str:
    """``text``, generic TTGIR for the Triton called ``version``, with intrinsics in place of functions of libraries."""
    symbol = _EXP2.get(parse_version(version))
    if symbol is None:
        return text
    where = f'libname = "", libpath = "", pure = true, symbol = "{symbol}"'
    return _CALLS.sub(lambda match: f'"tt.extern_elementwise"({match[1]}) <{{{where}}}>', text)
