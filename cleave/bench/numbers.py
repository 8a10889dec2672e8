"""Numbers of a function at one shape: its inputs, what it should give, and how far off results may be."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cleave.bench.baselines import EAGER, reference
from cleave.bench.subgraphs import Sizes, Subgraph

TOLERANCE = 4e-3
"""Of ‖out − ref‖ / ‖ref‖ for f16 results; twice the error of PyTorch's eager program is allowed beyond it."""


@dataclass(frozen=True)
class Numbers:
    """``wanted``: the results in f64, ``eager``: those of PyTorch's eager program."""

    tensors: Sequence[Any]
    wanted: Sequence[Any]
    eager: Sequence[Any]

    @cached_property
    def allowed(self) -> float:
        return max(TOLERANCE, 2 * self.error(self.eager))

    @property
    def traffic(self) -> int:
        """Bytes of inputs and results."""
        return sum(tensor.numel() * tensor.element_size() for tensor in (*self.tensors, *self.eager))

    def error(self, results: Sequence[Any]) -> float:
        """The largest ‖out − ref‖ / ‖ref‖; NaN where one has a NaN."""
        errors = [
            float((out.double() - ref.reshape(out.shape)).norm() / ref.norm())
            for out, ref in zip(results, self.wanted, strict=True)
        ]
        return max(errors) if all(error == error for error in errors) else float("nan")

    def problem(self, error: float) -> str:
        """Empty if it is allowed."""
        return "" if error <= self.allowed else f"error {error:.1e}, {self.allowed:.1e} is allowed"


def numbers(torch: Any, subgraph: Subgraph, package: Any, sizes: Sizes) -> Numbers:
    """For a package of the subgraph, on the GPU."""
    tensors = inputs(torch, package, sizes)
    wanted = reference(subgraph.torch, tensors, dict(subgraph.settings))
    return Numbers(tensors, wanted, listed(EAGER[subgraph.torch](*tensors, **subgraph.settings)))


def inputs(torch: Any, package: Any, sizes: Sizes) -> list[Any]:
    """Normal numbers; weights scaled so that products keep the scale of their rows."""
    from cleave.dialects.dims import Dim

    plan, tensors = package.variants[0].plan, []
    for number, spec in enumerate(plan.arguments):
        shape = [Dim.parse(text).size.evaluate(sizes) for text in spec.dims]
        generator = torch.Generator(device="cuda").manual_seed(zlib.crc32(plan.function.encode()) + number)
        scale = shape[0] ** -0.5 if number and len(shape) == 2 else 1.0
        values = torch.randn(shape, generator=generator, device="cuda") * scale
        tensors.append(values.to({"f16": torch.float16, "f32": torch.float32}[spec.dtype]))
    return tensors


def listed(results: Any) -> list[Any]:
    """One result or a tuple of them as a list."""
    return list(results) if isinstance(results, tuple) else [results]
