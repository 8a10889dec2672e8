"""Products of matrices as BLAS has them: column-major matrices, transposed or not, with leading dimensions, in batches.

A product of tensors with named dims is one where the dims of each role (rows, columns, what is summed, batches) lie as
one dim in all tensors that have them, and a dim of each matrix is contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cleave.runtime.layout import Layout

ALIGNMENT = 16
_MAX_COUNT = 2**31 - 1  # cuBLAS counts batches in an int32


@dataclass(frozen=True)
class Factor:
    """A tensor of a product: ``names`` of its dims, ``offset`` bytes from aligned memory."""

    names: tuple[str, ...]
    dtype: str
    layout: Layout
    offset: int = 0


@dataclass(frozen=True)
class Matrix:
    """As it lies in memory: element (i, j) of matrix b is ``i + j·leading + b·batch`` elements from the first one.

    ``alignment``: bytes of which its address is a multiple.
    """

    dtype: str
    rows: int
    columns: int
    leading: int
    batch: int
    alignment: int


@dataclass(frozen=True)
class Gemm:
    """d = op(a)·op(b), ``count`` times: op is the transposition where ``transposed`` says so.

    ``order``: which of the factors a, b and d are.
    """

    a: Matrix
    b: Matrix
    d: Matrix
    transposed: tuple[bool, bool]
    count: int
    order: tuple[int, int, int]

    @property
    def inner(self) -> int:
        """How many products each element sums."""
        return self.a.rows if self.transposed[0] else self.a.columns


@dataclass(frozen=True)
class _Dim:
    """An extent, and the stride of it in each factor that has it."""

    extent: int
    strides: dict[int, int]

    def contiguous(self, factor: int) -> bool:
        return self.extent > 1 and self.strides[factor] == 1


def gemm_of(factors: Sequence[Factor]) -> Gemm | None:
    """The product of the first two factors, summed over the dims that the third, its result, has not.

    None where it is none of BLAS's: empty, of too many batches, or the tensors lie otherwise.
    """
    if any(factor.layout.count == 0 for factor in factors):
        return None
    first, second, result = (set(factor.names) for factor in factors)
    roles = (
        (first & result - second, (0, 2)),
        (second & result - first, (1, 2)),
        (first & second - result, (0, 1)),
        (first & second & result, (0, 1, 2)),
    )
    if set[str]().union(*(names for names, _ in roles)) != first | second | result:
        return None
    dims = [_as_one(factors, names, owners) for names, owners in roles]
    if any(dim is None for dim in dims):
        return None
    left, right, inner, batch = (dim for dim in dims if dim)
    if batch.extent > _MAX_COUNT:
        return None
    if _is_by_rows(left, right):
        left, right, order = right, left, (1, 0, 2)
    else:
        order = (0, 1, 2)
    return _placed(factors, order, (left, right, inner, batch))


def _is_by_rows(left: _Dim, right: _Dim) -> bool:
    """Whether the result lies by rows, which are the columns of BLAS's."""
    return right.contiguous(2) or (not left.contiguous(2) and right.extent == 1)


def _placed(factors: Sequence[Factor], order: tuple[int, int, int], dims: tuple[_Dim, _Dim, _Dim, _Dim]) -> Gemm | None:
    left, right, inner, batch = dims
    sides = ((left, inner), (inner, right), (left, right))
    found = [_matrix(factors[n], n, *side, batch) for n, side in zip(order, sides, strict=True)]
    if any(matrix is None for matrix in found):
        return None
    (a, turned), (b, turned_too), (d, turned_result) = (matrix for matrix in found if matrix)
    return None if turned_result else Gemm(a, b, d, (turned, turned_too), batch.extent, order)


def _as_one(factors: Sequence[Factor], names: set[str], owners: tuple[int, ...]) -> _Dim | None:
    """Dims as one that runs through them in the order of memory; None where they do not lie so in all ``owners``."""
    dims: list[_Dim] = []
    for name in names:
        places = {n: factors[n].names.index(name) for n in owners}
        extents = {factors[n].layout.shape[axis] for n, axis in places.items()}
        if len(extents) != 1:
            return None
        extent, strides = extents.pop(), {n: factors[n].layout.strides[axis] for n, axis in places.items()}
        dims += [_Dim(extent, strides)] if extent > 1 else []
    dims.sort(key=lambda dim: -dim.strides[owners[-1]])
    whole = dims.pop(0) if dims else _Dim(1, dict.fromkeys(owners, 0))
    for dim in dims:
        if any(whole.strides[n] != dim.strides[n] * dim.extent for n in owners):
            return None
        whole = _Dim(whole.extent * dim.extent, dim.strides)
    return whole


def _matrix(factor: Factor, number: int, rows: _Dim, columns: _Dim, batch: _Dim) -> tuple[Matrix, bool] | None:
    """The factor by columns, or transposed (True); None where neither of its dims is contiguous."""
    turned = columns.contiguous(number) or (rows.extent > 1 and not rows.contiguous(number))
    along, across = (columns, rows) if turned else (rows, columns)
    leading = across.strides[number] if across.extent > 1 else along.extent
    if (along.extent > 1 and along.strides[number] != 1) or leading < along.extent:
        return None
    alignment = min(ALIGNMENT, factor.offset & -factor.offset or ALIGNMENT)
    apart = batch.strides[number] if batch.extent > 1 else 0
    return Matrix(factor.dtype, along.extent, across.extent, leading, apart, alignment), turned
