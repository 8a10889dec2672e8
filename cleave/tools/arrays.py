"""The arrays that ``cleave-run`` feeds and writes: ``.npz`` files with in0, in1, … or out0, out1, …, or random ones."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cleave.errors import CleaveError
from cleave.runtime.launch_plan import TensorSpec
from cleave.tools import files

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

SUFFIX = ".npz"
LARGEST_RANDOM_INTEGER = 3
"""Random integers are 0 to this, so that they can serve as indices."""


def read_arrays(path: str, specs: Sequence[TensorSpec]) -> list[Array]:
    """The arrays in0, in1, … of the file, one for each spec. bf16 and fp8 are what NumPy writes for ml_dtypes' types.

    CleaveError for a file that cannot be read, an array that is missing, and one that nobody asked for.
    """
    import numpy as np

    try:
        archive = np.load(path, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise CleaveError("this is a single array; np.savez writes a file of several", path)
        with archive:
            _check_names(path, archive.files, [spec.name for spec in specs])
            return [_declared(archive[spec.name], spec) for spec in specs]
    except OSError as error:
        raise CleaveError(f"cannot read: {error.strerror or error}", path) from None
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        reason = " ".join(str(error).split())
        if "allow_pickle" in reason:  # which NumPy says of whatever it does not know
            reason = "it holds Python objects" if zipfile.is_zipfile(path) else "it is no zip archive"
        raise CleaveError(f"this is no {SUFFIX} file of plain arrays: {reason}", path) from None


def _check_names(path: str, found: Sequence[str], wanted: Sequence[str]) -> None:
    missing = [name for name in wanted if name not in found]
    unknown = [name for name in found if name not in wanted]
    takes = f"the function takes {', '.join(wanted) or 'no arrays'}"
    if missing:
        raise CleaveError(
            f"there is no array '{missing[0]}'", path, (takes, f"the file has {', '.join(found) or 'none'}")
        )
    if unknown:
        raise CleaveError(f"array '{unknown[0]}' is no argument", path, (takes,))


def _declared(array: Array, spec: TensorSpec) -> Array:
    """NumPy files know ml_dtypes' types as untyped bytes only."""
    from cleave.runtime.ttir_numbers import DTYPES

    dtype = DTYPES.get(spec.dtype)
    if array.dtype.kind == "V" and dtype is not None and array.dtype.itemsize == dtype.itemsize:
        return array.view(dtype)
    return array


def write_arrays(path: str, arrays: Mapping[str, Array], temporary: str) -> None:
    """Write a ``.npz`` file, all or nothing. CleaveError if that fails."""
    import numpy as np

    data = io.BytesIO()
    np.savez(data, allow_pickle=False, **dict(arrays))
    files.write_output(path, data.getvalue(), temporary)


def random_arrays(specs: Sequence[TensorSpec], shapes: Sequence[Sequence[int]], seed: int) -> list[Array]:
    """An array for each spec: floats from N(0, 1), booleans fair, integers 0 to ``LARGEST_RANDOM_INTEGER``."""
    import numpy as np

    generator = np.random.default_rng(seed)
    return [_random(generator, spec, tuple(shape)) for spec, shape in zip(specs, shapes, strict=True)]


def _random(generator: np.random.Generator, spec: TensorSpec, shape: tuple[int, ...]) -> Array:
    import numpy as np

    from cleave.runtime.execute import numpy_dtype

    dtype = numpy_dtype(spec)
    try:
        if dtype == np.bool_:
            return generator.integers(0, 2, shape).astype(dtype)
        if dtype.kind == "i":
            return generator.integers(0, LARGEST_RANDOM_INTEGER + 1, shape).astype(dtype)
        return np.asarray(generator.standard_normal(shape)).astype(dtype)
    except (MemoryError, ValueError):
        raise CleaveError(f"no memory for {spec.name} of shape {shape}") from None
