"""What a call launches, as far as the shapes of its arguments tell it: grids, parameters, shapes of new memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cleave.dialects.dims import Dim
from cleave.errors import CleaveError
from cleave.runtime.bind_sizes import Sizes, bind_form
from cleave.runtime.cublas import Planned
from cleave.runtime.cuda_driver import TensorMap
from cleave.runtime.descriptors import DESCRIPTOR, DescriptorSpec, is_empty, refusal
from cleave.runtime.gemm import Factor, Gemm, gemm_of
from cleave.runtime.launch_plan import Alloc, Launch, LaunchPlan, TensorSpec, View
from cleave.runtime.layout import BYTES, Layout, grid_of, number_argument, shape_of, view_offset, viewed

PARAMETER_BYTES = {"in": 8, "size": 4, "stride": 8, "desc": TensorMap.BYTES}
_APART = 256
"""Bytes: of this the pieces of a workspace are multiples."""
SCRATCH_POINTERS = 2
"""Which Triton appends to the parameters, for global memory and for the profiler; null here."""


@dataclass(frozen=True)
class Place:
    """A tensor in the memory of input or allocation number ``root``, from element ``offset`` on."""

    root: int
    layout: Layout
    offset: int = 0
    whole: bool = True  # it is all of its root, in its shape

    def of(self, owner: Any) -> Any:
        """The tensor as an object like that which holds its root."""
        if self.whole:
            return owner
        return owner.reshape(-1)[self.offset : self.offset + self.layout.count].reshape(self.layout.shape)


@dataclass(frozen=True)
class Described:
    """A parameter that is a tensor descriptor: of the tensor ``name``, ``offset`` bytes from its root."""

    parameter: int
    root: int
    offset: int
    name: str
    dtype: str
    tensor: Layout


@dataclass(frozen=True)
class Product:
    """A launch that a library may make, by its algorithm number ``rank``, from 1 on.

    ``places``: (root, bytes from it) of the Gemm's a, b and d.
    """

    gemm: Gemm
    rank: int
    places: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class BoundLaunch:
    """A launch without addresses: ``image`` holds the parameters, ``pointers`` (parameter, root, bytes from it).

    The flags are those of ``Launch``. ``product``: what a library may make in place of the kernel; ``planned``: how it
    does.
    """

    kernel: str
    grid: tuple[int, ...]
    image: tuple[int, ...]
    pointers: tuple[tuple[int, int, int], ...]
    described: tuple[Described, ...] = ()
    overlaps: bool = False
    cooperative: bool = False
    unless: str = ""
    persistent: bool = False
    product: Product | None = None
    planned: Planned | None = None

    @property
    def roots(self) -> set[int]:
        """Whose memory it uses."""
        return {root for _, root, _ in self.pointers} | {entry.root for entry in self.described}

    def moved(self, places: Mapping[int, tuple[int, int]]) -> BoundLaunch:
        """The same where each root is another one, from so many bytes on."""
        pointers = tuple((number, places[root][0], places[root][1] + offset) for number, root, offset in self.pointers)
        described = tuple(
            replace(entry, root=places[entry.root][0], offset=places[entry.root][1] + entry.offset)
            for entry in self.described
        )
        return replace(self, pointers=pointers, described=described)


PlannedOf = Callable[[Product], Planned | None]
"""How a library makes a product; None where it does not."""


@dataclass(frozen=True)
class Bound:
    """A plan at certain shapes. Roots are numbered: the inputs, then ``allocated`` in order.

    ``zeroed``: (root, bytes) of memory that must be zero when the launches begin.
    """

    allocated: tuple[tuple[TensorSpec, tuple[int, ...]], ...]
    launches: tuple[BoundLaunch, ...]
    results: tuple[Place, ...]
    zeroed: tuple[tuple[int, int], ...] = ()

    def by_library(self, planned_of: PlannedOf, inputs: int) -> Bound:
        """With those products made by a library that it makes. ``inputs``: how many roots these are.

        All use one workspace, for none starts before the launch ahead of it is complete. Nor does what is behind one:
        the library's kernels may let it start when they like.
        """
        plans = [launch.product and planned_of(launch.product) for launch in self.launches]
        size, root = max((planned.workspace for planned in plans if planned), default=0), inputs + len(self.allocated)
        behind = [None, *plans]
        launches = tuple(
            _by_library(launch, planned, root) if planned else replace(launch, overlaps=launch.overlaps and not ahead)
            for launch, planned, ahead in zip(self.launches, plans, behind, strict=False)
        )
        more = ((TensorSpec("workspace", "i8", ("bytes",), (size,)), (size,)),) if size else ()
        return replace(self, allocated=(*self.allocated, *more), launches=launches)

    def on_gpu(self, fits: Callable[[BoundLaunch], bool], *, overlaps: bool) -> Bound:
        """The launches to make on a GPU that has room for all blocks of a cooperative launch where ``fits`` says so.

        They overlap if its launches can, but for the first one: that would with what is ahead of the call.
        """
        rejected = {launch.kernel for launch in self.launches if launch.cooperative and not fits(launch)}
        chosen = [
            launch
            for launch in self.launches
            if launch.kernel not in rejected and (not launch.unless or launch.unless in rejected)
        ]
        first = 1 if overlaps else len(chosen)
        chosen[:first] = [replace(launch, overlaps=False) for launch in chosen[:first]]
        used = {root for launch in chosen for root in launch.roots}
        return replace(self, launches=tuple(chosen), zeroed=tuple(zero for zero in self.zeroed if zero[0] in used))

    def pooled(self, inputs: int) -> Bound:
        """With one tensor of bytes for all memory that is no result's and no counter's; none for what is not used.

        The roots are the ``inputs``, those of results, the workspace, and the counters.
        """
        used = {root for launch in self.launches for root in launch.roots}
        results, counters = {place.root for place in self.results}, dict(self.zeroed)
        roots = range(inputs, inputs + len(self.allocated))
        kept = [root for root in roots if root in results]
        moved = {root: (number, 0) for number, root in enumerate((*range(inputs), *kept))}
        workspace, size = len(moved), 0
        pieces = [root for root in roots if root in used and root not in results and root not in counters]
        for root in pieces:
            spec, shape = self.allocated[root - inputs]
            moved[root] = workspace, size
            size += -(-math.prod(shape) * BYTES[spec.dtype] // _APART) * _APART
        first_counter = workspace + bool(pieces)
        moved |= {root: (number, 0) for number, root in enumerate(counters, first_counter)}
        more = ((TensorSpec("workspace", "i8", ("bytes",), (size,)), (size,)),) if pieces else ()
        found = [tuple(self.allocated[root - inputs] for root in part) for part in (kept, counters)]
        return Bound(
            (*found[0], *more, *found[1]),
            tuple(launch.moved(moved) for launch in self.launches),
            tuple(replace(place, root=moved[place.root][0]) for place in self.results),
            tuple((moved[root][0], count) for root, count in self.zeroed),
        )


def _by_library(launch: BoundLaunch, planned: Planned, workspace: int) -> BoundLaunch:
    """``workspace``: the root that it is."""
    places = launch.product.places if launch.product else ()
    roots = [*places, (workspace, 0)] if planned.workspace else places
    pointers = tuple((number, root, offset) for number, (root, offset) in enumerate(roots))
    return replace(launch, pointers=pointers, described=(), overlaps=False, planned=planned)


def bind(plan: LaunchPlan, inputs: Sequence[Layout], given: Mapping[str, int]) -> Bound:
    """The plan at the shapes and strides of its inputs; launches with empty grids are left out.

    CleaveError for sizes that disagree, break a fact or are out of range, and strides that the kernels are not told.
    """
    return _Binder(plan, inputs, given).run()


class _Binder:
    def __init__(self, plan: LaunchPlan, inputs: Sequence[Layout], given: Mapping[str, int]) -> None:
        self.roots = list(inputs)
        self.plan, self.sizes = bind_form(plan, [layout.shape for layout in inputs], given)
        named = enumerate(zip(plan.arguments, inputs, strict=True))
        self.places = {spec.name: Place(root, layout) for root, (spec, layout) in named}

    def run(self) -> Bound:
        for spec in self.plan.arguments:
            shape_of(spec, self.sizes)  # for its limits
        allocated: list[tuple[TensorSpec, tuple[int, ...]]] = []
        launches: list[BoundLaunch] = []
        zeroed: list[tuple[int, int]] = []
        for step in self.plan.steps:
            if isinstance(step, Alloc):
                shape = shape_of(step.tensor, self.sizes)
                if step.zeroed:
                    zeroed.append((len(self.roots), math.prod(shape) * BYTES[step.tensor.dtype]))
                self.places[step.tensor.name] = Place(len(self.roots), Layout.row_major(shape))
                self.roots.append(Layout.row_major(shape))
                allocated.append((step.tensor, shape))
            elif isinstance(step, View):
                self.places[step.tensor.name] = self._view(step)
            else:
                grid = grid_of(step, self.sizes)
                if 0 not in grid:
                    launches.append(self._launch(step, grid))
        results = tuple(self._result(name) for name in self.plan.results)
        return Bound(tuple(allocated), tuple(launches), results, tuple(zeroed))

    def _view(self, view: View) -> Place:
        source = self.places[view.source]
        offset = source.offset + view_offset(view, source.layout, self.sizes)
        return Place(source.root, viewed(view, source.layout, self.sizes), offset, False)

    def _result(self, name: str) -> Place:
        place = self.places[name]
        root = self.roots[place.root]
        if place.whole or (place.layout.shape == root.shape and not place.offset):
            return Place(place.root, root)
        if place.offset + place.layout.count > root.count:
            raise CleaveError(f"result {name} is a split that does not divide: it has no array of its own")
        if not place.layout.is_row_major:
            raise CleaveError(f"result {name} is a part of another tensor: it has no array of its own")
        return place

    def _launch(self, launch: Launch, grid: tuple[int, ...]) -> BoundLaunch:
        operands = [self.places[name] for name in launch.operands]
        self._check_strides(launch, operands)
        dtypes = [self.plan.tensors[name].dtype for name in launch.operands]
        layouts = [place.layout for place in operands]
        image = [0] * (len(launch.arguments) + SCRATCH_POINTERS)
        pointers: list[tuple[int, int, int]] = []
        described: list[Described] = []
        for parameter, text in enumerate(launch.arguments):
            kind, _, rest = text.partition(":")
            if kind == "in":
                place = operands[int(rest)]
                pointers.append((parameter, place.root, place.offset * BYTES[dtypes[int(rest)]]))
            elif text.startswith(DESCRIPTOR):
                described.append(self._described(launch, parameter, DescriptorSpec.parse(text)))
            else:
                image[parameter] = _number(launch, text, layouts, self.sizes)
        flags = (launch.overlaps, launch.cooperative, launch.unless, launch.persistent)
        product = self._product(launch, operands) if launch.product else None
        return BoundLaunch(launch.kernel, grid, tuple(image), tuple(pointers), tuple(described), *flags, product)

    def _product(self, launch: Launch, operands: Sequence[Place]) -> Product | None:
        """The launch as one of BLAS's products, if it is one at these sizes and strides."""
        specs = [self.plan.tensors[name] for name in launch.operands]
        dims = [tuple(Dim.parse(text).name for text in spec.dims) for spec in specs]
        offsets = [place.offset * BYTES[spec.dtype] for place, spec in zip(operands, specs, strict=True)]
        whole = zip(dims, specs, operands, offsets, strict=True)
        factors = [Factor(names, spec.dtype, place.layout, offset) for names, spec, place, offset in whole]
        result = launch.operands.index(launch.outputs[0])
        order = [*(number for number in range(len(factors)) if number != result), result]
        gemm = gemm_of([factors[number] for number in order])
        if gemm is None:
            return None
        return Product(gemm, launch.product, tuple((operands[order[n]].root, offsets[order[n]]) for n in gemm.order))

    def _described(self, launch: Launch, parameter: int, spec: DescriptorSpec) -> Described:
        name = launch.operands[spec.operand]
        place, dtype = self.places[name], self.plan.tensors[name].dtype
        tensor, offset = spec.described(place.layout), place.offset * BYTES[dtype]
        problem = None if is_empty(tensor) else refusal(tensor, offset, BYTES[dtype])
        if problem:
            raise CleaveError(f"{name} {problem}, and kernel {launch.kernel} takes a descriptor of it")
        return Described(parameter, place.root, offset, name, dtype, tensor)

    def _check_strides(self, launch: Launch, operands: Sequence[Place]) -> None:
        """CleaveError for an operand that is not row-major where the kernel is not told its strides."""
        told = {int(text.split(":")[1]) for text in launch.arguments if text.startswith("stride:")}
        for index, (name, place) in enumerate(zip(launch.operands, operands, strict=True)):
            root = self.roots[place.root]
            if index not in told and not root.is_row_major:
                strides = f"{name} of shape {list(root.shape)} has the strides {list(root.strides)}"
                notes = ("make a contiguous copy of it",)
                raise CleaveError(f"{strides}; the function takes row-major tensors", notes=notes)


def _number(launch: Launch, text: str, layouts: Sequence[Layout], sizes: Sizes) -> int:
    number = number_argument(text, layouts, sizes)
    if text.startswith("size:") and not 0 <= number < 2**31:
        size = text.removeprefix("size:")
        raise CleaveError(f"size {size} of kernel {launch.kernel} is {number}; sizes are 0 to {2**31 - 1}")
    return number
