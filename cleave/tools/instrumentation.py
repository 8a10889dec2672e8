"""What ``cleave-opt`` shows of a pipeline while it runs, on standard error: IR dumps and times."""

from __future__ import annotations

import sys
import time
from collections import defaultdict

from cleave.bindings import ir
from cleave.tools.command_line import Options


class Instrumentation:
    """Called around each pass; dumps are of the whole module."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._seconds: dict[str, float] = defaultdict(float)
        self._calls: dict[str, int] = defaultdict(int)
        self._start = time.perf_counter()
        self._pass_start = 0.0
        self._last = ""

    def before(self, name: str, module: ir.Module) -> None:
        if self.options.print_before_all or name in self.options.print_before:
            self._dump(f"Before {name}", module)
        if self.options.print_after_change:
            self._last = self._text(module)
        self._pass_start = time.perf_counter()

    def after(self, name: str, module: ir.Module, succeeded: bool) -> None:
        self.record(name, time.perf_counter() - self._pass_start)
        if not succeeded:
            if self.options.print_after_failure or self._wants_after(name):
                self._dump(f"After {name} Failed", module)
            return
        if self.options.print_after_change:
            if self._text(module) != self._last:
                self._dump(f"After {name}", module)
        elif self._wants_after(name):
            self._dump(f"After {name}", module)

    def record(self, name: str, seconds: float) -> None:
        """Count time spent on ``name``."""
        self._seconds[name] += seconds
        self._calls[name] += 1

    def report_times(self) -> None:
        """The table of ``--mlir-timing``: wall time of each pass over all runs, and of the rest."""
        total = time.perf_counter() - self._start
        rows = [*self._seconds.items(), ("rest", total - sum(self._seconds.values())), ("total", total)]
        print("===-- execution time: wall seconds, share, runs --===", file=sys.stderr)
        for name, seconds in rows:
            runs = self._calls.get(name, 1)
            print(f"  {seconds:9.4f}  {100 * seconds / max(total, 1e-9):5.1f} %  {runs:4d}  {name}", file=sys.stderr)

    def _wants_after(self, name: str) -> bool:
        return self.options.print_after_all or name in self.options.print_after

    def _dump(self, what: str, module: ir.Module) -> None:
        print(f"// -----// IR Dump {what} //----- //\n{self._text(module)}\n", file=sys.stderr)

    def _text(self, module: ir.Module) -> str:
        return print_module(module, self.options, assume_verified=False)


def print_module(module: ir.Module, options: Options, *, assume_verified: bool = True) -> str:
    """The module as text, without the newline at the end."""
    text = module.operation.get_asm(
        print_generic_op_form=options.generic, enable_debug_info=options.debug_info, assume_verified=assume_verified
    )
    return str(text).rstrip("\n")
