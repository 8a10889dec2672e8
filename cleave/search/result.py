"""What the search is asked for and what it answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from cleave.dialects.graph import Graph, Value
from cleave.errors import CleaveError
from cleave.search.certificate import Certificate
from cleave.search.cost import Cost

_LEAST = {"max_classes": 0, "time_limit": 0, "keep": 0, "seed": 0, "max_ops": 1, "cuts": 1}


@dataclass(frozen=True)
class SearchOptions:
    """``keep``: alternatives beside the original. ``max_ops``: a graph of more ops is searched in parts.
    ``max_classes``: the bound on the space of each part. ``time_limit`` in seconds, of which results must not depend:
    it is a last resort. ``split``: cut eventually reduced dims in parts, ``cuts`` of them (1 or 2) in one program.
    ``stabilise``: subtract a maximum in exponentials that are summed, where the source does not."""

    max_classes: int = 2000
    time_limit: float = 60.0
    keep: int = 6
    split: bool = True
    seed: int = 0
    stabilise: bool = False
    max_ops: int = 64
    cuts: int = 1

    def __post_init__(self) -> None:
        """CleaveError for a bound that is none."""
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if not least <= value < math.inf:
                raise CleaveError(f"{name} is {value}, but must be a number of at least {least}")
        if self.cuts > 2:
            raise CleaveError(f"cuts is {self.cuts}, but a program cuts at most 2 dims")


@dataclass(frozen=True, eq=False)
class Alternative:
    """A program equal to the source; ``split`` names the dimensions that it cuts, if it does."""

    graph: Graph
    cost: Cost
    certificate: Certificate
    split: str | None = None


@dataclass(frozen=True)
class Rejected:
    """A candidate that was not returned, and why; ``passed_over``: for others, so that it was perhaps not checked."""

    what: str
    why: str
    graph: Graph | None = None
    passed_over: bool = False


@dataclass
class Statistics:
    """The space explored. ``stopped``: the limits that cut the search short, in words."""

    classes: int = 0
    nodes: int = 0
    candidates: int = 0
    seconds: float = 0.0
    stopped: list[str] = field(default_factory=list[str])
    spaces: list[str] = field(default_factory=list[str])

    @property
    def complete(self) -> bool:
        return not self.stopped

    def include(self, other: Statistics, label: str) -> None:
        """Count the space of a part in."""
        self.classes += other.classes
        self.nodes += other.nodes
        self.candidates += other.candidates
        self.stopped.extend(why for why in other.stopped if why not in self.stopped)
        self.spaces.extend(f"{label}, {space}" for space in other.spaces)


@dataclass(frozen=True)
class SearchResult:
    """``alternatives[0]`` is the source itself. ``cuts``: the source's values at which it was searched in parts."""

    alternatives: tuple[Alternative, ...]
    statistics: Statistics
    rejected: tuple[Rejected, ...]
    cuts: tuple[Value, ...] = ()
