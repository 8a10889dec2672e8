"""Search in a space of tilings: a few points from all over it, then the neighbours of the best."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cleave.schedule.tilings import Point, Space

Score = tuple[bool, float]

SEEDS = 4
"""One in so many of the points judged are taken from all over the space."""


def explore(space: Space, judge: Callable[[Point], Score], count: int) -> dict[Point, Score]:
    """Judge ``count`` points at most (all of them, if there are no more); the least score is the best."""
    points = space.points
    if len(points) <= count:
        return {point: judge(point) for point in points}
    judged = {point: judge(point) for point in spread(points, max(2, count // SEEDS))}
    allowed, visited = set(points), set[Point]()
    while len(judged) < count and len(visited) < len(judged):
        best = min((point for point in judged if point not in visited), key=lambda point: (judged[point], point))
        visited.add(best)
        new = [point for point in space.neighbours(best) if point in allowed and point not in judged]
        judged |= {point: judge(point) for point in new[: count - len(judged)]}
    return judged


def spread(items: Sequence[Point], count: int) -> list[Point]:
    """At most ``count`` of ``items``, evenly taken from first to last."""
    if len(items) <= count:
        return list(items)
    return [items[index * len(items) // count] for index in range(count)]
