"""Element types, and tensor types as annotations: ``f16["h m d=64"]``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cleave.dialects.dims import parse
from cleave.dialects.tensor_type import DTYPES
from cleave.errors import CleaveError
from cleave.language.places import caller
from cleave.language.refusals import OTHER_DTYPES

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True)
class TensorAnnotation:
    """An element type and dims: names with blanks between them, each with a size where it has another than its name.

    ``"h m d=64"``: an integer makes the size static. ``"t=ceildiv(n,4)"``: an expression over other sizes.
    """

    dtype: str
    dims: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(word.partition("=")[0] for word in self.dims.split())

    @property
    def sizes(self) -> dict[str, str]:
        """Of the dims that have another than their name."""
        pairs = (word.partition("=") for word in self.dims.split())
        return {name: size for name, _, size in pairs if size}


@dataclass(frozen=True)
class Dtype:
    """An element type; ``f16["m k"]`` is the type of a tensor."""

    name: str

    def __getitem__(self, dims: str) -> TensorAnnotation:
        if not isinstance(dims, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise CleaveError(f"the dims of a tensor are one text, as in {self.name}['m k'], not {dims!r}", caller())
        annotation = TensorAnnotation(self.name, dims)
        if any(name.endswith(",") for name in annotation.names):
            raise CleaveError(f"dims stand apart by blanks: {self.name}[{dims.replace(',', '')!r}]", caller())
        for word in dims.split():
            self._check_dim(dims, *word.partition("="))
        twice = [name for number, name in enumerate(annotation.names) if name in annotation.names[:number]]
        if twice:
            text = f"two dims of {self.name}[{dims!r}] are called '{twice[0]}': ops tell dims apart by their names"
            raise CleaveError(text, caller(), (f"give one another name and the same size: '{twice[0]} b={twice[0]}'",))
        return annotation

    def _check_dim(self, dims: str, name: str, equals: str, size: str) -> None:
        where = f"of {self.name}[{dims!r}]"
        if not _NAME.fullmatch(name):
            notes = (f"a size has a name, too: 'm={name}'",) if name.isdigit() else ("as in 'm', or 'm=64' of size 64",)
            raise CleaveError(f"the dim '{name}{equals}{size}' {where} has no name", caller(), notes)
        if equals and not size:
            raise CleaveError(f"the dim '{name}=' {where} has no size", caller(), (f"'{name}' alone is of any size",))
        try:
            known = parse(size or name).value
        except CleaveError as error:
            raise error.at(caller()) from None
        if known is not None and known < 0:
            raise CleaveError(f"the size of '{name}' is {known}; sizes are at least 0", caller())

    def __str__(self) -> str:
        return self.name


DTYPE_OBJECTS = {name: Dtype(name) for name in DTYPES}
f16, bf16, f32, f64, tf32 = (DTYPE_OBJECTS[name] for name in ("f16", "bf16", "f32", "f64", "tf32"))
f8E4M3FN, f8E5M2 = (DTYPE_OBJECTS[name] for name in ("f8E4M3FN", "f8E5M2"))
i1, i8, i16, i32, i64 = (DTYPE_OBJECTS[name] for name in ("i1", "i8", "i16", "i32", "i64"))


def dtype_of(dtype: Dtype | str) -> str:
    """The name of an element type given as such or by name; CleaveError for one that does not exist."""
    name = dtype.__name__ if isinstance(dtype, type) else str(dtype)
    if name not in DTYPE_OBJECTS:
        other = OTHER_DTYPES.get(name.rpartition(".")[2])
        near = f"; did you mean '{other}'?" if other else ""
        raise CleaveError(f"there is no element type '{name}'{near}", notes=(f"element types: {', '.join(DTYPES)}",))
    return name
