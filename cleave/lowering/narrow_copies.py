"""Narrow asynchronous copies that feed ``wgmma``: wrong results, seen on an H200 with Triton 3.6 and 3.7.

Where a tile has fewer than 16 bytes for each thread (or its rows are not known to begin at multiples of 16), Triton
copies it by ``cp.async`` of 4 or 8 bytes. With 4 bytes and two warpgroups, ``wgmma`` read what the copies had not
written yet (bench/results/h200/decode.md). So a kernel in which any such copy feeds ``wgmma`` is compiled without
pipelining.
"""

from __future__ import annotations

import re

WIDE = 16
"""Bytes of a copy that bypasses the L1 cache, as all large tiles have."""

_DEFINED = re.compile(r"(%\w+) = ttg\.memdesc_(?:index|trans|reshape|subslice|subview) (%\w+)")
_COPY = re.compile(r"ttg\.async_copy_global_to_local %\w+, (%\w+).*contiguity = (\d+) : i32.*!tt\.ptr<([a-z]+)(\d+)")
_DOT = re.compile(r"ttng\.warp_group_dot (%\w+), (%\w+),")
_STAGES = re.compile(r"tt\.num_stages = \d+")


def feed_wgmma(ttgir: str) -> bool:
    """Whether a kernel has such copies."""
    sources = dict(_DEFINED.findall(ttgir))
    fed = {_root(operand, sources) for pair in _DOT.findall(ttgir) for operand in pair}
    for target, count, _, bits in _COPY.findall(ttgir):
        if int(count) * int(bits) < 8 * WIDE and _root(target, sources) in fed:
            return True
    return False


def unpipelined(ttir: str) -> str:
    """The module with no loop that asks for more stages than the kernel's."""
    return _STAGES.sub("tt.num_stages = 1", ttir)


def _root(value: str, sources: dict[str, str]) -> str:
    """The buffers of which a value is a view."""
    while value in sources:
        value = sources[value]
    return value
