"""The reference executor: any module at any stage, with NumPy, one rule per op."""

from cleave.reference.executor import run

__all__ = ["run"]
