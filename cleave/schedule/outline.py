"""What of a kernel costs time, block by block, as functions of tile extents.

Which instructions feed which, what is loaded twice, what is in registers at once: none of this depends on extents but
through a few answers, as whether a contraction goes to the tensor cores. Kernels that differ in extents alone and agree
in these have one outline, so that to weigh another of them takes some products and sums.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

from cleave.schedule.occupancy import Occupied, occupied, repeated_loads
from cleave.schedule.tile_program import LOADS, Block, Instruction, Kernel, Ref
from cleave.schedule.tile_sizes import BYTES, Amount, Shapes, Sides, extents_of, left_operand, sides_of
from cleave.schedule.warps import WGMMA_ROWS, copies, exchanges, is_between_warps, staged

SPECIAL = frozenset("exp exp2 log sqrt rsqrt tanh erf sin cos sigmoid div pow".split())
MADE = ("constant", "splat", "index")
"""Instructions whose tiles take no time."""


@dataclass(frozen=True)
class Product:
    """A contraction of tiles with dims ``names``, which have the extents ``own`` if no others are given.

    ``tensor``: on the tensor cores; ``many_rows``: enough for ``wgmma``; ``tf32``: with operands of that type.
    """

    names: tuple[str, ...]
    own: Mapping[str, int]
    sides: Sides
    tensor: bool
    many_rows: bool
    tf32: bool


@dataclass(frozen=True)
class Fetch:
    """A load of a tile of so many ``bytes``, in rows of ``row`` that lie side by side in memory; ``varying``: the dims
    of the source along which blocks differ in it.

    ``matrix``: whether a descriptor could have its shape and its end. ``element``: bytes of one where a thread reads
    them one after the other, otherwise 0. ``multiplied``: whether it is a matrix in rows of memory for tensor cores.
    """

    source: Ref
    bytes: Amount
    row: Amount
    varying: frozenset[str]
    gathers: bool
    matrix: bool
    element: int
    multiplied: bool


@dataclass(frozen=True)
class Stretch:
    """The body of a loop without the loops in it, or what lies outside all loops, whose ``loop`` is None; ``around``
    is the number of the one that it lies in. The rest is as in ``workload.Chain``.

    ``chained``: contractions by ``wgmma`` that another one feeds. ``copies``: bytes of tiles for ``wgmma``.
    ``special``, ``simple``: elements of register code. ``computes``: whether this does more than to add contractions
    up; ``apart``: and has nothing of them, nor they of it; ``follows``: the dims along which what it computes then
    differs from block to block; None where it has a number for each column of a contraction, too many to be kept.
    """

    loop: Instruction | None
    around: int
    pipelined: bool
    exchanges: int
    staged: Amount
    chained: tuple[Product, ...]
    copies: tuple[Amount, ...]
    waited: int
    repeated: int
    repeats: Amount
    products: tuple[Product, ...]
    loads: tuple[Fetch, ...]
    stored: Amount
    reductions: int
    meetings: int
    special: Amount
    simple: Amount
    computes: bool
    apart: bool
    follows: frozenset[str] | None


@dataclass(frozen=True)
class Outline:
    """Blocks in the order in which they are entered, and what the kernel occupies. ``arguments`` and ``roles`` are its;
    ``loaded``: those that it loads tiles of."""

    arguments: tuple[Ref, ...]
    roles: Mapping[Ref, Ref]
    shapes: Shapes
    stretches: tuple[Stretch, ...]
    occupied: Occupied
    loaded: frozenset[Ref]


_OUTLINES: WeakKeyDictionary[Block, Outline] = WeakKeyDictionary()


def outline_of(kernel: Kernel) -> Outline:
    """That of its body, which other kernels may have too: with other resources, say."""
    if kernel.body not in _OUTLINES:
        shapes = Shapes()
        writer = _Writer(kernel, shapes)
        writer.add(kernel.body, None, -1)
        loaded = frozenset(i.operands[0] for i in kernel.body.walk() if i.op == "load")
        found = tuple(writer.stretches), occupied(kernel, shapes), loaded
        _OUTLINES[kernel.body] = Outline(kernel.arguments, kernel.roles, shapes, *found)
    return _OUTLINES[kernel.body]


class Outlines:
    """The outlines of kernels that are ``kernel``, whose tile extents are ``own``, with other ones; ``resized`` makes
    one of these."""

    def __init__(self, kernel: Kernel, own: Mapping[str, int], resized: Callable[[Mapping[str, int]], Kernel]) -> None:
        self.kernel, self._resized = kernel, resized
        self._found = {tuple(self._answers(own)): outline_of(kernel)}

    def at(self, tiles: Mapping[str, int]) -> Outline:
        answers = tuple(self._answers(tiles))
        if answers not in self._found:
            self._found[answers] = outline_of(self._resized(tiles))
        return self._found[answers]

    def _answers(self, tiles: Mapping[str, int]) -> Iterator[Hashable]:
        """All that an outline asks about extents."""
        for sides in self._contractions:
            yield sides.is_tensor_core(tiles), sides.is_matrix_product(tiles), sides.shape(tiles)[0] >= WGMMA_ROWS
        for operand, over in self._reductions:
            yield is_between_warps(operand, over, tiles)
        if self._compares:
            extents = list(tiles.values())
            yield tuple(map(extents.index, extents))

    @cached_property
    def _contractions(self) -> tuple[Sides, ...]:
        return tuple(dict.fromkeys(sides_of(i) for i in self.kernel.body.walk() if i.op == "contract"))

    @cached_property
    def _reductions(self) -> tuple[tuple[Ref, Sequence[str]], ...]:
        found = {(i.operands[0].names, tuple(i.attrs["over"])): i for i in self.kernel.body.walk() if i.op == "reduce"}
        return tuple((i.operands[0], i.attrs["over"]) for i in found.values())

    @cached_property
    def _compares(self) -> bool:
        """Whether tiles of other dims may be the same elements: those of one tensor under two names, or transposed."""
        names = {ref.names for i in self.kernel.body.walk() for ref in i.results}
        return bool(self.kernel.roles) or len({frozenset(each) for each in names}) < len(names)


class _Writer:
    def __init__(self, kernel: Kernel, shapes: Shapes) -> None:
        self.kernel, self.shapes = kernel, shapes
        self.stretches: list[Stretch] = []
        self.products = {i: _product(i) for i in kernel.body.walk() if i.op == "contract"}
        self.multiplied = {operand for i, product in self.products.items() if product.tensor for operand in i.operands}
        self.sized = sized(kernel)

    def add(self, block: Block, loop: Instruction | None, around: int) -> None:
        number = len(self.stretches)
        self.stretches.append(self._stretch(block, loop, around))
        for instruction in block.instructions:
            if instruction.body:
                self.add(instruction.body, instruction, number)

    def _stretch(self, block: Block, loop: Instruction | None, around: int) -> Stretch:
        repeated = repeated_loads(block, self.kernel.roles)
        own = [i for i in block.instructions if i not in repeated and not i.body]
        pipelined = loop is not None and self._is_pipelined(block)
        operands, count = staged(block, self.shapes)
        loads = [i.result for i in block.instructions if i.op == "load"] if pipelined else []
        twice = [tile for tile in loads if self._has_both_uses(tile, block)]
        reductions = [i for i in own if i.op == "reduce"]
        simple = [i.operands[0] if i.op == "reduce" else i.result for i in own if _is_simple(i)]
        chained, apart = self._chained(block), self._is_apart(block)
        return Stretch(
            loop,
            around,
            pipelined,
            exchanges=exchanges(block) + count,
            staged=operands,
            chained=chained,
            copies=copies(block, self.shapes) if pipelined else (),
            waited=self._waited(block) if pipelined else 0,
            repeated=len(twice),
            repeats=self.shapes.bytes(twice),
            products=tuple(self.products[i] for i in own if i.op == "contract"),
            loads=tuple(self._fetch(i) for i in own if i.op in LOADS),
            stored=self.shapes.bytes(i.operands[0] for i in own if i.op == "store"),
            reductions=len(reductions),
            meetings=sum(map(_meets, reductions)),
            special=self.shapes.elements(i.result for i in own if i.op in SPECIAL),
            simple=self.shapes.elements(simple),
            computes=_computes(block),
            apart=apart,
            follows=_follows(block) if apart else None,
        )

    def _fetch(self, load: Instruction) -> Fetch:
        source, gathers = load.operands[0], load.op == "gather_load"
        apart = gathers and not load.attrs["contiguous"] and source.names[-1] in load.attrs["dims"]
        return Fetch(
            source,
            self.shapes.bytes([load.result]),
            self.shapes.row(load.result, source.names[-1]) if source.names else Amount(),
            frozenset(load.attrs.get("varying", source.names)),
            gathers,
            is_matrix(load, self.sized),
            BYTES.get(source.tile.dtype, 1) if apart else 0,
            load.result in self.multiplied and has_rows(load),
        )

    def _is_pipelined(self, block: Block) -> bool:
        """Triton pipelines the loads of a loop with a contraction, all of them; those of other loops go to registers.

        Loops that it would pipeline wrongly are held back by the lowering (``lowering/ttir_race.py``).
        """
        products = [i for i in block.instructions if i.op == "contract" and self.products[i].tensor]
        return bool(products) and not self._is_held_back(products, block)

    def _is_held_back(self, products: Sequence[Instruction], block: Block) -> bool:
        """Whether a product of many rows takes its left operand from registers, and nothing in the loop uses a
        product."""
        computed = {i.result for i in block.instructions if i.op not in LOADS and i.results}
        registers = any(left_operand(i) in computed and self.products[i].many_rows for i in products)
        return registers and all(_is_accumulated(i.result, block) for i in products)

    def _waited(self, block: Block) -> int:
        return sum(i.op == "contract" and not _is_accumulated(i.result, block) for i in block.instructions)

    def _is_apart(self, block: Block) -> bool:
        """Whether contractions only add up, and multiply nothing that register code makes."""
        products = [i for i in block.instructions if i.op == "contract" and self.products[i].tensor]
        made = {result for i in block.instructions if i.op not in LOADS for result in i.results}
        fed = any(not made.isdisjoint(product.operands) for product in products)
        return bool(products) and not fed and all(_is_accumulated(product.result, block) for product in products)

    def _has_both_uses(self, tile: Ref, block: Block) -> bool:
        users = [i for i in block.instructions if tile in i.operands]
        return {i.op == "contract" and self.products[i].tensor for i in users} == {True, False}

    def _chained(self, block: Block) -> tuple[Product, ...]:
        """The ``wgmma`` contractions of a block that have an operand computed from another one of them."""
        computed: set[Ref] = set()
        found: list[Product] = []
        for instruction in block.instructions:
            fed = not computed.isdisjoint(instruction.operands)
            if instruction.op == "contract" and self.products[instruction].tensor:
                found += [self.products[instruction]] if fed and self.products[instruction].many_rows else []
                computed.add(instruction.result)
            elif fed and not instruction.body:
                computed.update(instruction.results)
        return tuple(found)


def _product(contraction: Instruction) -> Product:
    sides, own = sides_of(contraction), extents_of(contraction)
    many_rows = sides.shape(own)[0] >= WGMMA_ROWS
    tf32 = "tf32" in {operand.tile.dtype for operand in contraction.operands}
    return Product(tuple(own), own, sides, sides.is_tensor_core(own), many_rows, tf32)


def _is_simple(instruction: Instruction) -> bool:
    """Whether it is register code that takes no special functions."""
    counted = (*LOADS, *MADE, "store", "contract")
    made = bool(instruction.results) and instruction.result.type is not None
    return made and instruction.op not in counted and instruction.op not in SPECIAL


def _computes(block: Block) -> bool:
    """Whether anything of the block's register code is needed but for sums that contractions are added to."""
    needed = {*block.yields, *(operand for i in block.instructions for operand in i.operands)}
    products = {i.result for i in block.instructions if i.op == "contract"}
    code = [i for i in block.instructions if i.op in SPECIAL or _is_simple(i)]
    sums = [i for i in code if i.op == "add" and i.result in block.yields and not products.isdisjoint(i.operands)]
    return any(i not in sums and i.result in needed for i in code)


def _follows(block: Block) -> frozenset[str] | None:
    """The dims of memory along which blocks differ in what register code is made of, sums of contractions aside; None
    if columns of a contraction are among them."""
    products = {i.result for i in block.instructions if i.op == "contract"}
    sums = [i for i in block.instructions if i.op == "add" and not products.isdisjoint(i.operands)]
    code = (i for i in block.instructions if i.op not in (*LOADS, "contract") and i not in sums)
    needed = {operand for i in code for operand in i.operands}
    loads = (i for i in block.instructions if i.op in LOADS and i.result in needed)
    found = frozenset(name for i in loads for name in i.attrs.get("varying", i.operands[0].names))
    return found if found.isdisjoint(product.names[-1] for product in products) else None


def _meets(reduction: Instruction) -> bool:
    operand = reduction.operands[0]
    return is_between_warps(
        operand, reduction.attrs["over"], {dim.name: dim.size.value or 1 for dim in operand.tile.dims}
    )


def _is_accumulated(product: Ref, block: Block) -> bool:
    """Whether it is only added to what the next iteration adds to."""
    users = [i for i in block.instructions if product in i.operands]
    return all(i.op == "add" and i.result in block.yields for i in users)


def sized(kernel: Kernel) -> frozenset[Ref]:
    """The indices that are sizes of dims."""
    return frozenset(i.result for i in kernel.body.walk() if i.op in ("extent", "arith.constant"))


def has_rows(load: Instruction) -> bool:
    """Whether a load is of a matrix with neighbours in memory."""
    source, picked = load.operands[0], load.attrs.get("dims", ())
    return len(load.result.names) == 2 and source.names[-1] in load.result.names and source.names[-1] not in picked


def is_matrix(load: Instruction, sizes: frozenset[Ref]) -> bool:
    """Whether a load is of a matrix that ends where its tensor does; ``sizes``: as of ``sized``."""
    if load.op != "load":
        return False
    rank = (len(load.operands) - 1) // 2
    bounds = zip(load.operands[0].names, load.operands[1 + rank :], strict=True)
    inside = load.attrs.get("in_bounds", ())
    return len(load.result.names) == 2 and all(name in inside or bound in sizes for name, bound in bounds)
