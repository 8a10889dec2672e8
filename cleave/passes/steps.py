"""Passes of a textual pipeline made ready to run on a module: ours and MLIR's behind one interface."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from cleave.bindings import MLIRError, ir, passmanager
from cleave.errors import CleaveError
from cleave.passes import registry
from cleave.passes.pipeline_text import ROOT, Element


class Step(Protocol):
    """One pass; ``text`` is its spelling in a pipeline on builtin.module."""

    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...
    def run(self, module: ir.Module, verify: bool) -> bool:
        """Change the module; False, after diagnostics, if the pass or the verifier after it failed."""
        ...


@dataclass(frozen=True)
class OwnStep:
    """A pass of ours. What it raises is left to the caller."""

    name: str
    text: str
    pass_: registry.Pass

    def run(self, module: ir.Module, verify: bool) -> bool:
        with module.context, ir.Location.unknown():
            self.pass_.apply(module.context, module)
            return not verify or module.operation.verify()


@dataclass(frozen=True)
class UpstreamStep:
    """A pass of MLIR, with a pass manager of its own."""

    name: str
    text: str

    def run(self, module: ir.Module, verify: bool) -> bool:
        manager = passmanager.PassManager(ROOT, module.context)
        manager.enable_verifier(verify)
        manager.add(self.text)
        try:
            manager.run(module.operation)
        except MLIRError:
            return False
        return True


def resolve(element: Element, ctx: ir.Context, *, nest_as_needed: bool = False) -> Step:
    """The pass that ``element`` names.

    ``nest_as_needed`` puts a pass of MLIR that runs only on, say, func.func inside that op.
    CleaveError, located, for an unknown pass, option or value, or one that cannot run where it stands.
    """
    if element.name in registry.PASSES:
        return _own(element)
    problem = _problem(element.nested(element.nest), ctx)
    if problem is None:
        return UpstreamStep(element.name, str(element))
    anchor = re.search(r"restricted to '([^']+)'", problem)
    if nest_as_needed and anchor:
        return resolve_nested(element, anchor[1], ctx)
    raise _upstream_error(element, problem)


def resolve_nested(element: Element, anchor: str, ctx: ir.Context) -> Step:
    """MLIR's pass inside the op ``anchor``."""
    text = element.nested((anchor,))
    problem = _problem(text, ctx)
    if problem is not None:
        raise _upstream_error(element, problem)
    return UpstreamStep(element.name, text)


def _own(element: Element) -> OwnStep:
    if element.nest:
        raise CleaveError(f"{element.name} runs on {ROOT}, not on {element.nest[-1]}", element.position)
    pass_ = registry.parse(element.name, element.options, element.place)
    return OwnStep(element.name, str(element), pass_)


def _problem(text: str, ctx: ir.Context) -> str | None:
    """Why MLIR does not take the pass; None if it does."""
    try:
        with ctx:
            passmanager.PassManager(ROOT).add(text)
    except ValueError as error:
        return str(error)
    return None


def _upstream_error(element: Element, problem: str) -> CleaveError:
    if "does not refer to a registered pass" in problem:
        try:
            registry.pass_class(element.name)
        except CleaveError as error:
            return CleaveError(
                error.message, element.position, ("--list-passes lists Cleave's; MLIR's are taken by name",)
            )
    option = re.search(r"no such option (\S+)", problem)
    if option:
        return CleaveError(f"{element.name} has no option '{option[1]}'", element.options_position)
    restricted = re.search(r"restricted to '([^']+)' on a PassManager intended to run on '([^']+)'", problem)
    if restricted:
        text = f"{element.name} runs on {restricted[1]}, not on {restricted[2]}"
        return CleaveError(text, element.position, (f"nest it: {restricted[1]}({element.name})",))
    if element.options:
        return CleaveError(f"{element.name} does not take the options '{element.options}'", element.options_position)
    return CleaveError(f"{element.name} cannot run here: {' '.join(problem.split())}", element.position)
