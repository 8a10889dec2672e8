"""Tensor functions written in Python: named dims, traced into a graph."""
