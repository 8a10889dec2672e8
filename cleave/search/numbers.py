"""Constants as the numbers that their element types hold."""

from __future__ import annotations

import struct
from fractions import Fraction

from cleave.search.terms import Number

_FORMATS = {"f16": "e", "f32": "f", "f64": "d", "tf32": "f"}


def nearest(value: Number | float, dtype: str) -> Fraction:
    """The number of that type next to ``value``, ties to even. OverflowError where none is finite."""
    if dtype == "bf16":
        return _bf16(Fraction(value))
    single = float(value)
    return Fraction(struct.unpack(_FORMATS.get(dtype, "d"), struct.pack(_FORMATS.get(dtype, "d"), single))[0])


def _bf16(value: Fraction) -> Fraction:
    bits = struct.unpack("<I", struct.pack("<f", float(value)))[0]
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return Fraction(struct.unpack("<f", struct.pack("<I", rounded))[0])
