"""Producer warps: none may be so slow that a barrier's phase wraps under its wait, so they meet for each tile.

The interpreter runs the producer as one; here what each partition does at barriers is taken from it, the producer's
part is given to as many warps as the kernel marks, and each of these is in turn the one that goes on last. That the
compiled warps meet where this takes them to is read from the PTX.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any
from unittest.mock import patch

import graphs
import pytest
from test_warp_specialised import lowered, matmul, normalised, run

from cleave.dialects.graph import GraphBuilder
from cleave.lowering import triton_worker
from cleave.lowering.triton_partitions import COPYING_WARPS
from cleave.runtime import ttgir_machine
from cleave.runtime.ttgir_barriers import Barrier

Event = tuple[Any, ...]
COPYING = -1
"""The barrier of the producer's warps."""


Traced = tuple[dict[int, list[Event]], dict[int, int]]


def traces(graph: Any, sizes: dict[str, int], stages: int) -> tuple[int, list[Traced]]:
    """For each block: what its partitions do, and how many arrive at each barrier."""
    plan, (kernel,), _ = lowered(graph, stages=stages)
    found: list[Any] = []
    block_type = ttgir_machine.ThreadBlock
    arrive, copy, meet, begin = block_type.arrive, block_type.copy, block_type.meet, block_type.begin
    kept: list[Any] = []

    def note(block: Any, *event: Any) -> None:
        block.traced[block.current.number].append(event)

    def begin_(self: Any, bodies: Any, warps: Any) -> None:
        self.traced, self.counts = defaultdict(list), {}
        found.append((self.traced, self.counts))
        return begin(self, bodies, warps)

    def pause(self: Any, ready: Any = None, **more: Any) -> None:
        # the parity that this partition waits for: the closure of ``_wait``
        names = getattr(ready, "__code__", None) and ready.__code__.co_freevars
        if names == ("barrier", "parity"):
            barrier, number = (cell.cell_contents for cell in ready.__closure__)
            if len(self.partitions) > 1:
                kept.append(barrier)
                self.counts[id(barrier)] = barrier.count
                note(self, "wait", id(barrier), int(number))
        return original_pause(self, ready, **more)

    original_pause = block_type.pause

    def arrive_(self: Any, barrier: Barrier, count: int) -> None:
        if len(self.partitions) > 1:
            kept.append(barrier)
            self.counts[id(barrier)] = barrier.count
            note(self, "arrive", id(barrier), count, barrier.bytes if self.current.number == 0 else 0)
        return arrive(self, barrier, count)

    def copy_(self: Any, buffer: Any, barrier: Barrier, read: Any) -> None:
        rows, columns = buffer.shape[-2:]
        pieces = -(-rows // 256) * -(-columns * buffer.itemsize // 128)
        note(self, "copy", id(barrier), buffer.size * buffer.itemsize, pieces)
        return copy(self, buffer, barrier, read)

    def meet_(self: Any, number: int, threads: int, waits: bool) -> None:
        note(self, "meet", number, threads, waits)
        return meet(self, number, threads, waits)

    with (
        patch.object(block_type, "begin", begin_),
        patch.object(block_type, "pause", pause),
        patch.object(block_type, "arrive", arrive_),
        patch.object(block_type, "copy", copy_),
        patch.object(block_type, "meet", meet_),
    ):
        assert run(graph, {kernel.name: kernel.text}, sizes, 0, plan=plan) < 1e-2
    (marked,) = re.findall(rf"value = (\d) : i32}}> {{{re.escape(COPYING_WARPS)}}}", kernel.text)
    return int(marked), found


class Replay:
    """A block with each of the producer's warps by itself; the actor that is ``last`` goes on where no other can."""

    def __init__(
        self, traced: dict[int, list[Event]], counts: dict[int, int], warps: int, last: str | None, *, meet: bool
    ) -> None:
        """``meet``: whether the producer's warps do, behind what says that bytes of a tile are to come."""
        self.counts, self.last, self.meet = counts, last, meet
        self.arrived: dict[int, int] = defaultdict(int)
        self.bytes: dict[int, int] = defaultdict(int)
        self.phase: dict[int, int] = defaultdict(int)
        self.come: dict[int, int] = defaultdict(int)
        self.opened: dict[int, int] = defaultdict(int)
        self.actors = {f"warp {w}": self._of_warp(traced[0], w, warps) for w in range(warps)}
        self.actors |= {f"consumer {number - 1}": events for number, events in traced.items() if number}
        self.places = dict.fromkeys(self.actors, 0)
        self.met: dict[str, int | None] = dict.fromkeys(self.actors)

    def _of_warp(self, events: list[Event], warp: int, warps: int) -> list[Event]:
        found: list[Event] = []
        for event in events:
            if event[0] == "copy":
                _, barrier, size, pieces = event
                own = len([piece for piece in range(pieces) if piece % 4 == warp])
                found += [("come", barrier, size // pieces * own)] if own else []
            elif event[0] == "wait" or warp == 0:
                found.append(event)
            if self.meet and event[0] == "arrive":
                found.append(("meet", COPYING, warps, True))
        return found

    def _end(self, barrier: int) -> None:
        if self.arrived[barrier] == self.counts[barrier] and self.bytes[barrier] == 0:
            self.arrived[barrier], self.phase[barrier] = 0, self.phase[barrier] + 1

    def step(self, name: str) -> bool:
        if self.places[name] == len(self.actors[name]):
            return False
        kind, place, *rest = self.actors[name][self.places[name]]
        if kind == "wait":
            if self.phase[place] & 1 == rest[0] & 1:
                return False
        elif kind == "arrive":
            self.arrived[place] += rest[0]
            self.bytes[place] += rest[1]
            self._end(place)
        elif kind == "come":
            self.bytes[place] -= rest[0]
            self._end(place)
        else:
            threads, waits = rest
            if self.met[name] is None:
                self.met[name] = self.opened[place]
                self.come[place] += 1 if place == COPYING else 128
                if self.come[place] >= threads:
                    self.come[place], self.opened[place] = 0, self.opened[place] + 1
            if waits and self.opened[place] == self.met[name]:
                return False
            self.met[name] = None
        self.places[name] += 1
        return True

    def run(self) -> dict[str, Event]:
        """What is waited for at the end, by whom: nothing if all ended."""
        others = [name for name in self.actors if name != self.last]
        while any(self.step(name) for name in others) or (self.last and self.step(self.last)):
            pass
        left = {name: self.places[name] for name in self.actors if self.places[name] < len(self.actors[name])}
        return {name: (place, *self.actors[name][place]) for name, place in left.items()}


def _swiglu() -> Any:
    """Of 4096 x 14336 weights, cut to few iterations along k."""
    b = GraphBuilder("swiglu")
    x, w, v = b.input("m k=512", "f16"), b.input("k=512 n=512", "f16"), b.input("k=512 n=512", "f16")
    gate, up = (b.contract(x, y, over=["k"], dtype="f32") for y in (w, v))
    return b.build(b.cast(b.mul(b.mul(gate, b.sigmoid(gate)), up), dtype="f16"))


SAFE = {
    "attention-64": (graphs.attention(division_last=True), {"h": 2, "m": 130, "n": 600}),
    "attention-128": (graphs.attention(division_last=True, head=128), {"h": 2, "m": 130, "n": 600}),
    "matmul": (matmul(), {"m": 300}),
}
"""Each warp copies a part of all that a consumer waits for at once."""
UNSAFE = {
    "swiglu": (_swiglu(), {"m": 300}),  # two copies side by side, each by half as many warps as are let in
    "normalised": (normalised(), {"m": 300}),  # rows that stay, by 2 warps, and weights, by 1
    "attention-64-128": (graphs.grouped_attention(2, 4, 64, 128), {"m": 130, "n": 600}),  # keys by 1, values by 2
    "attention-128-64": (graphs.grouped_attention(2, 4, 128, 64), {"m": 130, "n": 600}),
}
CASES = SAFE | UNSAFE


def stopped(case: str, *, meet: bool) -> list[dict[str, Event]]:
    """What some actors wait for in vain, where one of the producer's warps goes on last."""
    graph, sizes = CASES[case]
    warps, blocks = traces(graph, sizes, 3)
    slow = [None, *(f"warp {w}" for w in range(warps))]
    found = (Replay(*block, warps, last, meet=meet).run() for block in blocks for last in slow)
    return [left for left in found if left]


@pytest.mark.parametrize("case", CASES)
def test_any_warp_may_be_slow(case: str) -> None:
    assert not stopped(case, meet=True)


@pytest.mark.parametrize("case", UNSAFE)
def test_without_meeting_some_would_wait_for_ever(case: str) -> None:
    assert stopped(case, meet=False)


@pytest.mark.parametrize("case", CASES)
def test_warps_meet_for_each_tile(case: str) -> None:
    """Between a wait for a buffer and the copies into it, and so between two waits."""
    _, (kernel,), _ = lowered(CASES[case][0], stages=3)
    options = {"num_warps": 4, "num_stages": 3}
    request = {"text": kernel.text, "stop": "ptx", "arch": 90, "timeout": 90.0, "options": options}
    ptx = triton_worker.compiled(request)["ptx"]
    events = {"mbarrier.try_wait": "wait", "mbarrier.arrive.expect_tx": "expect", "cp.async.bulk.tensor": "copy"}
    found = re.findall(
        r"mbarrier\.try_wait|mbarrier\.arrive\.expect_tx|bar\.sync \t?\w+, %r\d+;|cp\.async\.bulk\.tensor\.\dd\.shared",
        ptx,
    )
    order = [next((name for start, name in events.items() if each.startswith(start)), "meet") for each in found]
    filled = [place for place, each in enumerate(order) if each == "expect"]
    assert filled and order.count("meet") >= len(filled)
    for place in filled:
        behind = order[place + 1 :]
        assert behind[0] == "meet" and "copy" in behind
        assert behind.index("copy") < (behind.index("wait") if "wait" in behind else len(behind))
