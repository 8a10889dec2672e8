"""Scheduled modules with one kernel that computes one expression on tiles, for tests of single ops."""

from __future__ import annotations

from collections.abc import Sequence

M, N = 5, 19  # what is in memory: less than a tile
ROWS, COLUMNS = 8, 32


def tensor(names: Sequence[str], dtype: str) -> str:
    dims = ", ".join(f'"{name}"' for name in names)
    return f"tensor<{'?x' * len(names)}{dtype}, #cleave.dims<[{dims}]>>"


EXTENTS = {"m": ROWS, "n": COLUMNS, "p": 64, "q": 32, "k": 32, "l": 2, "g": 4, "b": 2, "s": 16}


def tile(names: Sequence[str], dtype: str) -> str:
    dims = ", ".join(f'"{name}={EXTENTS[name]}"' for name in names)
    return f"tensor<{''.join(f'{EXTENTS[name]}x' for name in names)}{dtype}, #cleave.dims<[{dims}]>>"


def load(result: str, source: str, names: Sequence[str], dtype: str) -> str:
    fill = "true" if dtype == "i1" else "1.0" if dtype[0] in "bf" else "1"
    number = fill if dtype == "i1" else f"{fill} : {dtype}"
    zeros = ", ".join("%c0" for _ in names)
    bounds = ", ".join(f"%{name}" for name in names)
    indices = ", ".join("index" for _ in range(2 * len(names)))
    segments = f"array<i32: 1, {len(names)}, {len(names)}>"
    return (
        f'    %{result} = "cleave.load"(%{source}, {zeros}, {bounds}) '
        f"{{fill = {number}, operandSegmentSizes = {segments}}} : "
        f"({tensor(names, dtype)}, {indices}) -> {tile(names, dtype)}\n"
    )


def store(value: str, destination: str, names: Sequence[str], dtype: str, order: Sequence[str] | None = None) -> str:
    places = "".join(f", {value}" for value in ["%c0"] * len(names) + [f"%{name}" for name in names])
    indices = ", index" * (2 * len(names))
    segments = f"array<i32: 1, 1, {len(names)}, {len(names)}>"
    return (
        f'    "cleave.store"(%{value}, %{destination}{places}) {{operandSegmentSizes = {segments}}} : '
        f"({tile(order or names, dtype)}, {tensor(names, dtype)}{indices}) -> ()\n"
    )


def module(inputs: Sequence[tuple[Sequence[str], str]], outputs: Sequence[tuple[Sequence[str], str]], body: str) -> str:
    """A module whose kernel loads the inputs as %t0, %t1, …, runs ``body`` and stores %o0, %o1, …"""
    ins = [tensor(*entry) for entry in inputs]
    outs = [tensor(*entry) for entry in outputs]
    arguments = ", ".join(f"%a{i}: {type_}" for i, type_ in enumerate(ins))
    destinations = ", ".join(f"%r{i}: {type_} {{cleave.out}}" for i, type_ in enumerate(outs))
    allocs = "\n".join(f'    %r{i} = "cleave.alloc"() : () -> {type_}' for i, type_ in enumerate(outs))
    values = ", ".join([f"%a{i}" for i in range(len(ins))] + [f"%r{i}" for i in range(len(outs))])
    loads = "".join(load(f"t{i}", f"a{i}", *entry) for i, entry in enumerate(inputs))
    stores = "".join(store(f"o{i}", f"r{i}", *entry) for i, entry in enumerate(outputs))
    names = dict.fromkeys(name for dims, _ in [*inputs, *outputs] for name in dims)
    extents = "".join(f'    %{name} = "cleave.extent"() {{size = "{name}"}} : () -> index\n' for name in names)
    return f"""
func.func @f({arguments}) -> ({", ".join(outs)}) {{
{allocs}
    func.call @k({values}) {{cleave.grid = ["1"]}} : ({", ".join(ins + outs)}) -> ()
    return {", ".join(f"%r{i}" for i in range(len(outs)))} : {", ".join(outs)}
}}
func.func private @k({arguments}, {destinations}) attributes {{cleave.kernel, cleave.num_warps = 4 : i64}} {{
    %c0 = arith.constant 0 : index
{extents}{loads}{body}{stores}    return
}}
"""


def op(
    result: str,
    name: str,
    operands: Sequence[tuple[str, Sequence[str], str]],
    names: Sequence[str],
    dtype: str,
    attrs: str = "",
) -> str:
    """One op on tiles: ``operands`` are (value, dims, dtype)."""
    types = ", ".join(tile(dims, element) for _, dims, element in operands)
    values = ", ".join(f"%{value}" for value, _, _ in operands)
    return f'    %{result} = "cleave.{name}"({values}) {{{attrs}}} : ({types}) -> {tile(names, dtype)}\n'
