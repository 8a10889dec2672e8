"""Tensors that are not row-major, as parts of row-major ones around them.

The rows of a slice of a wider tensor lie further apart than they are long: their distance, the pitch, is the length of
the rows of a tensor that is row-major and has the slice as a part of each row. So the function is compiled for that
tensor, and a slice of it, which costs no copy.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from cleave.dialects.dims import Dim
from cleave.dialects.given_sizes import LARGEST_EXTENT
from cleave.errors import CleaveError
from cleave.runtime.cuda_tensors import ALIGNMENT, address_of, layout_of
from cleave.runtime.launch_plan import LaunchPlan, TensorSpec
from cleave.runtime.layout import BYTES, Layout


@dataclass(frozen=True, order=True)
class Pitched:
    """How a tensor lies in memory: ``order``, its dims from the outermost to the one whose elements are neighbours;
    ``padded``: whether there is more along each of them, in this order, than the tensor has."""

    order: tuple[int, ...]
    padded: tuple[bool, ...]

    @staticmethod
    def of(layout: Layout, dtype: str) -> tuple[Pitched, Layout] | None:
        """For a tensor with these strides, and the row-major one that it is a part of.

        None where there is none: for elements that are not neighbours along any dim, or are used several times, and for
        rows that do not all start at a multiple of 16 bytes, for which a copy is quicker to read.
        """
        extents, strides = layout.shape, layout.strides
        order = sorted(range(len(extents)), key=lambda axis: (extents[axis] > 1, -strides[axis], axis))
        if not order or strides[order[-1]] != 1 or 0 in extents:
            return None
        pitches = [extents[order[0]]]
        for outer, inner in itertools.pairwise(order):
            if extents[outer] == 1:  # its stride does not matter
                pitches.append(extents[inner])
                continue
            pitch, rest = divmod(strides[outer], strides[inner])
            if rest or not extents[inner] <= pitch <= LARGEST_EXTENT or strides[outer] * BYTES[dtype] % ALIGNMENT:
                return None
            pitches.append(pitch)
        padded = tuple(pitch != extents[axis] for axis, pitch in zip(order, pitches, strict=True))
        return Pitched(tuple(order), padded), Layout.row_major(pitches)

    @staticmethod
    def parse(text: str, names: Sequence[str]) -> Pitched:
        """From the names of a tensor's dims as they lie in memory, ``+`` behind each that is padded: "n h+ d"."""
        words = text.split()
        order = [word.removesuffix("+") for word in words]
        if sorted(order) != sorted(names):
            notes = ("the names of all dims as they lie in memory, the outermost first, as in 'm k+'",)
            raise CleaveError(f"the layout '{text}' is none of a tensor with the dims {', '.join(names)}", notes=notes)
        if words and words[0].endswith("+"):
            notes = (f"write '{words[0][:-1]} {' '.join(words[1:])}'",)
            raise CleaveError(f"the layout '{text}' has a padded outermost dim, which makes no difference", notes=notes)
        return Pitched(tuple(names.index(name) for name in order), tuple(word.endswith("+") for word in words))

    def spelt(self, names: Sequence[str]) -> str:
        """The text that ``parse`` reads."""
        return " ".join(names[axis] + "+" * pad for axis, pad in zip(self.order, self.padded, strict=True))

    def around(self, layout: Layout) -> Layout | None:
        """The row-major tensor around one that lies so; None where it does not."""
        extents, strides = layout.shape, layout.strides
        if len(extents) != len(self.order) or 0 in extents:
            return None
        pitches: list[int] = []
        step = 1  # from one element along the axis to the next
        for place in reversed(range(len(self.order))):
            axis = self.order[place]
            if extents[axis] > 1 and strides[axis] != step:
                return None
            outer = next((strides[a] for a in reversed(self.order[:place]) if extents[a] > 1), None)
            pitch = extents[axis]
            if self.padded[place] and outer is not None:
                pitch = outer // step  # where that is not exact, the outer axis has another stride than is wanted
                if not extents[axis] <= pitch <= LARGEST_EXTENT:
                    return None
            pitches.append(pitch)
            step *= pitch
        return Layout.row_major(pitches[::-1])

    def joined(self, other: Pitched) -> Pitched:
        """For what lies like this or like another of the same order."""
        return Pitched(self.order, tuple(a or b for a, b in zip(self.padded, other.padded, strict=True)))


Layouts = tuple[tuple[int, Pitched], ...]
"""How arguments of some numbers lie; the others are row-major."""


def layouts_of(texts: Mapping[str, str], arguments: Sequence[TensorSpec], function: str) -> Layouts:
    """From the layouts of arguments by name. CleaveError for names that are none, and as of ``Pitched.parse``."""
    known = {spec.name: (number, spec) for number, spec in enumerate(arguments)}
    for name in texts.keys() - known.keys():
        raise CleaveError(f"'{name}' is no argument of {function}", notes=(f"arguments: {', '.join(known)}",))
    pairs = [(known[name], text) for name, text in texts.items()]
    return tuple(sorted((number, Pitched.parse(text, names_of(spec))) for (number, spec), text in pairs))


def checked_layouts(layouts: Any) -> list[Mapping[str, str]]:
    """A list of layouts by argument as it was given; CleaveError for anything else."""
    if isinstance(layouts, Sequence) and all(_is_layouts(each) for each in cast(Sequence[Any], layouts)):
        return list(cast(Sequence[Mapping[str, str]], layouts))
    note = 'as in layouts=[{"x": "m k+", "w": "n k"}]'
    raise CleaveError(f"layouts={layouts!r}: a list of dictionaries of texts", notes=(note,))


def _is_layouts(each: Any) -> bool:
    texts = cast(Mapping[Any, Any], each)
    return isinstance(each, Mapping) and all(isinstance(text, str) for pair in texts.items() for text in pair)


def generality(layouts: Layouts) -> tuple[int, int]:
    """By which those stand first that are for the fewest tensors: their code is the quickest."""
    return len(layouts), sum(sum(pitched.padded) for _, pitched in layouts)


@dataclass(frozen=True)
class Parts:
    """The arguments as they are given, where a plan takes the row-major tensors around those of these ``layouts``."""

    arguments: tuple[TensorSpec, ...]
    layouts: Layouts

    def spelt(self) -> str:
        """As in ``"x": "m k+", "w": "n k"``."""
        specs = [(self.arguments[number], layout) for number, layout in self.layouts]
        return ", ".join(f'"{spec.name}": "{layout.spelt(names_of(spec))}"' for spec, layout in specs)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Parts:
        """What ``to_json`` gave, read back from JSON; ValueError where it is something else."""
        arguments = tuple(
            TensorSpec(spec["name"], spec["dtype"], tuple(spec["dims"]), tuple(spec["extents"]))
            for spec in data["arguments"]
        )
        layouts = tuple(
            (int(number), Pitched(tuple(layout["order"]), tuple(layout["padded"])))
            for number, layout in data["layouts"]
        )
        for number, layout in layouts:
            if sorted(layout.order) != list(range(len(arguments[number].dims))):
                raise ValueError(f"argument {number} has other dims than its layout")
        return Parts(arguments, layouts)

    def around_only(self, plan: LaunchPlan) -> set[str]:
        """The symbols of the tensors around: callers know nothing of them."""
        return argument_symbols(plan.arguments) - argument_symbols(self.arguments)

    def plain(self, plan: LaunchPlan) -> LaunchPlan:
        """The plan as its callers see it, without steps."""
        return replace(plan, arguments=self.arguments, steps=(), results=(), aligned=None)


def argument_symbols(arguments: Sequence[TensorSpec]) -> set[str]:
    """The symbols of the sizes of their dims."""
    return {symbol for spec in arguments for text in spec.dims for symbol in Dim.parse(text).size.symbols}


def names_of(spec: TensorSpec) -> list[str]:
    """Of its dims."""
    return [Dim.parse(text).name for text in spec.dims]


@dataclass(frozen=True)
class Around:
    """The row-major tensor around ``part``, with the methods of PyTorch's tensors that the launcher asks for."""

    part: Any
    shape: tuple[int, ...]

    @property
    def dtype(self) -> Any:
        return self.part.dtype if hasattr(self.part, "data_ptr") else layout_of("a tensor", self.part)[1]

    @property
    def device(self) -> Any:
        return self.part.device

    def get_device(self) -> int:
        return self.part.get_device()

    def data_ptr(self) -> int:
        return address_of(self.part)

    def stride(self) -> tuple[int, ...]:
        return Layout.row_major(self.shape).strides
