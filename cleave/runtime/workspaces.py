"""Workspace that PyTorch allocated for a call, kept for the next one on the same stream.

Launches on a stream follow one another, and the first one of a call begins when all before it are complete: so calls
may use one piece of memory in turn. A call takes it away while it enqueues its launches; another thread, whose launches
could come between these, is given one of its own. A graph that is captured may run beside the stream that captured it,
so its calls have their own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from cleave.runtime.counters import PER_THREAD

LARGEST = 2**25
"""Bytes: more is not kept, for what needs it takes much longer than an allocation."""


class Workspace(NamedTuple):
    """Memory at ``address``, of ``size`` bytes, that ``owner`` keeps."""

    address: int
    size: int
    owner: Any


class Workspaces:
    """Those of streams of one GPU that no call is using, one each; usable from several threads."""

    def __init__(self) -> None:
        self._kept: dict[int, Workspace] = {}

    def take(self, stream: int, size: int) -> Workspace | None:
        """One of ``size`` bytes or more that only launches on ``stream`` have used; None where there is none."""
        found = self._kept.pop(stream, None)
        return found if found and found.size >= size else None

    def give(self, stream: int, workspace: Workspace) -> None:
        """Keep it for the launches on ``stream`` behind those that are there already."""
        if workspace.size <= LARGEST and stream != PER_THREAD:
            self._kept[stream] = workspace


_shared: dict[int, Workspaces] = {}


def workspaces_of(index: int) -> Workspaces:
    """Those of all calls on GPU number ``index``."""
    return _shared.setdefault(index, Workspaces())
