"""MLIR in, MLIR out: passes as objects, and on upstream pass managers by ``pm.add(*cleave.passes.make(name, ...))``."""

from cleave.passes.embed import make
from cleave.passes.registry import PASSES, Pass, create, parse

__all__ = ["PASSES", "Pass", "create", "make", "parse"]
