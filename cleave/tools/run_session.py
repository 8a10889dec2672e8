"""One run of ``cleave-run``: compile a function, run it on arrays, compare. In the child process (``isolation``)."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from cleave.bindings import ir
from cleave.dialects.cleave import choices_of
from cleave.errors import CleaveError, Position
from cleave.lowering import run_functions
from cleave.passes import diagnostics, pipelines, registry
from cleave.passes.diagnostics import position_of
from cleave.passes.functions import name_of, names_by_place, ops_inside
from cleave.passes.graph_io import EMPTY_ROWS
from cleave.passes.schedule import CHOSEN
from cleave.passes.steps import Step
from cleave.runtime.bind_sizes import CHOICE, bind_form, bind_sizes
from cleave.runtime.choose_sizes import PARTS, choose_free, choose_sizes
from cleave.runtime.launch_plan import LaunchPlan, TensorSpec
from cleave.tools import arrays, command_line
from cleave.tools.files import Source
from cleave.tools.internal_error import describe_exception
from cleave.tools.isolation import Watch
from cleave.tools.run_options import RunOptions
from cleave.tools.run_report import CheckedOutput, LaunchReport, Report
from cleave.tools.session import Chunk, Session

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


@dataclass
class Job:
    """What is known of a run, in the order in which it becomes known."""

    module: ir.Module  # goes through the passes
    source: ir.Module
    function: str
    arguments: list[TensorSpec] = field(default_factory=list[TensorSpec])
    results: list[TensorSpec] = field(default_factory=list[TensorSpec])
    inputs: list[Array] = field(default_factory=list["Array"])
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    chosen: frozenset[str] = frozenset()
    free: dict[str, int] = field(default_factory=dict[str, int])
    alternatives: list[str] = field(default_factory=list[str])
    facts: tuple[str, ...] = ()  # of the function as written
    symbols: set[str] = field(default_factory=set[str])  # of the program that was scheduled
    program: int | None = 0  # which alternative was scheduled; 0: the source; None: the input was scheduled already
    seconds: dict[str, float] = field(default_factory=dict[str, float])


class RunSession(Session):
    """``report`` is there after a run that had no error."""

    def __init__(self, options: RunOptions, source: Source, watch: Watch) -> None:
        super().__init__(command_line.Options(input=options.input, allow_unregistered=True), source, watch)
        self.run_options = options
        self.report_of_run: Report | None = None

    def _process(self, chunk: Chunk | None, steps: list[Step]) -> str | bytes | None:
        module = self._parse(chunk)
        if module is None or not self._own_verify(module):
            return None
        try:
            with self.ctx, ir.Location.unknown():
                self.report_of_run = self._run_function(module, self._parsed(chunk))
        except CleaveError as error:
            self._report_error(error)
            return None
        except Exception as error:
            where = self.watch.stage or "cleave-run"
            self.report(describe_exception(error, where, Position(self.source.name, 1, 1)))
            return None
        return ""

    def _report_error(self, error: CleaveError) -> None:
        """An error of a file of arrays stands under that file's name."""
        if isinstance(error.location, str) and position_of(error.location) is None:
            for diagnostic in diagnostics.from_error(error):
                print(diagnostics.render(diagnostic, fallback=error.location), file=sys.stderr)
        else:
            self._report_all(error)

    def _run_function(self, module: ir.Module, source: ir.Module) -> Report:
        func = run_functions.entry(module, self.run_options.function)
        position = position_of(func.location)
        try:
            self._check_options(module, func)
            return self._run_job(Job(module, source, name_of(func)))
        except CleaveError as error:
            raise (error.at(position) if position else error) from None

    def _check_options(self, module: ir.Module, func: ir.Operation) -> None:
        """CleaveError for options that have no meaning at the stage that the input is at."""
        options, stage = self.run_options, run_functions.stage_of(module, func)
        if stage != "graph" and (options.alternative is not None or not options.superopt):
            option = "--no-superopt" if options.alternative is None else "--alternative"
            text = f"{option} chooses what is scheduled, and '{name_of(func)}' is scheduled"
            raise CleaveError(text, notes=("take the module before --schedule",))
        if stage == "lowered" and (options.check or options.stage == "reference"):
            option = "--check" if options.check else "--stage=reference"
            text = f"{option} needs the reference executor, which runs no module after --lower-to-triton"
            raise CleaveError(text, notes=("take the module before --lower-to-triton",))

    def _run_job(self, job: Job) -> Report:
        options, module, source = self.run_options, job.module, job.source
        run_functions.keep_only(module, job.function, alternatives=options.superopt)
        run_functions.keep_only(source, job.function, alternatives=False)
        start = time.perf_counter()
        self._pass(job, "cleave-import-linalg")
        if EMPTY_ROWS in run_functions.entry(job.source, job.function).attributes:  # it speaks of cleave's ops
            pipelines.run([registry.create("cleave-import-linalg")], source)
        self._choose_inputs(job)
        launches: list[LaunchReport] = []
        if options.stage == "reference":
            job.seconds["compile"] = time.perf_counter() - start
            outputs = self._reference(job, "declared", "run")
        else:
            plan, kernels = self._compile(job)
            job.seconds["compile"] = time.perf_counter() - start
            outputs, launches = self._execute(job, plan, kernels)
        checked = self._check(job, outputs) if options.check else []
        if options.outputs:
            self.watch.stage = "writing the outputs"
            named = {spec.name: array for spec, array in zip(job.results, outputs, strict=True)}
            arrays.write_arrays(options.outputs, named, options.temporary)
        return self._report(job, outputs, launches, checked)

    # --- compiling ---------------------------------------------------------------------------------------------------

    def _pass(self, job: Job, name: str, **values: Any) -> None:
        self.watch.stage = f"pass {name}"
        pipelines.run([registry.create(name, **values)], job.module)
        self.watch.forward()

    def _compile(self, job: Job) -> tuple[LaunchPlan, Mapping[str, str]]:
        """The rest of the default pipeline."""
        func, source = (run_functions.entry(each, job.function) for each in (job.module, job.source))
        notes = ("--stage=reference runs it",) if self._has_reference(source) else ()
        run_functions.check_compilable(func, names_by_place(source), notes)
        if self.run_options.superopt:
            self._pass(job, "cleave-superopt")
        job.alternatives = run_functions.alternatives_of(job.module, job.function)
        if self.run_options.alternative is not None:
            run_functions.keep_alternative(job.module, job.function, self.run_options.alternative)
        self._schedule(job)
        self._pass(job, "cleave-lower-to-triton")
        self.watch.stage = "reading the launch plan"
        from cleave.lowering.emit import kernel_modules
        from cleave.lowering.plan import plan_of

        kernels = {kernel.name: kernel for kernel in kernel_modules(job.module)}
        return plan_of(job.module, job.function, kernels), {name: kernel.text for name, kernel in kernels.items()}

    def _schedule(self, job: Job) -> None:
        """At the sizes in hand and those given of the programs' own: what says how a dim is cut into parts."""
        symbols = run_functions.symbols_of_programs(job.module, [job.function, *job.alternatives])
        own = set[str]().union(*symbols.values()) - job.sizes.keys()
        given = {name: value for name, value in self.run_options.sizes.items() if name in own}
        sizes = ",".join(f"{name}={value}" for name, value in (job.sizes | job.free | given).items())
        self._pass(job, "cleave-schedule", sizes=sizes)
        host = run_functions.entry(job.module, job.function)
        name = ir.StringAttr(host.attributes[CHOSEN]).value if CHOSEN in host.attributes else job.function
        job.symbols = symbols.get(name, symbols[job.function])
        job.free |= {name: value for name, value in given.items() if name in job.symbols}
        if self.run_options.alternative is None:
            programs = [job.function, *job.alternatives]
            job.program = programs.index(name) if name in programs else None
        else:
            job.program = self.run_options.alternative

    # --- arrays ------------------------------------------------------------------------------------------------------

    def _choose_inputs(self, job: Job) -> None:
        """Read or draw the inputs, which fixes the sizes."""
        from cleave.runtime.layout import shape_of

        self.watch.stage = "reading the inputs"
        options, func = self.run_options, run_functions.entry(job.module, job.function)
        job.arguments, job.results = run_functions.signature(func)
        facts = job.facts = run_functions.known_facts(func).texts
        extents = _extents([*job.arguments, *job.results])
        sizes = choose_sizes(job.arguments, facts, extents, _known(options.sizes, job.arguments, facts))
        if options.inputs:
            from cleave.runtime.execute import check_inputs

            plan = LaunchPlan(job.function, tuple(job.arguments), (), (), facts, extents)
            job.inputs = check_inputs(plan, arrays.read_arrays(options.inputs, job.arguments))
            shapes = [array.shape for array in job.inputs]
            sizes = bind_sizes(plan, shapes, _known(options.sizes, job.arguments, facts))
        else:
            shapes = [shape_of(spec, sizes) for spec in job.arguments]
            job.inputs = arrays.random_arrays(job.arguments, shapes, options.seed)
            job.chosen = frozenset(name for name, origin in sizes.origin.items() if origin == "chosen")
        job.sizes = dict(sizes.values)
        origin = run_functions.entry(job.source, job.function)
        defaults = {**choices_of(origin), **options.sizes}
        free = run_functions.symbols(origin) - sizes.values.keys()
        job.free = {symbol: defaults.get(symbol, PARTS) for symbol in sorted(free)}
        if options.stage == "reference":
            self._check_sizes(job)

    def _check_sizes(self, job: Job) -> None:
        """CleaveError for a given size that is none of the function or of its compiled form."""
        for name in self.run_options.sizes:
            if name not in job.free and not _known({name: 0}, job.arguments, job.facts):
                known = ", ".join(dict.fromkeys([*job.sizes, *job.free, *sorted(job.symbols)])) or "none"
                raise CleaveError(f"the function has no size '{name}'", notes=(f"its sizes: {known}",))

    def _execute(
        self, job: Job, plan: LaunchPlan, kernels: Mapping[str, str]
    ) -> tuple[list[Array], list[LaunchReport]]:
        from cleave.runtime.execute import execute
        from cleave.runtime.layout import grid_of

        self.watch.stage = "the interpreter"
        job.free |= choose_free(plan, {**self.run_options.sizes, **job.free})
        form, sizes = bind_form(plan, [array.shape for array in job.inputs], job.free)
        choices = {name: sizes.values[name] for name, origin in sizes.origin.items() if origin == CHOICE}
        self._check_sizes(job)
        start = time.perf_counter()
        outputs = execute(plan, kernels, job.inputs, job.free)
        job.seconds["run"] = time.perf_counter() - start
        job.free |= choices
        return outputs, [
            LaunchReport(launch.kernel, launch.grid, grid_of(launch, sizes), launch.num_warps)
            for launch in form.launches
        ]

    # --- the reference -----------------------------------------------------------------------------------------------

    def _reference(self, job: Job, precision: str, what: str) -> list[Array]:
        """The source program by the reference executor, which knows nothing of what the passes did."""
        from cleave.reference import run

        self.watch.stage = f"the reference executor ({precision})"
        start = time.perf_counter()
        outputs = run(job.source, job.function, job.inputs, precision=cast(Any, precision), sizes=job.free)
        job.seconds[what] = time.perf_counter() - start
        return outputs

    def _has_reference(self, source: ir.Operation) -> bool:
        """Whether the reference executor has a rule for each op of the source."""
        from cleave.reference.executor import RULES
        from cleave.reference.machine import TERMINATORS

        return all(op.name in RULES.keys() | TERMINATORS or op.name.startswith("linalg.") for op in ops_inside(source))

    def _check(self, job: Job, outputs: Sequence[Array]) -> list[CheckedOutput]:
        from cleave.reference.accuracy import compare

        reference = self._reference(job, "f64", "reference")
        unoptimised = self._reference(job, "declared", "unoptimised")
        triples = zip(job.results, reference, unoptimised, outputs, strict=True)
        return [CheckedOutput(spec.name, compare(ref, plain, out, spec.dtype)) for spec, ref, plain, out in triples]

    # --- the report --------------------------------------------------------------------------------------------------

    def _report(
        self, job: Job, outputs: Sequence[Array], launches: list[LaunchReport], checked: list[CheckedOutput]
    ) -> Report:
        options = self.run_options
        return Report(
            file=self.source.name,
            function=job.function,
            stage=options.stage,
            superopt=options.superopt and options.stage == "ttir",
            alternatives=len(job.alternatives),
            program=job.program,
            asked=options.alternative is not None,
            sizes={**job.sizes, **job.free},
            chosen=tuple(sorted(job.chosen | job.free.keys() - options.sizes.keys())),
            inputs=options.inputs or f"random, seed {options.seed}",
            arguments=list(zip(job.arguments, job.inputs, strict=True)),
            results=list(zip(job.results, outputs, strict=True)),
            launches=launches,
            checked=checked,
            seconds=job.seconds,
        )


def _extents(specs: Sequence[TensorSpec]) -> dict[str, int]:
    """The symbols whose values the types fix."""
    pairs = [pair for spec in specs for pair in zip(spec.dims, spec.extents, strict=True)]
    return {dim: extent for dim, extent in pairs if extent is not None and "=" not in dim}


def _known(given: Mapping[str, int], specs: Sequence[TensorSpec], facts: Sequence[str]) -> dict[str, int]:
    """The given sizes that the arguments' types or the facts speak of; others are choices of the compiled program."""
    from cleave.dialects.dims import Dim, Facts

    known = Facts.parse(facts)
    dims = [Dim.parse(text) for spec in specs for text in spec.dims]
    symbols = {s for dim in dims for size in (dim.size, known.simplify(dim.size)) for s in size.symbols}
    return {name: value for name, value in given.items() if name in symbols}
