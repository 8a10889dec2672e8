"""Consumers that run one code: of partitions that differ by their number alone Triton compiles one.

In TTGIR each consumer is a partition of its own, and its number is a constant (``NUMBER`` marks it). Triton knows no
two partitions of one code, so the process that runs it does two things. Ahead of its passes only the first consumer
keeps its body, where a thread computes the number from its place (``with_one_body``). Behind the pass that makes blocks
of partitions the warps of the other consumers are sent to the first one's (``send_to_one_code``); where its threads
begin, and at which named barrier they meet, which Triton has made constants there, follows from the number, too.

So LLVM and ptxas have half of the work, or a third of it, and instruction caches half of the code.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

NUMBER = "cleave.consumer"
"""Marks the constant that is a consumer's number: it is the first op of its partition, and there are several."""
_WARPS, _THREADS = 4, 128
"""Of each partition, and of the default one, which has the first threads of a block."""
_FIRST_BARRIER = 2
"""Triton's for the partition behind the default one."""
_PASS = "add_warp_specialize_to_llvm"
"""Adds the pass that makes blocks of partitions, and constants of what they have of their own."""

_GROUP = f"mov.u32 $0, %tid.x; shr.u32 $0, $0, {_THREADS.bit_length() - 1}; shfl.sync.idx.b32 $0, $0, 0, 31, -1;"
_COMPUTED = {
    "number": f"{_GROUP} sub.u32 $0, $0, 1;",
    "thread": f"mov.u32 $0, %tid.x; and.b32 $0, $0, {_THREADS - 1}; add.u32 $0, $0, {_THREADS};",
    "barrier": f"{_GROUP} add.u32 $0, $0, {_FIRST_BARRIER - 1};",
}
"""What a thread computes for itself: its consumer's number; the thread in its place of the first consumer; where it
meets the others of its consumer. All threads of a warp have the same number, which ``shfl`` makes known to ptxas."""
_CONSTANT = re.compile(rf' *(%\w+) = "arith\.constant"\(\) <[^>]*> \{{{re.escape(NUMBER)}\}} : \(\) -> i32(.*)')


class NotOneCode(Exception):
    """The module is not as this file knows it of Triton's versions: each consumer is to have a code of its own."""


def with_one_body(text: str) -> str | None:
    """TTGIR, generic, in which all consumers but the first are empty; None where they are not alike."""
    lines = text.split("\n")
    numbers = [(place, found) for place, line in enumerate(lines) if (found := _CONSTANT.fullmatch(line))]
    if len(numbers) < 2:
        return None
    for place, _ in reversed(numbers[1:]):
        indent = lines[place][: len(lines[place]) - len(lines[place].lstrip())]
        end = next(at for at in range(place, len(lines)) if lines[at].startswith(f'{indent}"ttg.warp_return"'))
        del lines[place:end]
    place, found = numbers[0]
    names = {"number": found[1], "thread": "%cleave_thread", "barrier": "%cleave_barrier"}
    lines[place : place + 1] = [_computed(names[what], text, found[2]) for what, text in _COMPUTED.items()]
    return "\n".join(lines)


def _computed(name: str, text: str, location: str) -> str:
    attributes = f'asm_string = "{text}", constraints = "=r", packed_element = 1 : i32, pure = false'
    return f'{name} = "tt.elementwise_inline_asm"() {{{attributes}}} : () -> i32{location}'


# --- behind Triton's pass ---------------------------------------------------------------------------------------------


def send_to_one_code(module: Any) -> None:
    """The warps of all consumers to the code of the first one. NotOneCode if that is not found."""
    ops: list[Any] = []
    module.walk(ops.append)
    names = [op.get_name() for op in ops]
    assembly = [place for place, name in enumerate(names) if name == "llvm.inline_asm"]
    computed = {ops[place].get_str_attr("asm_string"): place for place in assembly}
    if any(text not in computed for text in _COMPUTED.values()):
        raise NotOneCode
    at = computed[_COMPUTED["barrier"]]
    limits = [place for place, name in enumerate(names) if name == "nvvm.setmaxregister"]
    begin, end = max(place for place in limits if place < at), min(place for place in limits if place > at)
    barrier, thread = (ops[computed[_COMPUTED[what]]].get_result(0) for what in ("barrier", "thread"))
    for place in range(begin, end):
        if names[place] == "nvvm.barrier":
            id_, made = ops[place].get_operand(0), ops[place - 2]
            if names[place - 2] != "llvm.mlir.constant" or made.get_result(0).id() != id_.id():
                raise NotOneCode
            id_.replace_all_uses_with(barrier)
        elif names[place] == "nvvm.read.ptx.sreg.tid.x":
            if place < at:
                raise NotOneCode
            ops[place].get_result(0).replace_all_uses_with(thread)
    stores = [op for op, name in zip(ops, names, strict=True) if name == "llvm.store"]
    _send(stores)


def _send(stores: Sequence[Any]) -> None:
    """A byte for each warp behind the default partition's says where it goes."""
    bytes_ = [store for store in stores if str(store.get_operand(0).get_type()) == "i8"]
    _, group = next(groupby(bytes_, key=lambda store: store.get_block().id()), (None, ()))
    first, *others = [store.get_operand(0) for store in group] or [None]
    if first is None or len(others) % _WARPS != _WARPS - 1:
        raise NotOneCode
    for where in others[_WARPS - 1 :]:
        where.replace_all_uses_with(first)


class _Passes:
    """Stands for Triton's pass manager, which runs all its passes at once: behind one of them it edits the module."""

    def __init__(self, make: Any, context: Any) -> None:
        self._make, self._context = make, context
        self.managers = [make(context)]

    def enable_debug(self) -> None:
        self.managers[-1].enable_debug()

    def split(self) -> None:
        self.managers.append(self._make(self._context))
        self.enable_debug()

    def run(self, module: Any, name: str) -> None:
        first, *rest = self.managers
        first.run(module, name)
        for manager in rest:
            send_to_one_code(module)
            manager.run(module, name)


class _Module:
    """One of Triton's extension modules, whose functions are given the manager that a ``_Passes`` stands for."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if name == "pass_manager":
            return lambda context: _Passes(found, context)
        if isinstance(found, type) or not callable(found):
            return _Module(found) if type(found).__name__ == "module" else found
        return lambda *arguments, **named: _call(found, name, arguments, named)


def _call(function: Any, name: str, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
    passes = next((each for each in arguments if isinstance(each, _Passes)), None)
    given = [each.managers[-1] if isinstance(each, _Passes) else each for each in arguments]
    result = function(*given, **named)
    if passes and name == _PASS:
        passes.split()
    return result


@contextmanager
def one_code() -> Generator[None]:
    """Within it Triton's stages send all consumers to one code."""
    from triton.backends.nvidia import compiler

    given = {name: getattr(compiler, name) for name in ("ir", "passes", "nvidia")}
    for name, module in given.items():
        setattr(compiler, name, _Module(module))
    try:
        yield
    finally:
        for name, module in given.items():
            setattr(compiler, name, module)
