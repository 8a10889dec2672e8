"""The PTX that kernels contain as inline assembly: there is no op of Triton's for it in every version.

Result 0 of each is a 0 that nobody needs (Triton wants a result), but for exponentials. All others stand in the
outermost block of a kernel and are executed by every thread, but for the barriers at which partitions meet.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

TRIGGER = "griddepcontrol.launch_dependents; mov.b32 $0, 0;"
WAIT = "griddepcontrol.wait; mov.b32 $0, 0;"
NOTHING = "mov.b32 $0, 0;"
"""What stands for both where the architecture has no programmatic dependent launch."""


GIVEN = "$1"
"""In place of a barrier's number: it is operand 1."""


def meet_at(barrier: int | str, threads: int) -> str:
    """Wait until so many threads have come to one of a block's 16 barriers."""
    return f"bar.sync {barrier}, {threads}; mov.b32 $0, 0;"


def arrive_at(barrier: int | str, threads: int) -> str:
    """Be counted there, and go on."""
    return f"bar.arrive {barrier}, {threads}; mov.b32 $0, 0;"


def _by_thread(number: int, around: str) -> str:
    return f"""{{
.reg .pred other, again;
.reg .b32 thread, last, count;{around}
mov.u32 thread, %tid.x;
setp.ne.u32 other, thread, {number};
@other bra done;
shl.b32 last, $2, 1;
sub.u32 last, last, 1;
red.release.gpu.global.inc.u32 [$1], last;
spin:
ld.acquire.gpu.global.u32 count, [$1];
setp.lt.u32 again, count, $2;
@again bra spin;
red.relaxed.gpu.global.inc.u32 [$1], last;
done:{around}
mov.b32 $0, 0;
}}"""


GROUP_BARRIER = _by_thread(0, "\nbarrier.sync 0;")
"""Operand 1 is the address of a counter, operand 2 how many blocks meet there.

Each block counts twice, when it arrives and when it goes on; ``inc`` puts the counter back to 0 the last time, so that
it is ready for the next launch. None sees that 0 while it spins: the last time comes after all have gone on. The first
``barrier.sync`` orders the other threads' writes before the release, the second one their reads after the acquire.
"""
COUNT_BLOCK = _by_thread(128, "")
"""The same where the first warpgroup takes no part: the others meet at a barrier of theirs before and behind it, and
the first thread of these counts the block."""

TOGETHER = 8
"""Elements of a thread that ``EXPONENTIALS`` takes, of which it computes the last one by the polynomial."""
POLYNOMIAL = (0x3D61510C, 0x3E780626, 0x3F317AFD, 0x3F800000)
"""Bits of the coefficients of 2 to the x from -0.5 to 0.5, the highest power first: off by 1.02e-4 of it at most, a
fifth of what f16 tells apart, and exact at 0."""
LEAST = -126.0
"""Exponents below count as this one: what they give is nothing beside a row's largest, which is about 1."""
_MAGIC = 12582912.0
"""1.5 times 2 to the 23: what is added to it is rounded to a whole number, the low bits of the sum."""


def _exponentials() -> Iterator[str]:
    yield "{ .reg .f32 x, j, f, p; .reg .b32 n, e;"
    for element in range(TOGETHER - 1):
        yield f"ex2.approx.ftz.f32 ${element}, ${element + TOGETHER};"
    yield f"max.NaN.f32 x, ${2 * TOGETHER - 1}, {_bits(LEAST)};"
    yield f"add.rn.f32 j, x, {_bits(_MAGIC)}; add.rn.f32 f, j, {_bits(-_MAGIC)}; sub.rn.f32 f, x, f;"
    first, *others = (f"0f{bits:08X}" for bits in POLYNOMIAL)
    yield f"mov.f32 p, {first};"
    yield from (f"fma.rn.f32 p, p, f, {coefficient};" for coefficient in others)
    yield "mov.b32 n, j; shl.b32 n, n, 23; mov.b32 e, p; add.s32 e, e, n;"
    yield f"mov.b32 ${TOGETHER - 1}, e; }}"


def _bits(number: float) -> str:
    return f"0f{struct.unpack('<I', struct.pack('<f', number))[0]:08X}"


OF_A_NAN = 0x7F7FFFFF
"""Bits of what the polynomial gives for it: those of a NaN, and 23 places further up."""
EXPONENTIALS = " ".join(_exponentials())
"""2 to the power of so many f32 that are 1 at most: the special-function units compute all but one of them, the units
for multiply-adds the last one meanwhile, which makes 3.4e38 of a NaN: the anchor of its row keeps that, and where a
score is +inf the factor that moves the row's sums behind the loop."""
