"""Benchmarks: the subgraphs that Cleave is measured on, their baselines, and how they are timed."""
