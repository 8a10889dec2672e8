"""The choices that a warp-specialised kernel leaves open, each a switch, so that what it is worth can be measured."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True)
class Form:
    """``persistent``: no more blocks than run at once; each goes through several tiles, and its copies run ahead.

    ``kept_between_tiles``: what a loop adds up for a tile's rows is kept for the next tile of these rows.
    ``in_registers``: left operands that stay the same in a loop are there in registers, where these suffice.
    ``stored_by_copies``: results go through shared memory, from where copies take them while the next tile begins.
    ``in_turn``: consumers take turns at the tensor cores in loops that compute between products.
    ``run_on``: products of a loop that only adds them up run into its next iteration, where the buffers of two
    iterations that they then hold leave others to be filled.
    ``rest_in_order``: loops that go on with what another one carried, as masked ones do, are not rotated; otherwise
    only where registers would not suffice.
    ``side_by_side``: two products of one left operand that a loop adds up are one, its right operand both of theirs.
    ``masks_first``: a last tile with masks is a rotated loop's first iteration.
    ``one_code``: consumers that differ by their number alone run one code.
    ``polynomial``: an eighth of a loop's exponentials from an anchor are computed by multiply-adds.
    """

    persistent: bool = True
    kept_between_tiles: bool = True
    in_registers: bool = True
    in_turn: bool = True
    stored_by_copies: bool = True
    run_on: bool = True
    rest_in_order: bool = True
    side_by_side: bool = True
    masks_first: bool = True
    one_code: bool = True
    polynomial: bool = False

    @property
    def label(self) -> str:
        """In what it differs from the usual form; "" for that."""
        found = ((field.name.replace("_", " "), getattr(self, field.name), field.default) for field in fields(self))
        return "".join(f", {'' if value else 'not '}{name}" for name, value, usual in found if value != usual)


MARK = ", warp-specialised"
"""In labels of programs that have kernels in any of these forms; the form's label is behind it."""

BESIDE_THE_USUAL = (
    Form(masks_first=False, polynomial=True),
    Form(in_registers=False, in_turn=False, masks_first=False),
    Form(in_turn=False),
)
"""The forms in which some programs are measured, too. On an H200 tiles of 128 rows with heads of 64, whose exponentials
take as long as anything, take 4 % less in the first; elsewhere masks first take 2 to 8 % less. MLA of 4096 rows, for
which the GPU lowers its clock, takes 3 % less in the second, of 1024 rows as long; heads of 128 up to 9 % more. In the
third MLA of 2048 rows takes 2 % less, of fewer rows up to 7 % more, heads of 128 7 to 13 %."""


def ablations() -> list[Form]:
    """The usual form with each switch the other way, and those beside it."""
    usual = Form()
    others = [replace(usual, **{field.name: not field.default}) for field in fields(usual)]
    return list(dict.fromkeys([*others, *BESIDE_THE_USUAL]))
