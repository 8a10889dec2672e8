"""Products by cuBLAS, whose library (cuBLASLt) is called by ctypes: found in the process, beside PyTorch, or installed.

An algorithm is asked for once for each product and GPU. All that a launch needs beside it, the stream and the
workspace, it is given, so that threads share what was made here and graphs capture nothing but the kernels.

Source of types and numbers: the header ``cublasLt.h`` of CUDA 12.
"""

from __future__ import annotations

import ctypes
import importlib.util
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from ctypes import byref, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from cleave import knobs
from cleave.errors import CleaveError
from cleave.runtime.cuda_driver import Driver
from cleave.runtime.gemm import Gemm, Matrix

WORKSPACE = 32 * 2**20
"""Bytes that an algorithm may use: what cuBLAS recommends for Hopper."""
_REMEMBERED = 1024
_OLDEST, _VERSIONS = 12_00_00, (13, 12)
_TYPES = {"f32": 0, "f64": 1, "f16": 2, "bf16": 14}  # cudaDataType
_COMPUTE_32F, _COMPUTE_64F = 68, 70  # cublasComputeType_t: at least this precision, never tf32
_TRANSPOSE_A, _TRANSPOSE_B = 3, 4  # cublasLtMatmulDescAttributes_t
_BATCH_COUNT, _BATCH_STRIDE = 5, 6  # cublasLtMatrixLayoutAttribute_t
_MAX_WORKSPACE, _REDUCTION_SCHEMES, _ALIGNMENTS = 1, 3, (5, 6, 7, 8)  # cublasLtMatmulPreferenceAttributes_t
_REDUCED_IN_COMPUTE_TYPE = 2  # cublasLtReductionScheme_t: partial sums are never rounded to the result's type
_NOT_SUPPORTED = 15  # cublasStatus_t
_STATUS = {1: "not initialised", 3: "out of memory", 7: "invalid value", 8: "wrong architecture", 11: "mapping error",
           13: "execution failed", 14: "internal error", 15: "not supported"}  # fmt: skip
_OP = "cublasLtMatmulDesc"
_LAYOUT = "cublasLtMatrixLayout"
_PREFERENCE = "cublasLtMatmulPreference"


class _Result(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace", c_size_t),
        ("status", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


_ATTRIBUTE = (c_void_p, c_int, c_void_p, c_size_t)
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (c_void_p,),
    f"{_OP}Create": (c_void_p, c_int, c_int),
    f"{_OP}SetAttribute": _ATTRIBUTE,
    f"{_OP}Destroy": (c_void_p,),
    f"{_LAYOUT}Create": (c_void_p, c_int, c_uint64, c_uint64, c_int64),
    f"{_LAYOUT}SetAttribute": _ATTRIBUTE,
    f"{_LAYOUT}Destroy": (c_void_p,),
    f"{_PREFERENCE}Create": (c_void_p,),
    f"{_PREFERENCE}SetAttribute": _ATTRIBUTE,
    f"{_PREFERENCE}Destroy": (c_void_p,),
    "cublasLtMatmulAlgoGetHeuristic": (*(c_void_p,) * 7, c_int, c_void_p, c_void_p),
}


@dataclass(frozen=True, eq=False)
class Planned:
    """A product on one GPU, whose context's ``handle`` of cuBLAS this is: descriptions and an algorithm.

    ``workspace`` is in bytes. ``layouts`` are of a, b and d.
    """

    cublas: Cublas
    handle: int
    operation: int
    layouts: tuple[int, int, int]
    algorithm: Any
    workspace: int
    wide: bool


class Cublas:
    """The library at a path; usable from several threads. CleaveError if it cannot be loaded or is too old."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._library = ctypes.CDLL(path)
            self._functions = {name: self._function(name, types) for name, types in _SIGNATURES.items()}
            version = self._library["cublasLtGetVersion"]
            version.restype = c_size_t
            self._version = int(version())
            self._start = self._library["cublasLtMatmul"]  # takes ctypes' own objects, see ``Driver.launch_functions``
        except (OSError, AttributeError) as error:
            raise CleaveError(f"cuBLAS cannot be loaded: {error}") from None
        if self._version < _OLDEST:
            raise CleaveError(f"cuBLAS at {path} is of version {self._version}, too old")
        self._handles: dict[int, int] = {}
        self._planned: dict[tuple[Gemm, int, int], Planned | None] = {}
        self._lock = threading.Lock()

    def __str__(self) -> str:
        """As in "cuBLAS 12.8.4"."""
        return f"cuBLAS {self._version // 10000}.{self._version // 100 % 100}.{self._version % 100}"

    def planned(self, gemm: Gemm, rank: int, context: int) -> Planned | None:
        """How the product is made on the GPU of the context, the current one; None if cuBLAS has no such algorithm.

        ``rank``: 1 is the algorithm that it expects to be the fastest, 2 the next, and so on.
        """
        key = gemm, rank, context
        with self._lock:
            if key not in self._planned:
                if len(self._planned) >= _REMEMBERED:
                    self._planned.clear()
                self._planned[key] = self._plan(gemm, rank, self._handle(context))
            return self._planned[key]

    def _handle(self, context: int) -> int:
        if context not in self._handles:
            self._handles[context] = self._made("start cuBLAS", "cublasLtCreate")
        return self._handles[context]

    def _plan(self, gemm: Gemm, rank: int, handle: int) -> Planned | None:
        wide = gemm.d.dtype == "f64"
        compute, scale = (_COMPUTE_64F, _TYPES["f64"]) if wide else (_COMPUTE_32F, _TYPES["f32"])
        made: list[tuple[str, int]] = []
        try:
            operation = self._new(made, _OP, compute, scale)
            for attribute, turned in zip((_TRANSPOSE_A, _TRANSPOSE_B), gemm.transposed, strict=True):
                self._set(_OP, operation, attribute, c_int32(turned))
            a, b, d = (self._layout(made, matrix, gemm.count) for matrix in (gemm.a, gemm.b, gemm.d))
            found = self._algorithm(gemm, rank, handle, operation, (a, b, d))
        except CleaveError:
            _destroy(self._functions, made)
            raise
        if found is None:
            _destroy(self._functions, made)
            return None
        algorithm = (c_uint64 * 8)(*found.algorithm)
        planned = Planned(self, handle, operation, (a, b, d), algorithm, found.workspace, wide)
        weakref.finalize(planned, _destroy, self._functions, made).atexit = False
        return planned

    def _layout(self, made: list[tuple[str, int]], matrix: Matrix, count: int) -> int:
        layout = self._new(made, _LAYOUT, _TYPES[matrix.dtype], matrix.rows, matrix.columns, matrix.leading)
        if count > 1:
            self._set(_LAYOUT, layout, _BATCH_COUNT, c_int32(count))
            self._set(_LAYOUT, layout, _BATCH_STRIDE, c_int64(matrix.batch))
        return layout

    def _algorithm(
        self, gemm: Gemm, rank: int, handle: int, operation: int, layouts: tuple[int, int, int]
    ) -> _Result | None:
        a, b, d = layouts
        made: list[tuple[str, int]] = []
        try:
            preference = self._new(made, _PREFERENCE)
            self._set(_PREFERENCE, preference, _MAX_WORKSPACE, c_uint64(WORKSPACE))
            self._set(_PREFERENCE, preference, _REDUCTION_SCHEMES, c_uint32(_REDUCED_IN_COMPUTE_TYPE))
            for attribute, matrix in zip(_ALIGNMENTS, (gemm.a, gemm.b, gemm.d, gemm.d), strict=True):
                self._set(_PREFERENCE, preference, attribute, c_uint32(matrix.alignment))
            results, count = (_Result * rank)(), c_int()
            choose = self._functions["cublasLtMatmulAlgoGetHeuristic"]
            status = choose(handle, operation, a, b, d, d, preference, rank, results, byref(count))
        finally:
            _destroy(self._functions, made)
        if status != _NOT_SUPPORTED:
            self.check("choose an algorithm for a product", status)
        return None if status or count.value < rank or results[rank - 1].status else results[rank - 1]

    def call(self, planned: Planned, pointers: tuple[c_void_p, c_void_p, c_void_p, c_void_p], stream: c_void_p) -> Any:
        """What starts the product on what these point at then: a, b, d and the workspace. It returns a status."""
        one, zero = (c_double(1), c_double(0)) if planned.wide else (c_float(1), c_float(0))
        a, b, d, workspace = pointers
        layout_a, layout_b, layout_d = map(c_void_p.from_param, planned.layouts)
        handle, operation = map(c_void_p.from_param, (planned.handle, planned.operation))
        return partial(
            self._start, handle, operation, byref(one), a, layout_a, b, layout_b, byref(zero), d, layout_d, d, layout_d,
            planned.algorithm, workspace, c_size_t.from_param(planned.workspace), stream,
        )  # fmt: skip

    # --- the library's objects ---

    def _function(self, name: str, types: tuple[Any, ...]) -> Any:
        function = self._library[name]
        function.argtypes, function.restype = list(types), c_int
        return function

    def _new(self, made: list[tuple[str, int]], kind: str, *arguments: Any) -> int:
        handle = self._made("describe a product", f"{kind}Create", *arguments)
        made.append((kind, handle))
        return handle

    def _made(self, what: str, name: str, *arguments: Any) -> int:
        handle = c_void_p()
        self.check(what, self._functions[name](byref(handle), *arguments))
        return handle.value or 0

    def _set(self, kind: str, handle: int, attribute: int, value: Any) -> None:
        set_attribute = self._functions[f"{kind}SetAttribute"]
        self.check("describe a product", set_attribute(handle, attribute, byref(value), ctypes.sizeof(value)))

    def check(self, what: str, status: int) -> None:
        """CleaveError, that it cannot do ``what``, unless cuBLAS said that it has."""
        if status:
            reason = _STATUS.get(status, "unknown error")
            raise CleaveError(f"cannot {what}: {reason} (cuBLAS status {status})")


def _destroy(functions: Mapping[str, Any], made: Sequence[tuple[str, int]]) -> None:
    for kind, handle in made:
        functions[f"{kind}Destroy"](handle)


class ProductLauncher:
    """A product, by one thread at a time: as ``cuda_launch.Launcher``. ``point`` says where its pointers lie.

    They are numbered: a, b and d of ``Gemm``, and the workspace.
    """

    def __init__(self, driver: Driver, planned: Planned, context: int, name: str) -> None:
        self._driver, self._planned, self._context, self._name = driver, planned, context, name
        self._pointers = [c_void_p() for _ in range(4)]
        self.stream = c_void_p()
        self._kept: dict[int, Any] = {}
        self._call: Any = None

    def point(self, parameter: int, address: int, owner: Any) -> None:
        """Let a pointer lie in the host's memory at ``address``, which ``owner`` keeps."""
        self._pointers[parameter] = c_void_p.from_address(address)
        self._kept[parameter], self._call = owner, None

    def start(self) -> int:
        """Start the product on ``stream`` (0: the default one); returns at once, with a status."""
        self._driver.enter(self._context)
        if self._call is None:
            a, b, d, workspace = self._pointers
            self._call = self._planned.cublas.call(self._planned, (a, b, d, workspace), self.stream)
        return self._call()

    def failed(self, status: int) -> None:
        self._planned.cublas.check(f"start the product {self._name}", status)


# --- where the library is --------------------------------------------------------------------------------------------


def shared_cublas() -> Cublas | str:
    """The process's cuBLAS, loaded at the first call; why there is none, if so: PyTorch may bring one later.

    CleaveError where CLEAVE_CUBLAS names one that cannot be loaded or is too old.
    """
    try:
        return _shared()
    except CleaveError as error:
        if not knobs.CUBLAS.value:
            return error.message
        note = f"{knobs.CUBLAS.variable} is {knobs.CUBLAS.value}: name a libcublasLt of 12 or later, or none"
        raise CleaveError(error.message, error.location, (*error.notes, note)) from None


@lru_cache(maxsize=1)
def _shared() -> Cublas:
    return found(knobs.CUBLAS.value)


def found(path: str = "") -> Cublas:
    """The library at ``path`` or, if that is empty, the first that can be loaded. CleaveError where there is none."""
    if path:
        return Cublas(path)
    for candidate in _candidates():
        try:
            return Cublas(candidate)
        except CleaveError:
            continue
    raise CleaveError("there is no libcublasLt here")


def _candidates() -> Iterator[str]:
    """What the process has loaded, what lies beside PyTorch, and what the loader finds."""
    yield from _loaded()
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield from map(str, sorted(Path(folder).glob("*/lib/libcublasLt.so.*"), reverse=True))
    yield from (f"libcublasLt.so.{version}" for version in _VERSIONS)


def _loaded() -> list[str]:
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    paths = (line.split(maxsplit=5)[-1] for line in lines)
    return list(dict.fromkeys(path for path in paths if Path(path).name.startswith("libcublasLt.so")))
