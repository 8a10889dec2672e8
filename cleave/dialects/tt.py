"""Triton's dialect, of whose ops there are no classes here.

MLIR imports the module when it meets an op ``tt.…``; without it every access to one would pay for failed imports.
"""
