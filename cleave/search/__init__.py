"""The superoptimiser: programs equal to a graph for all sizes. See docs/search.md."""

from __future__ import annotations

from cleave.search.result import Alternative, Rejected, SearchOptions, SearchResult, Statistics
from cleave.search.superoptimise import superoptimise

__all__ = ["Alternative", "Rejected", "SearchOptions", "SearchResult", "Statistics", "superoptimise"]
