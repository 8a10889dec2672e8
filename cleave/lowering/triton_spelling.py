"""One text of TTIR in the spelling of the Triton that is to read it.

Our text is spelt for Triton 3.6. What later versions spell otherwise, and would refuse or, worse, ignore,
stands in one table. Source: compilations of the same kernels with each version (``tools/triton-matrix``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

Version = tuple[int, int]
SUPPORTED: tuple[Version, Version] = ((3, 6), (3, 9))
"""First and last of Triton's versions whose compilations were compared."""

_CACHE = {1: "none", 2: "ca", 3: "cg", 4: "wb", 5: "cs", 6: "wt", 7: "cv"}
_EVICT = {1: "evict_normal", 2: "evict_first", 3: "evict_last"}


@dataclass(frozen=True)
class Change:
    """``rewrite`` applies to what a Triton of version ``since`` or later reads."""

    since: Version
    rewrite: Callable[[str], str]


def spelled_for(version: str, text: str) -> str:
    """``text``, generic TTIR or TTGIR as Triton 3.6 spells it, as the Triton called ``version`` ("3.9.0") does."""
    for change in CHANGES:
        if parse_version(version) >= change.since:
            text = change.rewrite(text)
    return text


def parse_version(version: str) -> Version:
    """("3.9.0") -> (3, 9)."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _descriptors(text: str) -> str:
    """The block of a tensor descriptor is no longer spelt as a tensor."""
    return re.sub(r"!tt\.tensordesc<tensor<([^<>]*(?:<\{[^{}]*\}>)?)>>", r"!tt.tensordesc<\1>", text)


def _cache_policies(text: str) -> str:
    """Both hints of a load or store became one attribute; the old ones are ignored in silence."""
    access = re.compile(r'"tt\.(?:load|store|descriptor_load)"\(.*$', re.MULTILINE)
    return access.sub(lambda match: _cache_policy(match[0]), text)


def _cache_policy(access: str) -> str:
    hints = {name: int(number) for name, number in re.findall(r"\b(cache|evict) = (\d+) : i32", access)}
    if not hints:
        return access
    modifier, eviction = _CACHE[hints.get("cache", 1)], _EVICT[hints.get("evict", 1)]
    policy = f"cachePolicy = #tt.cache_policy<cache_modifier = {modifier}, eviction_policy = {eviction}>"
    rest = re.sub(r"\b(cache|evict) = \d+ : i32(, )?", lambda m: "", access)
    return re.sub(r"(<?\{)", lambda match: f"{match[0]}{policy}, ", rest, count=1).replace(", }", "}")


_SPECIALIZED = re.compile(r'"ttg\.warp_specialize"\(([^)]*)\)')
_PARTITIONS = '"ttg.warp_specialize.partitions"()'
_ENDS = re.compile(
    r"\}\) : \(\) -> \(\)((?: loc\(\S*\))?\s*\}\) \{[^\n]*requestedRegisters[^\n]*\} : )\(([^()\n]*)\) -> \(\)"
)


def _captures(text: str) -> str:
    """What partitions capture is given to the op that holds them."""
    found = _SPECIALIZED.search(text)
    if not found:
        return text
    text = _SPECIALIZED.sub('"ttg.warp_specialize"()', text)
    text = text.replace(_PARTITIONS, _PARTITIONS[:-1] + found[1] + ")")
    return _ENDS.sub(lambda match: f"}}) : ({match[2]}) -> (){match[1]}() -> ()", text)


_COPY = re.compile(r'("ttng\.async_tma_copy_global_to_local"\(([^)]*)\)) :')


def _segments(text: str) -> str:
    """A copy says which of its operands are offsets: all between the descriptor and the last three."""
    return _COPY.sub(
        lambda m: f"{m[1]} {{operandSegmentSizes = array<i32: 1, {m[2].count(',') - 3}, 0, 1, 1, 1>}} :", text
    )


CHANGES = (
    Change((3, 7), _segments),
    Change((3, 7), _captures),
    Change((3, 8), _descriptors),
    Change((3, 9), _cache_policies),
)
