"""Partitions as Triton's passes do not know them: several of one code, and one of which some warps sleep.

In TTGIR each consumer is a partition of its own, and its number is a constant; the producer, the default partition, has
four warps. That is what it means, and Triton compiles it. Of what is marked there the process that runs Triton makes
less. Consumers that differ by their number alone are one code: LLVM and ptxas have half of the work, or a third of it,
and instruction caches half of the code. Of the producer's warps only those run that start copies: Triton gives each
part of a tile, of 128 bytes of its rows, to another one.

Ahead of Triton's passes only the first consumer keeps its body, where a thread computes the number from its place, and
the producer's is in a branch (``with_fewer_bodies``). Behind the pass that makes blocks of partitions the warps of the
other consumers are sent to the first one's (``_send``), and what Triton has made constants there is put right: where a
partition's threads begin, and at which named barrier how many of them meet. In PTX, at last, consumers get a block's
first warps and the producer its last ones (``consumers_first``): with the producer in front causal attention takes
2.7 % longer on an H200, as if warps with lower numbers came first where several could go on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

NUMBER, COPYING_WARPS = "cleave.consumer", "cleave.copying_warps"
"""Mark the constant that is a consumer's number, the first op of its partition, where all are alike; and one in the
default partition that says for how many of its warps all is that stands behind."""
_WARPS, _THREADS = 4, 128
"""Of each partition; those of the default one are a block's first."""
_FIRST_BARRIER = 2
"""Triton's for the partition behind the default one."""


_TURNED, _AS_IT_IS = "mov.u32 $0, %tid.x;", "mov.b32 $0, %tid.x;"
"""How a thread's number is read: as ``consumers_first`` turns it, and as the hardware has it."""
_OF_ALL = "shfl.sync.idx.b32 $0, $0, 0, 31, -1;"
"""Makes known to ptxas that a number is the same for all of a warp."""
_GROUP = f"{_AS_IT_IS} shr.u32 $0, $0, 7; {_OF_ALL}"
_OF_CONSUMERS = {
    "number": _GROUP,
    "thread": f"{_AS_IT_IS} and.b32 $0, $0, {_THREADS - 1}; add.u32 $0, $0, {_THREADS};",
    "barrier": f"{_GROUP} add.u32 $0, $0, {_FIRST_BARRIER};",
}
"""What a thread computes for itself: its consumer's number; the thread in its place of the first consumer; where it
meets the others of its consumer."""
_OF_COPYING_WARPS = {"warp": f"{_TURNED} shr.u32 $0, $0, 5; {_OF_ALL}", "threads": "shl.b32 $0, $1, 5;"}
"""Which it is of, and how many threads meet of so many warps. They do for each tile: one that copies nothing of some
tiles waits for their buffers, too; were it slow, these would be filled, read and filled again under its wait."""
_CONSTANT = re.compile(r' *(%\w+) = "arith\.constant"\(\) <[^>]*> \{(cleave\.\w+)\} : \(\) -> i32(.*)')


class UnknownPartitions(Exception):
    """Triton has not made of them what this file knows: they are to be compiled as they are."""


class OwnMemory(UnknownPartitions):
    """Consumers have shared memory of their own, for what Triton moves between threads: they cannot be one code."""


def with_fewer_bodies(text: str, *, one_code: bool = True) -> str:
    """TTGIR, generic, in which consumers that are alike have one body, and what is for some warps is in a branch.

    Not ``one_code``: all consumers keep theirs.
    """
    lines = text.split("\n")
    found = [(place, match) for place, line in enumerate(lines) if (match := _CONSTANT.fullmatch(line))]
    numbers = [each for each in found if each[1][2] == NUMBER and one_code]
    for place, _ in reversed(numbers[1:]):
        del lines[place : _end(lines, place, "ttg.warp_return")]
    for place, number in numbers[:1]:
        lines[place : place + 1] = _computed(_OF_CONSUMERS, number[3], number=number[1])
    for place, warps in (each for each in found if each[1][2] == COPYING_WARPS):
        end = _end(lines, place, "ttg.warp_yield")
        lines[end:end] = ['"scf.yield"() : () -> ()', "}, {", "}) : (i1) -> ()"]
        copies = f'%cleave_copies = "arith.cmpi"(%cleave_warp, {warps[1]}) <{{predicate = 6 : i64}}> : (i32, i32) -> i1'
        branch = [*_computed(_OF_COPYING_WARPS, warps[3], operand=warps[1]), copies, '"scf.if"(%cleave_copies) ({']
        lines[place + 1 : place + 1] = branch
    return "\n".join(lines)


def _end(lines: Sequence[str], place: int, name: str) -> int:
    """Where the region ends that has line ``place`` among its ops."""
    indent = lines[place][: len(lines[place]) - len(lines[place].lstrip())]
    found = (at for at in range(place, len(lines)) if lines[at].startswith(f'{indent}"{name}"'))
    end = next(found, None)
    if end is None:
        raise UnknownPartitions
    return end


def _computed(texts: dict[str, str], location: str, *, operand: str = "", **names: str) -> list[str]:
    """``operand``: what texts with ``$1`` are given."""
    lines: list[str] = []
    for name, text in texts.items():
        given, type_, kinds = (operand, "i32", "=r,r") if "$1" in text else ("", "", "=r")
        attributes = f'asm_string = "{text}", constraints = "{kinds}", packed_element = 1 : i32, pure = false'
        result = names.get(name, f"%cleave_{name}")
        lines.append(f'{result} = "tt.elementwise_inline_asm"({given}) {{{attributes}}} : ({type_}) -> i32{location}')
    return lines


# --- behind Triton's passes -------------------------------------------------------------------------------------------


_SECOND = re.compile(r"^ *partition1\(.*", re.MULTILINE | re.DOTALL)


def check_memory(module: Any) -> None:
    """OwnMemory if there is some for ops of a consumer that others are to run at the same time."""
    _, *partitions = str(module).split(" partition0(")
    first = _SECOND.sub("", partitions[0]) if partitions else ""
    several = bool(partitions) and first != partitions[0]
    if several and _OF_CONSUMERS["number"] in first and "allocation.offset" in first:
        raise OwnMemory


class _Lowered:
    """The ops of a module in which partitions are blocks, in order, and where among them something computed stands."""

    def __init__(self, module: Any) -> None:
        self.ops: list[Any] = []
        module.walk(self.ops.append)
        self.names = [op.get_name() for op in self.ops]
        assembly = [place for place, name in enumerate(self.names) if name == "llvm.inline_asm"]
        self.computed = {self.ops[place].get_str_attr("asm_string"): place for place in assembly}

    def has(self, texts: dict[str, str]) -> bool:
        return any(text in self.computed for text in texts.values())

    def value(self, text: str) -> Any:
        return self.ops[self.computed[text]].get_result(0)

    def partition(self, text: str) -> range:
        """The places of the partition that computes this; each begins and ends by a change of its registers."""
        at = self.computed[text]
        changes = [place for place, name in enumerate(self.names) if name == "nvvm.setmaxregister"]
        begins, ends = ([place for place in changes if side * place > side * at] for side in (-1, 1))
        if not begins:
            raise UnknownPartitions
        return range(begins[-1], ends[0] if ends else len(self.ops))

    def barrier_operands(self, places: range, number: int) -> list[Any]:
        """Of its barriers, each a constant made for it alone: two stand before each."""
        barriers = [place for place in places if self.names[place] == "nvvm.barrier"]
        if not all(self._is_made(place, number, 2 - number) for place in barriers):
            raise UnknownPartitions
        return [self.ops[place].get_operand(number) for place in barriers]

    def threads(self, places: range, at: int) -> list[Any]:
        """Where a thread's number is read; behind place ``at`` all."""
        found = [place for place in places if self.names[place] == "nvvm.read.ptx.sreg.tid.x"]
        if any(place < at for place in found):
            raise UnknownPartitions
        return [self.ops[place].get_result(0) for place in found]

    def destinations(self) -> list[Any]:
        """A byte for each warp behind the default partition's says where it goes: the first constants that are stored
        as they are made, ahead of their addresses. Bytes that a kernel computes are no such."""
        stores = [place for place, name in enumerate(self.names) if name == "llvm.store" and self._is_made(place, 0, 2)]
        stored = ((self.ops[place].get_block().id(), self.ops[place].get_operand(0)) for place in stores)
        bytes_ = [(block, value) for block, value in stored if str(value.get_type()) == "i8"]
        _, first = next(groupby(bytes_, key=lambda each: each[0]), (0, ()))
        found = [value for _, value in first]
        if not found or len(found) % _WARPS:
            raise UnknownPartitions
        return found

    def _is_made(self, place: int, number: int, before: int) -> bool:
        """Whether an operand is a constant that stands so many ops before."""
        made = self.ops[place - before]
        constant = self.names[place - before] == "llvm.mlir.constant"
        return constant and made.get_result(0).id() == self.ops[place].get_operand(number).id()


def _send(module: Any) -> None:
    """The warps of all consumers to the code of the first one; at the producer's barrier meet those of it that copy."""
    lowered = _Lowered(module)
    if lowered.has(_OF_CONSUMERS):
        barrier, thread = (_OF_CONSUMERS[name] for name in ("barrier", "thread"))
        places = lowered.partition(barrier)
        _replace(lowered.barrier_operands(places, 0), lowered.value(barrier))
        _replace(lowered.threads(places, lowered.computed[barrier]), lowered.value(thread))
        first, *others = lowered.destinations()
        _replace(others[_WARPS - 1 :], first)
    if lowered.has(_OF_COPYING_WARPS):
        threads = _OF_COPYING_WARPS["threads"]
        behind = range(lowered.computed[threads], lowered.partition(threads).stop)
        _replace(lowered.barrier_operands(behind, 1), lowered.value(threads))


_OF_CONSUMER = re.compile(r"mov\.b32 %\w+, %tid\.x;")
_THREAD = re.compile(r"mov\.u32(\s+)(%?\w+), %tid\.x;")


def consumers_first(ptx: str, warps: int) -> str:
    """PTX of so many warps, in which warpgroups have their places in reverse, where consumers have one code."""
    if not _OF_CONSUMER.search(ptx):
        return ptx
    last = 32 * warps - _THREADS
    reverse = rf"\2, %tid.x; and.b32 place, \2, {_THREADS - 1}; shl.b32 place, place, 1; sub.u32 \2, place, \2;"
    found, count = _THREAD.subn(rf"{{ .reg .b32 place; mov.u32\1{reverse} add.u32 \2, \2, {last}; }}", ptx)
    if not count:
        raise UnknownPartitions
    return found


def _replace(values: Sequence[Any], value: Any) -> None:
    for each in values:
        each.replace_all_uses_with(value)


BEHIND: dict[str, Callable[[Any], None]] = {
    "add_allocate_shared_memory_nv": check_memory,
    "add_warp_specialize_to_llvm": _send,
}
"""What is done behind passes, by the functions that add them."""


class _Passes:
    """Stands for Triton's pass manager, which runs all its passes at once: behind some of them it does more."""

    def __init__(self, make: Callable[[Any], Any], context: Any) -> None:
        self._make, self._context = make, context
        self.steps: list[Callable[[Any], None]] = []
        self._begin()

    def _begin(self) -> None:
        self.manager = manager = self._make(self._context)
        self.steps.append(lambda module: manager.run(module, "make_llir"))

    def enable_debug(self) -> None:
        self.manager.enable_debug()

    def split(self, step: Callable[[Any], None]) -> None:
        """What is added from now on runs behind ``step``."""
        self.steps.append(step)
        self._begin()
        self.enable_debug()

    def run(self, module: Any, _: str) -> None:
        for step in self.steps:
            step(module)


class _Module:
    """One of Triton's extension modules, whose functions are given the manager that a ``_Passes`` stands for."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if name == "pass_manager":
            return lambda context: _Passes(found, context)
        if type(found).__name__ == "module":
            return _Module(found)
        if isinstance(found, type) or not callable(found):
            return found
        return lambda *arguments, **named: _called(found, name, arguments, named)


def _called(function: Callable[..., Any], name: str, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
    passes = next((each for each in arguments if isinstance(each, _Passes)), None)
    given = [each.manager if isinstance(each, _Passes) else each for each in arguments]
    result = function(*given, **named)
    if passes and name in BEHIND:
        passes.split(BEHIND[name])
    return result


@contextmanager
def fewer_bodies() -> Generator[None]:
    """Within it Triton's stages compile what ``with_fewer_bodies`` has made. They raise UnknownPartitions."""
    from triton.backends.nvidia import compiler

    given = {name: getattr(compiler, name) for name in ("ir", "passes", "nvidia")}
    for name, module in given.items():
        setattr(compiler, name, _Module(module))
    try:
        yield
    finally:
        for name, module in given.items():
            setattr(compiler, name, module)
