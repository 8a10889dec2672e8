"""The k best programs of a space: for each class the few best sets of nodes, shared parts counted once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product as cartesian
from operator import attrgetter
from typing import NamedTuple

from cleave.dialects.dims import Size
from cleave.search.cost import CONTRACTION_WEIGHT
from cleave.search.space import Node, Space
from cleave.search.terms import Poly

MAX_COMBINATIONS = 48
MAX_ROUNDS = 24


class Pick(NamedTuple):
    """The node chosen for a class, the chain of reductions up to it, and its own work."""

    node: Node
    length: float
    work: float


_WORK = attrgetter("work")


@dataclass(frozen=True, eq=False)
class Plan:
    """A choice of one node for each class that a value needs. Numbers are at the sizes that rank plans.

    ``picks`` are by the classes' ids, which are hashed faster than classes.
    """

    picks: Mapping[int, Pick]
    length: float
    work: float

    def node(self, poly: Poly) -> Node:
        return self.picks[poly.id].node

    @property
    def rank(self) -> tuple[float, float]:
        return self.length, self.work

    def key(self) -> tuple[tuple[int, str, tuple[object, ...], tuple[int, ...]], ...]:
        nodes = ((id_, self.picks[id_].node) for id_ in sorted(self.picks))
        return tuple((id_, node.kind, node.data, tuple(c.id for c in node.children)) for id_, node in nodes)


class Extractor:
    """Plans by repeated improvement until none changes; ``beam`` plans are kept for each class."""

    def __init__(self, space: Space, sizes: Mapping[str, int], beam: int = 4) -> None:
        self.space, self.sizes, self.beam = space, sizes, beam
        self.plans: dict[Poly, list[Plan]] = {}
        self._extents: dict[Size, int] = {}
        self._work: dict[Node, tuple[float, float]] = {}

    def run(self, goals: Sequence[Poly]) -> list[Plan]:
        """The best plans for all goals together, best first; none where a goal has no program."""
        order = self._operands_first(goals)
        users: dict[Poly, dict[Poly, None]] = {}
        for poly in order:
            for node in self.space.nodes.get(poly, ()):
                for child in node.children:
                    users.setdefault(child, {})[poly] = None
        pending = dict.fromkeys(order)
        for _ in range(MAX_ROUNDS):
            if not pending:
                break
            now, pending = pending, {}
            for poly in order:
                if poly in now and self._improve(poly):
                    pending |= users.get(poly, {})
        return self._joined(goals)

    def _operands_first(self, goals: Sequence[Poly]) -> list[Poly]:
        order: dict[Poly, None] = {}
        open_: set[Poly] = set()
        stack = [(goal, False) for goal in reversed(goals)]
        while stack:
            poly, ready = stack.pop()
            if ready:
                order[poly] = None
            elif poly not in order and poly not in open_:
                open_.add(poly)
                stack.append((poly, True))
                children = [child for node in self.space.nodes.get(poly, ()) for child in node.children]
                stack.extend((child, False) for child in reversed(children))
        return list(order)

    def _improve(self, poly: Poly) -> bool:
        found: list[Plan] = []
        for node in self.space.nodes.get(poly, ()):
            found.extend(self._plans_of(poly, node))
        kept = self._best(found)
        old = self.plans.get(poly, [])
        if [plan.rank for plan in kept] == [plan.rank for plan in old]:
            return False
        self.plans[poly] = kept
        return True

    def _plans_of(self, poly: Poly, node: Node) -> list[Plan]:
        options = [self.plans.get(child, []) for child in dict.fromkeys(node.children)]
        if not all(options):
            return []
        limit = _limit(self.beam, len(options), MAX_COMBINATIONS)
        result: list[Plan] = []
        for combination in cartesian(*(plans[:limit] for plans in options)):
            plan = self._join(poly, node, combination)
            if plan is not None:
                result.append(plan)
        if not result:
            plan = self._join(poly, node, tuple(plans[0] for plans in options), force=True)
            result = [plan] if plan is not None else []
        return result

    def _join(self, poly: Poly, node: Node, plans: Sequence[Plan], force: bool = False) -> Plan | None:
        picks: dict[int, Pick] = {}
        agree = _merge(picks, plans)
        if not (agree or force) or poly.id in picks:  # where it is there already, the class would need itself
            return None
        if force and not _acyclic(picks, node.children):
            return None
        work, own = self._cost(node, poly)
        length = max((picks[child.id].length for child in node.children), default=0) + own
        picks[poly.id] = Pick(node, length, work)
        return Plan(picks, length, sum(map(_WORK, picks.values())))

    def _joined(self, goals: Sequence[Poly]) -> list[Plan]:
        goals = list(dict.fromkeys(goals))
        options = [self.plans.get(goal, []) for goal in goals]
        if not all(options):
            return []
        limit = _limit(self.beam, len(options), 4 * MAX_COMBINATIONS)
        result: list[Plan] = []
        for combination in cartesian(*(plans[:limit] for plans in options)):
            picks: dict[int, Pick] = {}
            if _merge(picks, combination) or (not result and _acyclic(picks, goals)):
                work = sum(map(_WORK, picks.values()))
                result.append(Plan(picks, max(picks[goal.id].length for goal in goals), work))
        return self._best(result)

    def _best(self, plans: list[Plan]) -> list[Plan]:
        """The cheapest of each length first, then the next cheapest."""
        plans = sorted(plans, key=lambda plan: (plan.work, plan.length))
        front: list[Plan] = []
        others: list[Plan] = []
        shortest = float("inf")
        seen: set[tuple[float, float]] = set()
        for plan in plans:
            if plan.rank in seen:
                continue
            seen.add(plan.rank)
            if plan.length < shortest:
                shortest = plan.length
                front.append(plan)
            else:
                others.append(plan)
        if len(front) > self.beam:
            front = [*front[: self.beam - 1], front[-1]]
        front.reverse()  # the shortest, then the cheapest, then what is between them
        if len(front) > 2:
            front = [front[0], front[-1], *front[1:-1]]
        return [*front, *others[: self.beam - len(front)]]

    # --- cost of one node ---

    def _cost(self, node: Node, poly: Poly) -> tuple[float, float]:
        """Work, and the length that the node adds to a chain of reductions."""
        found = self._work.get(node)
        if found is None:
            found = self._work[node] = self._price(node, poly)
        return found

    def _price(self, node: Node, poly: Poly) -> tuple[float, float]:
        if node.kind == "leaf" and any(atom.pieces for mono, _ in poly for atom, _ in mono):
            return self._elements(poly.free), 0.0  # repeated, then merged: a copy
        if node.kind in ("leaf", "const", "rename", "split", "round", "merge"):
            return 0.0, 0.0
        over: tuple[str, ...] = ()
        if node.kind == "contract":
            over = node.data
        elif node.kind == "reduce":
            over = node.data[1]
        elif node.kind == "op" and node.data[0] in ("contract", "reduce"):
            over = dict(node.data[1])["over"]
        if over:
            names = sorted(set().union(*(child.free for child in node.children)) | set(over))
            contraction = node.kind == "contract" or node.data[0] == "contract"
            weight = CONTRACTION_WEIGHT if contraction else 1.0
            return self._elements(names) * weight + self._elements(poly.free), 1.0
        steps = max(1, len(node.children) - 1) + sum(1 for e in node.data if e in (-1, 2))
        if node.kind in ("op", "fn", "exp", "select"):
            steps = 1
        return self._elements(sorted(poly.free)) * steps, 0.0

    def _elements(self, names: Sequence[str] | frozenset[str]) -> float:
        result = 1.0
        for name in sorted(names):
            result *= self._extent(self.space.algebra.sizes[name])
        return result

    def _extent(self, size: Size) -> int:
        found = self._extents.get(size)
        if found is None:
            found = self._extents[size] = size.evaluate(self.sizes)
        return found


def _limit(beam: int, operands: int, combinations: int) -> int:
    """How many plans of each operand make no more combinations."""
    limit = max(1, min(beam, combinations))
    while limit > 1 and limit**operands > combinations:
        limit -= 1
    return limit


def _merge(picks: dict[int, Pick], plans: Sequence[Plan]) -> bool:
    """Put the plans' picks together, the first one of each class; whether they agree."""
    agree = True
    for plan in plans:
        if not picks:
            picks.update(plan.picks)
            continue
        for id_, pick in plan.picks.items():
            first = picks.setdefault(id_, pick)
            if first is not pick and first.node is not pick.node:
                agree = agree and first.node == pick.node
    return agree


def _acyclic(picks: Mapping[int, Pick], goals: Sequence[Poly]) -> bool:
    state: dict[Poly, int] = {}

    def visit(poly: Poly) -> bool:
        if state.get(poly) == 2:
            return True
        if state.get(poly) == 1 or poly.id not in picks:
            return False
        state[poly] = 1
        fine = all(visit(child) for child in picks[poly.id].node.children)
        state[poly] = 2
        return fine

    return all(visit(goal) for goal in goals)
