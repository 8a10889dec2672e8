"""Tensors of other libraries: what gives out its memory by a protocol alone, and what does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cleave
from cleave import CleaveError
from cleave.runtime.call import Operands
from cleave.runtime.dlpack import CUDA, DlpackTensor

SOURCE = """
func.func @f(%x: tensor<?x?xf32, #cleave.dims<["m", "k"]>>) -> tensor<?x?xf32, #cleave.dims<["m", "k"]>> {
  %y = "cleave.neg"(%x) : (tensor<?x?xf32, #cleave.dims<["m", "k"]>>) -> tensor<?x?xf32, #cleave.dims<["m", "k"]>>
  return %y : tensor<?x?xf32, #cleave.dims<["m", "k"]>>
}
"""
X = np.arange(20, dtype=np.float32).reshape(4, 5)


class Dlpack:
    """Nothing but the protocol."""

    def __init__(self, array: Any, device: int = 1) -> None:
        self._array, self._device = array, device

    def __dlpack__(self, **options: Any) -> Any:
        if self._array is None:
            raise BufferError("it is read-only")
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device, 0


class Interface:
    __array_interface__ = X.__array_interface__


class OnGpu:
    __cuda_array_interface__ = {"shape": (4, 5), "typestr": "<f4", "data": (256, False), "version": 3}  # noqa: RUF012


@pytest.mark.parametrize("given", [Dlpack(X), Dlpack(X[:, ::2]), Interface()])
def test_the_protocol_is_enough(given: Any) -> None:
    function = cleave.compile(SOURCE)
    expected = -(X if isinstance(given, Interface) else given._array)
    for call in (function, function.package("sm_90")):
        np.testing.assert_array_equal(call(given), expected)
        np.testing.assert_array_equal(call(in0=given), expected)


def test_memory_that_is_not_given_out_is_an_error() -> None:
    message = "argument 0, a Dlpack, does not give out its memory: it is read-only\nnote: arrays, or objects with"
    for call in (lambda: cleave.compile(SOURCE)(Dlpack(None)), lambda: DlpackTensor.of(0, Dlpack(None, CUDA))):
        with pytest.raises(CleaveError) as caught:
            call()
        assert message in str(caught.value)


def test_the_interface_of_cuda_has_the_shape() -> None:
    assert Operands.of([OnGpu()]).shapes == ((4, 5),)
