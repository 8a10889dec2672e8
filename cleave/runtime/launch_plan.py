"""What to do on the host to run a compiled function: allocate, view, launch, return. Plain data, kept as JSON.

Sizes stay texts of size expressions over symbols, which the shapes of the arguments bind at call time.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, TypeVar

from cleave.dialects.library_product import MAX_ALGORITHM, product_problem
from cleave.errors import CleaveError

VERSION = 1
_T = TypeVar("_T")


@dataclass(frozen=True)
class TensorSpec:
    """A tensor: ``dims`` as in ``("m", "t=ceildiv(n, s)")``, ``extents`` with those that are static (None: dynamic)."""

    name: str
    dtype: str
    dims: tuple[str, ...]
    extents: tuple[int | None, ...]

    def __post_init__(self) -> None:
        if len(self.dims) != len(self.extents):
            raise CleaveError(f"tensor {self.name} has {len(self.dims)} dims and {len(self.extents)} extents")

    def __str__(self) -> str:
        dims = (d if n is None else f"{d}:{n}" for d, n in zip(self.dims, self.extents, strict=True))
        return f"{self.name}: {self.dtype}[{', '.join(dims)}]"


@dataclass(frozen=True)
class Alloc:
    """New memory, row-major, uninitialised; ``zeroed``: zeros, which the launches that use it leave there."""

    tensor: TensorSpec
    zeroed: bool = False
    kind: Literal["alloc"] = "alloc"


@dataclass(frozen=True)
class View:
    """The memory of ``source`` under other dims: the dims ``names`` of the source become the dims ``into``.

    One to one is a rename, or from index ``offset`` (a size expression) of the dim a slice; one to two is a split, two
    or more to one a merge.
    """

    source: str
    names: tuple[str, ...]
    into: tuple[str, ...]
    tensor: TensorSpec
    offset: str = "0"
    kind: Literal["view"] = "view"


@dataclass(frozen=True)
class Launch:
    """Run ``kernel`` on a grid of one to three sizes; no launch where one of them is 0.

    ``operands`` are the tensors, of which it writes ``outputs``. ``arguments`` are the kernel's, in its order:
    ``in:<i>`` the first element of operand i, ``size:<size expression>`` its value, ``stride:<i>:<axis>`` a stride of
    operand i in elements, ``desc:<i>:<axes>:<extents>`` a tensor descriptor of it (see ``DescriptorSpec``).

    ``overlaps``: it may start before the launch in front of it is complete (programmatic dependent launch).
    ``cooperative``: all its blocks must run at once. ``unless``: the kernel of a cooperative launch; this one is made
    only where there is no room for all blocks of that. ``persistent``: its blocks go through the tiles of the grid by
    themselves, so that no more are launched than run at once.

    ``product``: it computes its output as the plain product of its two other operands, summed over the dims that the
    output has not, and a library makes it where there is one: by the first of its algorithms, the second and so on.
    """

    kernel: str
    grid: tuple[str, ...]
    operands: tuple[str, ...]
    outputs: tuple[str, ...]
    arguments: tuple[str, ...]
    num_warps: int = 4
    num_stages: int = 2
    overlaps: bool = False
    cooperative: bool = False
    unless: str = ""
    persistent: bool = False
    product: int = 0
    kind: Literal["launch"] = "launch"


_TEXTS = {"dims", "names", "into", "grid", "operands", "outputs", "results", "facts", "choices"}
"""Fields that hold a list of texts."""
Step = Alloc | View | Launch
_STEPS: Mapping[str, type[Any]] = {"alloc": Alloc, "view": View, "launch": Launch}


@dataclass(frozen=True)
class LaunchPlan:
    """One function: ``results`` name the tensors that it returns; ``extents`` has the symbols with static sizes.

    ``facts`` are required of the sizes (``"1 <= n"``); ``choices`` (``"s = 8"``) give symbols that no argument binds
    their values, unless the caller does. ``location`` is where the source says the function.

    ``aligned``: a plan for the same arguments and results that is the better one wherever its facts hold, such as that
    8 divides a size.
    """

    function: str
    arguments: tuple[TensorSpec, ...]
    steps: tuple[Step, ...]
    results: tuple[str, ...]
    facts: tuple[str, ...] = ()
    extents: Mapping[str, int] = field(default_factory=dict[str, int])
    location: str | None = None
    choices: tuple[str, ...] = ()
    aligned: LaunchPlan | None = None

    @property
    def launches(self) -> tuple[Launch, ...]:
        return tuple(step for step in self.steps if isinstance(step, Launch))

    @property
    def possible_launches(self) -> tuple[Launch, ...]:
        """Those of the aligned form too."""
        return (*self.launches, *(self.aligned.possible_launches if self.aligned else ()))

    @property
    def tensors(self) -> Mapping[str, TensorSpec]:
        """All tensors by name."""
        made = (step.tensor for step in self.steps if not isinstance(step, Launch))
        return {tensor.name: tensor for tensor in (*self.arguments, *made)}

    def with_argument_names(self, names: Sequence[str]) -> LaunchPlan:
        """The same plan, its arguments called ``names``: what messages say of them."""
        new = dict(zip((argument.name for argument in self.arguments), names, strict=True))
        if len({*new.values(), *(self.tensors.keys() - new.keys())}) != len(self.tensors):
            raise CleaveError(f"arguments of {self.function} cannot be called {', '.join(names)}: names must differ")
        arguments = tuple(replace(argument, name=new[argument.name]) for argument in self.arguments)
        results = tuple(new.get(name, name) for name in self.results)
        steps = tuple(_renamed(step, new) for step in self.steps)
        aligned = self.aligned.with_argument_names(names) if self.aligned else None
        return replace(self, arguments=arguments, steps=steps, results=results, aligned=aligned)

    def without_choices(self, symbols: Collection[str]) -> LaunchPlan:
        """The same plan, which chooses no values for these symbols: calls must give them."""
        choices = tuple(choice for choice in self.choices if choice.partition("=")[0].strip() not in symbols)
        aligned = self.aligned.without_choices(symbols) if self.aligned else None
        return replace(self, choices=choices, aligned=aligned)

    def to_json(self) -> str:
        """The plan as JSON text; ``from_json`` reads it back."""
        return json.dumps({"version": VERSION, **asdict(self)}, indent=1)

    @staticmethod
    def from_json(text: str) -> LaunchPlan:
        """A plan from its JSON text; CleaveError where the text is none, or of another version."""
        try:
            data = json.loads(text)
        except ValueError as error:
            raise CleaveError(f"the launch plan is no JSON: {error}") from None
        if not isinstance(data, dict) or data.pop("version", None) != VERSION:
            raise CleaveError(f"this is no launch plan of version {VERSION}")
        plan = _plan(data)
        _check_names(plan)
        return plan


def _renamed(step: Step, new: Mapping[str, str]) -> Step:
    if isinstance(step, Launch):
        operands, outputs = (tuple(new.get(n, n) for n in names) for names in (step.operands, step.outputs))
        return replace(step, operands=operands, outputs=outputs)
    return replace(step, source=new.get(step.source, step.source)) if isinstance(step, View) else step


def _plan(data: dict[str, Any]) -> LaunchPlan:
    try:
        data["arguments"] = tuple(_tensor(entry) for entry in data["arguments"])
        data["steps"] = tuple(_step(entry) for entry in data["steps"])
        data["aligned"] = _plan(data["aligned"]) if data.get("aligned") else None
        return _make(LaunchPlan, data)
    except (KeyError, TypeError, AttributeError) as error:
        raise CleaveError(f"the launch plan is malformed: {error!r}") from None


def _tensor(data: dict[str, Any]) -> TensorSpec:
    return _make(TensorSpec, data)


def _step(data: dict[str, Any]) -> Step:
    if "tensor" in data:
        data["tensor"] = _tensor(data["tensor"])
    return _make(_STEPS[data["kind"]], data)


def _make(cls: type[_T], data: dict[str, Any]) -> _T:
    """An instance with JSON's lists as tuples; KeyError and TypeError for missing, unknown and mistyped fields."""
    unknown = data.keys() - {entry.name for entry in fields(cls)}  # type: ignore[arg-type]
    if unknown:
        raise KeyError(min(unknown))
    for key in _TEXTS & data.keys():
        if not all(isinstance(each, str) for each in data[key]):
            raise TypeError(f"{key} are texts")
    return cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in data.items()})


def _check_names(plan: LaunchPlan) -> None:
    """CleaveError where a step or the return uses a tensor that is not there yet."""
    known, tensors = {tensor.name for tensor in plan.arguments}, plan.tensors
    for step in plan.steps:
        for name in _used(step):
            if name not in known:
                raise CleaveError(f"the launch plan uses tensor '{name}' before it is made")
        if isinstance(step, Launch):
            _check_positions(step)
            _check_product(step, tensors)
        else:
            known.add(step.tensor.name)
    for name in plan.results:
        if name not in known:
            raise CleaveError(f"the launch plan returns tensor '{name}', which no step makes")
    if plan.aligned:
        _check_names(plan.aligned)


def _check_product(launch: Launch, tensors: Mapping[str, TensorSpec]) -> None:
    """CleaveError where a product is none of two tensors that a library multiplies, or its algorithm is no number."""
    if not isinstance(launch.product, int) or launch.product < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise CleaveError(
            f"the launch plan has {launch.kernel} made by algorithm {launch.product!r}, which is no number"
        )
    if launch.product > MAX_ALGORITHM:
        text = f"the launch plan has {launch.kernel} made by algorithm {launch.product}; there are {MAX_ALGORITHM}"
        raise CleaveError(text)
    if launch.product:
        outputs = [number for number, name in enumerate(launch.operands) if name in launch.outputs]
        problem = product_problem([tensors[name].dtype for name in launch.operands], outputs)
        if problem:
            raise CleaveError(f"the launch plan says that {launch.kernel} is a product, which {problem}")


def _check_positions(launch: Launch) -> None:
    """CleaveError where an argument is an operand that the launch has not."""
    for text in launch.arguments:
        kind, _, number = text.partition(":")
        if kind == "in" and not (number.isdecimal() and int(number) < len(launch.operands)):
            raise CleaveError(f"the launch plan passes '{text}' to {launch.kernel}, which is no operand")


def _used(step: Step) -> Iterator[str]:
    if isinstance(step, Launch):
        yield from step.operands
        yield from step.outputs
    elif isinstance(step, View):
        yield step.source
