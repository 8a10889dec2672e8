"""Calling a function on whatever holds tensors: PyTorch's, NumPy's, or anything with DLPack.

On a GPU the kernels are launched on the caller's stream; arrays in the host's memory go through the interpreter of
Triton's IR, which is exact and slow.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cleave.errors import CleaveError
from cleave.runtime.cuda_tensors import TORCH_DTYPES, check_count
from cleave.runtime.dlpack import DlpackTensor, is_on_host
from cleave.runtime.launch_plan import LaunchPlan

if TYPE_CHECKING:
    from cleave.runtime.package import Variant

ProgramOf = Callable[[Any], Any]


@dataclass(frozen=True)
class Operands:
    """The tensors of a call: ``values`` as given or, behind DLPack, as memory; ``kind`` says how to run."""

    kind: str  # "torch", "host" or "gpu"
    values: tuple[Any, ...]

    @staticmethod
    def of(tensors: Sequence[Any]) -> Operands:
        """CleaveError for what is no tensor, and for tensors of which some are on a GPU and some are not."""
        if tensors and all(_is_torch(tensor) for tensor in tensors):
            places = {bool(tensor.is_cuda) for tensor in tensors}
            if len(places) == 2:
                where = ", ".join(f"argument {n} on {tensor.device}" for n, tensor in enumerate(tensors))
                raise CleaveError(f"the tensors of a call are in different places: {where}")
            return Operands("torch" if places == {True} else "host", tuple(tensors))
        host = [is_on_host(tensor) for tensor in tensors]
        if all(host):
            return Operands("host", tuple(tensors))
        if any(host):
            raise CleaveError(f"argument {host.index(True)} is in the host's memory, others are on a GPU")
        return Operands("gpu", tuple(DlpackTensor.of(number, tensor) for number, tensor in enumerate(tensors)))

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(map(int, value.shape)) for value in self.values)


def check_ranks(plan: LaunchPlan, operands: Operands) -> None:
    """CleaveError for a wrong number of tensors, and for one of a wrong rank."""
    check_count(plan, operands.values)
    for spec, shape in zip(plan.arguments, operands.shapes, strict=True):
        if len(shape) != len(spec.dims):
            dims = ", ".join(spec.dims)
            raise CleaveError(f"{spec.name} has rank {len(shape)}; the function takes rank {len(spec.dims)}: [{dims}]")


def run(
    variant: Variant, program_of: ProgramOf, operands: Operands, sizes: Mapping[str, int], stream: int | None
) -> list[Any]:
    """The results of one call, of the same kind as the operands. ``program_of`` gives a variant's ``cuda.Program``."""
    if operands.kind == "host":
        return _on_host(variant, operands.values, sizes)
    program = program_of(variant)
    if operands.kind == "torch":
        torch, first = sys.modules["torch"], operands.values[0]

        def allocate(shape: tuple[int, ...], dtype: str) -> Any:
            return torch.empty(shape, dtype=getattr(torch, TORCH_DTYPES[dtype]), device=first.device)

        with torch.cuda.device(first.device):
            where = torch.cuda.current_stream().cuda_stream if stream is None else stream
            return program(operands.values, allocate, where, sizes)
    return program(operands.values, program.driver.array, stream or 0, sizes)


def _on_host(variant: Variant, values: Sequence[Any], sizes: Mapping[str, int]) -> list[Any]:
    from cleave.runtime.execute import execute

    arrays = [_array(value) for value in values]
    results = execute(variant.plan, variant.ttir, arrays, sizes)
    if values and _is_torch(values[0]):
        return [_to_torch(result) for result in results]
    return list(results)


def _array(value: Any) -> Any:
    import numpy as np

    if not _is_torch(value):
        return np.asarray(value) if hasattr(value, "__array__") else np.from_dlpack(value)
    tensor = value.detach().contiguous()
    if str(tensor.dtype) == "torch.bfloat16":  # which NumPy has not
        import ml_dtypes

        return tensor.view(sys.modules["torch"].int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def _to_torch(array: Any) -> Any:
    import numpy as np

    torch = sys.modules["torch"]
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _is_torch(value: Any) -> bool:
    return "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor)
