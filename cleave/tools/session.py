"""One run of ``cleave-opt``: parse, run the passes, print. Runs in the child process (``isolation``)."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cleave import bindings
from cleave.bindings import MLIRError, ir
from cleave.errors import CleaveError, Position
from cleave.passes import diagnostics, registry
from cleave.passes.diagnostics import Diagnostic
from cleave.passes.steps import OwnStep, Step, resolve
from cleave.tools import expected_diagnostics, files
from cleave.tools.command_line import FLAGS, QUOTE_IT, EmitKind, Options, did_you_mean, is_torn, other_targets
from cleave.tools.files import Source
from cleave.tools.instrumentation import Instrumentation, print_module
from cleave.tools.internal_error import describe_exception
from cleave.tools.isolation import Watch
from cleave.tools.layouts import Around, wider

_SEPARATOR = re.compile(r"^// -----[^\n]*\n?", re.MULTILINE)
_ANONYMOUS = "-"  # MLIR's name for text that is in no file
_LOWERED = "cleave.kernel_module"  # what marks the modules that hold Triton's ops
_TRITON = frozenset(("tt", "ttg", "ttng"))
_FOREIGN = {
    "torch": 'torch_mlir.fx.export_and_import(…, output_type="linalg-on-tensors")',
    "stablehlo": "stablehlo-opt --stablehlo-legalize-to-linalg",
}
"""Dialects that others export and MLIR has not, and what makes linalg of each."""


@dataclass(frozen=True)
class Chunk:
    """A part of the input and the line on which it starts."""

    text: str
    first_line: int


class Session:
    """The state of one run: options, context, and what has been reported for the chunk at hand."""

    def __init__(self, options: Options, source: Source, watch: Watch) -> None:
        self.options, self.source, self.watch = options, source, watch
        self.sources = dict(options.texts)
        self.reported: list[Diagnostic] = []
        self.instrumentation = Instrumentation(options)
        self.verifier = registry.create("cleave-verify")

    def run(self) -> list[str | bytes] | None:
        """The output of each chunk; None, after diagnostics, if anything failed."""
        with diagnostics.collecting(self.report):
            self.watch.stage = "loading MLIR"
            self.ctx = bindings.context(allow_unregistered=self.options.allow_unregistered)
            handler: Any = self.ctx.attach_diagnostic_handler(self._from_mlir)
            try:
                return self._run()
            finally:
                self.watch.forward()
                handler.detach()

    def report(self, diagnostic: Diagnostic) -> None:
        """Print a diagnostic, or keep it for ``--verify-diagnostics``."""
        diagnostic = self._in_file(diagnostic)
        if diagnostic.severity == "remark" and diagnostic in self.reported:
            return  # what each of several passes has to say of the same function
        self.reported.append(diagnostic)
        if not self.options.verify_diagnostics:
            self.show(diagnostic)

    def show(self, diagnostic: Diagnostic) -> None:
        self.watch.forward()
        print(diagnostics.render(diagnostic, self.sources, self.source.name), file=sys.stderr)

    def _from_mlir(self, info: ir.Diagnostic) -> bool:
        diagnostic = diagnostics.from_mlir(info)
        foreign = re.match(r"""Dialect `(\w+)' not found|`!"(\w+)"<""", diagnostic.message)
        way = _FOREIGN.get(foreign[1] or foreign[2]) if foreign else None
        if way is not None:
            note = Diagnostic("note", diagnostic.position, f"lower it to linalg on tensors first: {way}")
            diagnostic = replace(diagnostic, notes=(*diagnostic.notes, note))
        self.report(diagnostic)
        return True

    def _in_file(self, diagnostic: Diagnostic) -> Diagnostic:
        """The diagnostic with the input's name for what MLIR calls "-", and a place for what has only a file."""
        position = diagnostic.position
        if position is not None and position.file == _ANONYMOUS:
            position = replace(position, file=self.source.name)
        if position is not None and position.line < 1:
            position = replace(position, line=1, column=1)
        return replace(diagnostic, position=position, notes=tuple(map(self._in_file, diagnostic.notes)))

    # --- the run -----------------------------------------------------------------------------------------------------

    def _run(self) -> list[str | bytes] | None:
        steps = self._steps()
        if steps is None:
            return None
        self._read()
        outputs = [self._chunk(chunk, steps) for chunk in self._chunks()]
        if self.options.timing:
            self.instrumentation.report_times()
        return None if None in outputs else [output for output in outputs if output is not None]

    def _read(self) -> None:
        """Only now, since whoever types the input should not do so for options that are wrong."""
        self.watch.stage = "reading the input"
        if self.source.text is not None:
            self.sources[self.source.name] = self.source.text

    def _steps(self) -> list[Step] | None:
        self.watch.stage = "reading the pipeline"
        try:
            steps = [resolve(element, self.ctx, nest_as_needed=flag) for element, flag in self.options.elements]
        except CleaveError as error:
            for diagnostic in diagnostics.from_error(error):
                self.show(self._with_hint(diagnostic))
            return None
        if self.options.dump_pipeline:
            print(f"builtin.module({','.join(step.text for step in steps)})", file=sys.stderr)
        for index, done in _late([step.name for step in steps]):
            again = steps[index].name == done
            text = f"behind {done}, {steps[index].name} finds nothing to do{'' if again else f': put it before {done}'}"
            self.show(Diagnostic("warning", self.options.elements[index][0].position, text))
        for element, text in other_targets(self.options):
            self.show(Diagnostic("warning", element.options_position, text))
        return steps

    def _with_hint(self, diagnostic: Diagnostic) -> Diagnostic:
        """An unknown flag may be meant as an option that is no pass, or be part of one."""
        named = re.match(r"no pass '([^']+)'", diagnostic.message)
        if named and is_torn(named[1]):
            return replace(diagnostic, notes=(Diagnostic("note", diagnostic.position, QUOTE_IT), *diagnostic.notes))
        if named is None or diagnostic.position is None or not diagnostic.position.file.startswith(FLAGS):
            return diagnostic
        text = diagnostic.message.replace(f"no pass '{named[1]}'", f"no option or pass '--{named[1]}'")
        near = did_you_mean(named[1])
        return replace(diagnostic, message=f"{text.partition(';')[0]}; did you mean --{near}?" if near else text)

    def _chunks(self) -> Iterator[Chunk | None]:
        """The parts of the input; None for bytecode."""
        text = self.source.text
        if text is None:
            yield None
            return
        start = 0
        for separator in _SEPARATOR.finditer(text) if self.options.split else ():
            yield Chunk(text[start : separator.start()], text.count("\n", 0, start) + 1)
            start = separator.end()
        yield Chunk(text[start:], text.count("\n", 0, start) + 1)

    def _chunk(self, chunk: Chunk | None, steps: list[Step]) -> str | bytes | None:
        self.reported = []
        output = self._process(chunk, steps)
        if not self.options.verify_diagnostics:
            return output
        text, line = (chunk.text, chunk.first_line) if chunk else ("", 1)
        problems = expected_diagnostics.check(text, self.source.name, line, self.reported)
        for problem in problems:
            self.show(problem)
        return None if problems else output or ""

    def _process(self, chunk: Chunk | None, steps: list[Step]) -> str | bytes | None:
        module = self._parse(chunk)
        if module is None or not self._own_verify(module):
            return None
        around = self._around_parts(module)
        if around is None or not all(self._step(step, module) for step in steps):
            return None
        if self.options.emit != "mlir":
            return self._emit(module, self.options.emit, around, steps)
        return print_module(module, self.options) + "\n"

    def _parse(self, chunk: Chunk | None) -> ir.Module | None:
        self.watch.stage = "the parser"
        start = time.perf_counter()
        try:
            with self.ctx:
                return self._parsed_as_written(chunk)
        except MLIRError:
            self._ensure_error(*self._unexplained_parse_error())
            return None
        finally:
            self.watch.forward()
            self.instrumentation.record("parser", time.perf_counter() - start)

    def _parsed_as_written(self, chunk: Chunk | None) -> ir.Module | None:
        """With Triton's ops, which MLIR does not know, where the text is what ``--lower-to-triton`` has written."""
        lowered = _LOWERED in chunk.text if chunk else _LOWERED.encode() in self.source.data
        self.ctx.allow_unregistered_dialects = self.options.allow_unregistered or lowered
        module = self._parsed(chunk)
        if not lowered or self.options.allow_unregistered:
            return module
        unknown = _unknown_ops(module)
        for op in unknown:
            self._report_all(CleaveError(f"'{op.name}' is an op of no known dialect", op.location, (_ALLOW,)))
        return None if unknown else module

    def _parsed(self, chunk: Chunk | None) -> ir.Module:
        """MLIR reads a named file itself, for the file name in locations; a part gets blank lines before it."""
        if chunk is None:
            return ir.Module.parse(self.source.data)
        if self.options.split or self.source.name == files.STDIN or not self.source.regular:
            return ir.Module.parse("\n" * (chunk.first_line - 1) + chunk.text)
        return ir.Module.parseFile(self.source.name)

    def _step(self, step: Step, module: ir.Module) -> bool:
        self.watch.stage = f"pass {step.name}"
        self.instrumentation.before(step.name, module)
        own = isinstance(step, OwnStep)
        succeeded = self._guarded(step, module)
        self.watch.forward()
        self.instrumentation.after(step.name, module, succeeded)
        if not succeeded:
            self._ensure_error(f"pass {step.name} failed")
        return succeeded and (not own or self._own_verify(module, step.name))

    def _guarded(self, step: Step, module: ir.Module) -> bool:
        """Run the step; what it raises becomes a diagnostic."""
        try:
            return step.run(module, self.options.verify_each)
        except CleaveError as error:
            self._report_all(error)
        except Exception as error:
            self.report(describe_exception(error, f"pass {step.name}", Position(self.source.name, 1, 1)))
        return False

    def _own_verify(self, module: ir.Module, after: str | None = None) -> bool:
        """``cleave-verify`` on the input and after each pass of ours."""
        if not self.options.verify_each:
            return True
        self.watch.stage = "pass cleave-verify"
        try:
            self.verifier.apply(self.ctx, module)
        except CleaveError as error:
            self._report_all(error)
            return False
        except Exception as error:
            where = f"cleave-verify after {after}" if after else "cleave-verify"
            self.report(describe_exception(error, where, Position(self.source.name, 1, 1)))
            return False
        return True

    def _around_parts(self, module: ir.Module) -> list[Around] | None:
        """The input for each of the ``--layouts``, before the passes, which may take long; None where one is none."""
        if not self.options.layouts:
            return []
        from cleave.lowering.package import packed_function

        try:
            source, name = str(module.operation.get_asm(enable_debug_info=True)), packed_function(module)
            return [wider(source, name, lying) for lying in self.options.layouts]
        except CleaveError as error:
            self._report_all(error)
            return None

    def _emit(self, module: ir.Module, kind: EmitKind, around: list[Around], steps: list[Step]) -> str | bytes | None:
        """``around``: of which the ``steps`` make what a package has beside the module."""
        from cleave.lowering.emit import emit

        self.watch.stage = f"--emit={kind}"
        try:
            if kind == "package":
                return self._package(module, around, steps)
            return emit(module, kind, self.options.target, kernel=self.options.kernel)
        except CleaveError as error:
            self._report_all(error)
        except Exception as error:
            self.report(describe_exception(error, f"--emit={kind}", Position(self.source.name, 1, 1)))
        return None

    def _package(self, module: ir.Module, around: list[Around], steps: list[Step]) -> bytes | None:
        """The function of the module; and what the steps make of it for each of the layouts."""
        from cleave.lowering.package import package_of

        package = package_of(module, self.options.target)
        variants = list(package.variants)
        for text, parts in around:
            with self.ctx:
                wide = ir.Module.parse(text)
            if not all(self._step(step, wide) for step in steps):
                return None
            variants.append(replace(package_of(wide, self.options.target).variants[0], parts=parts))
        return replace(package, variants=tuple(variants)).to_bytes()

    def _report_all(self, error: CleaveError) -> None:
        for diagnostic in diagnostics.from_error(error):
            self.report(diagnostic)

    def _ensure_error(self, message: str, position: Position | None = None) -> None:
        """A failure without a word of why gets at least this one."""
        if not any(diagnostic.severity == "error" for diagnostic in self.reported):
            self.report(Diagnostic("error", position or Position(self.source.name, 1, 1), message))

    def _unexplained_parse_error(self) -> tuple[str, Position | None]:
        """MLIR says nothing where an op of an IRDL dialect is written without quotes."""
        text = self.source.text or ""
        bare = re.search(r'(?<!["\w.#!@%$])cleave\.(?P<op>\w+)(?=[^"\n]*$)', text, re.MULTILINE)
        if bare is None:
            return "the input cannot be parsed", None
        line_start = text.rfind("\n", 0, bare.start()) + 1
        position = Position(self.source.name, text.count("\n", 0, bare.start()) + 1, bare.start() - line_start + 1)
        return f'ops of Cleave have the generic form only: "cleave.{bare["op"]}"(%operand) : (type) -> type', position


_STAGES = ("superopt", "schedule", "lower-to-")


def _late(names: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The passes, by number, that stand behind one that leaves nothing of what they work on, and that one.

    What is imported after it is work again.
    """
    last, done = -1, ""
    for index, name in enumerate(names):
        plain = name.removeprefix("cleave-")
        stage = next((number for number, each in enumerate(_STAGES) if plain.startswith(each)), None)
        if plain == "import-linalg":
            last = -1
        elif stage is not None and (stage < last or name == done == "cleave-schedule"):
            yield index, done
        elif stage is not None:
            last, done = stage, name


_ALLOW = "--allow-unregistered-dialect lets ops of unknown dialects through"


def _unknown_ops(module: ir.Module) -> list[ir.Operation]:
    """The ops of dialects that neither MLIR nor Triton has."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name.partition(".")[0] not in _TRITON and not op.context.is_registered_operation(op.name):
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found
