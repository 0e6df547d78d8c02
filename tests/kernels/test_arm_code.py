"""What LLVM makes of the tile for 64-bit ARM: compiled here, on any machine, and read."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest
from llvmlite import binding, ir

from daskcluster.kernels import dot_product, emit
from daskcluster.kernels.register_tile import TileShape, run_along, store_sums

TRIPLE, CPU = "aarch64-linux-gnu", "neoverse-n1"
ELEMENTS = {"f4": (ir.FloatType(), 4), "f8": (ir.DoubleType(), 2)}


def tile_module(tile: TileShape, kind: ir.Type, term: Any = emit.fma) -> str:
    """Return the IR of a function that stores the products of `tile`."""
    module = ir.Module()
    module.triple = TRIPLE
    numbers = kind.as_pointer()
    signature = ir.FunctionType(ir.VoidType(), [numbers, numbers, emit.I64, numbers])
    function = ir.Function(module, signature, "tile")
    builder = ir.IRBuilder(function.append_basic_block())
    block, panel, features, out = function.args
    first = [emit.zeros(kind, tile.width)] * tile.height
    sums = run_along(builder, panel, block, features, tile, first, partial(term, builder))
    store_sums(builder, sums, out, tile)
    builder.ret_void()
    return str(module)


def compiled(text: str) -> list[list[str]]:
    """Return the instructions of each basic block, compiled for ARM."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    try:
        machine = binding.Target.from_triple(TRIPLE).create_target_machine(cpu=CPU, opt=3)
    except RuntimeError as error:
        pytest.skip(f"this llvmlite compiles for no ARM: {error}")
    module = binding.parse_assembly(text)
    options = binding.create_pipeline_tuning_options(speed_level=3)
    passes = binding.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    blocks: list[list[str]] = [[]]
    for line in machine.emit_assembly(module).splitlines():
        if re.match(r"\s+[a-z]", line):
            blocks[-1].append(line.strip())
        if re.match(r"\S+:|\s+b[.\s]", line):
            blocks.append([])
    return blocks


@pytest.mark.parametrize("height", [13, 12, 8])
@pytest.mark.parametrize("dtype", list(ELEMENTS))
def test_centres_are_loaded_as_vectors_and_picked_by_lane(dtype: str, height: int) -> None:
    kind, width = ELEMENTS[dtype]
    blocks = compiled(tile_module(TileShape(height, 2, width), kind))
    loop = max(blocks, key=lambda block: sum(line.startswith("fmla") for line in block))
    lanes = re.findall(r"fmla.*\[(\d)\]", "\n".join(loop))
    assert len(lanes) == 2 * height
    assert {int(lane) for lane in lanes} == set(range(width))
    # Nothing is repeated by an instruction of its own, or waits in memory for a register.
    assert not [line for line in loop if re.match(r"dup|ld1r|st", line) or "sp" in line]
    registers = sum(len(re.findall(r"\b[qds]\d+", line)) for line in loop if line.startswith("ld"))
    assert registers == 2 + height // width + height % width


@pytest.mark.parametrize("height", [13, 8])
def test_products_of_8_bits_are_one_instruction(height: int) -> None:
    term = partial(dot_product.add_products, instruction=dot_product.SDOT)
    blocks = compiled(tile_module(TileShape(height, 2, 4), emit.I32, term))
    loop = max(blocks, key=lambda block: sum(line.startswith("sdot") for line in block))
    assert sum(line.startswith("sdot") for line in loop) == 2 * height
    assert not [line for line in loop if re.match(r"st|mul|add\s+v", line)]
