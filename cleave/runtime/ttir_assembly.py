"""The PTX that kernels contain as inline assembly: there is no op of Triton's for it in every version.

Result 0 of each is a 0 that nobody needs (Triton wants a result). All of it stands in the outermost block of a kernel
and is executed by every thread, but for the barriers at which partitions meet.
"""

from __future__ import annotations

TRIGGER = "griddepcontrol.launch_dependents; mov.b32 $0, 0;"
WAIT = "griddepcontrol.wait; mov.b32 $0, 0;"
NOTHING = "mov.b32 $0, 0;"
"""What stands for both where the architecture has no programmatic dependent launch."""


def meet_at(barrier: int, threads: int) -> str:
    """Wait until so many threads have come to one of a block's 16 barriers."""
    return f"bar.sync {barrier}, {threads}; mov.b32 $0, 0;"


def arrive_at(barrier: int, threads: int) -> str:
    """Be counted there, and go on."""
    return f"bar.arrive {barrier}, {threads}; mov.b32 $0, 0;"


def _by_first_thread(around: str) -> str:
    return f"""{{
.reg .pred other, again;
.reg .b32 thread, last, count;{around}
mov.u32 thread, %tid.x;
setp.ne.u32 other, thread, 0;
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


GROUP_BARRIER = _by_first_thread("\nbarrier.sync 0;")
"""Operand 1 is the address of a counter, operand 2 how many blocks meet there.

Each block counts twice, when it arrives and when it goes on; ``inc`` puts the counter back to 0 the last time, so that
it is ready for the next launch. None sees that 0 while it spins: the last time comes after all have gone on. The first
``barrier.sync`` orders the other threads' writes before the release, the second one their reads after the acquire.
"""
COUNT_BLOCK = _by_first_thread("")
"""The same where some threads of a block take no part: those that do meet at a barrier of theirs before and behind it.
"""
