"""Building blocks of LLVM vector IR for the intrinsics of this package.

Numba's loops cannot keep a given vector in a register; intrinsics that emit IR can. Rounding is well
defined everywhere: no flag lets LLVM reorder or fuse operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from inspect import signature
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from daskcluster.kernels.jit import GRANTED, TILE_FEATURES

I8 = ir.IntType(8)
I16 = ir.IntType(16)
I32 = ir.IntType(32)
I64 = ir.IntType(64)
F64 = ir.DoubleType()


class _Outlined(ir.Function):
    """A function that is not inlined.

    On x86 it is compiled for the features of the tiles, but for no particular CPU: for some CPUs, LLVM
    would load so many centres in advance that sums no longer fit the registers.
    """

    def descr_prototype(self, buf: list[str]) -> None:
        super().descr_prototype(buf)
        if TILE_FEATURES:
            wanted = f'"target-cpu"="generic" "target-features"="{TILE_FEATURES}"'
            buf[-1] = f"{buf[-1].rstrip()} {wanted}\n"


def vector_intrinsic(
    *, literals: str = "", int32: str = "", returns: Any = types.void, apart: bool = False
) -> Any:
    """Make an intrinsic of a function that emits its code: ``body(builder, ...)`` returns the result.

    The function gets pointers for arrays, alone or in tuples, Python's integers for literals, and values
    for all other numbers: integers have 64 bits. With `apart`, or if `GRANTED` names features, its code is
    a separate function.

    Parameters
    ----------
    literals : str
        Names of parameters that callers give as literal integers; with ``?``, or as values.
    int32 : str
        Names of parameters that have 32 bits.
    returns : numba type
    apart : bool
    """
    wanted, short = literals.split(), int32.split()

    def decorate(body: Callable[..., Any]) -> Any:
        names = list(signature(body).parameters)[1:]

        @wraps(body)
        def typed(context: Any, *asked: Any) -> Any:
            kinds = dict(zip(names, asked, strict=True))
            known = {}
            for name, kind in kinds.items():
                if isinstance(kind, types.IntegerLiteral) and {name, f"{name}?"} & {*wanted}:
                    known[name] = kind.literal_value
                elif name in wanted:
                    return None  # numba asks again with literals
                elif isinstance(kind, types.Integer):
                    kinds[name] = types.int32 if name in short else types.intp
                elif isinstance(kind, types.Float | types.Boolean):
                    kinds[name] = types.float64 if isinstance(kind, types.Float) else types.boolean
            codegen = partial(_emit, body, names, known, apart or bool(GRANTED))
            return returns(*kinds.values()), codegen

        return intrinsic(prefer_literal=True)(typed)

    return decorate


tile_intrinsic = partial(vector_intrinsic, apart=True)
"""Make a vector intrinsic as a separate function; inlined, a tile's sums would be spilled."""


def _emit(
    body: Callable[..., Any],
    names: Sequence[str],
    known: dict[str, int],
    apart: bool,
    context: Any,
    builder: Any,
    sig: Any,
    args: Any,
) -> Any:
    """Emit the code of an intrinsic in place, or as a separate function and a call of it."""
    values = {
        name: _unpacked(context, builder, kind, value)
        for name, kind, value in zip(names, sig.args, args, strict=True)
        if name not in known
    }
    nothing = sig.return_type == types.void
    if not apart:
        found = body(builder, **known, **values)
        return context.get_dummy_value() if nothing else found
    # Tuples are passed part by part.
    parts = {
        name: value if isinstance(value, tuple) else (value,) for name, value in values.items()
    }
    passed = [part for several in parts.values() for part in several]
    result = ir.VoidType() if nothing else context.get_value_type(sig.return_type)
    kind = ir.FunctionType(result, [part.type for part in passed])
    function = _Outlined(builder.module, kind, builder.module.get_unique_name("apart"))
    function.linkage = "internal"
    function.attributes.add("noinline")
    inside, given = ir.IRBuilder(function.append_basic_block()), iter(function.args)
    for name, several in parts.items():
        own = tuple(next(given) for _ in several)
        values[name] = own if isinstance(values[name], tuple) else own[0]
    found = body(inside, **known, **values)
    inside.ret_void() if nothing else inside.ret(found)
    called = builder.call(function, passed)
    return context.get_dummy_value() if nothing else called


def _unpacked(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Return the data pointer of an array, without the rest of its structure, or a tuple of parts."""
    # Passing whole array structures to a function takes longer than a small tile.
    if isinstance(kind, types.Array):
        return context.make_array(kind)(context, builder, value).data
    if isinstance(kind, types.BaseTuple):
        return tuple(
            _unpacked(context, builder, part, builder.extract_value(value, at))
            for at, part in enumerate(kind)
        )
    return value


def bits(kind: Any) -> int:
    """Size of an LLVM element type."""
    if isinstance(kind, ir.IntType):
        return int(kind.width)
    return 64 if isinstance(kind, ir.DoubleType) else 32


def least(kind: Any) -> Any:
    """Return a number of an LLVM element type that no other is below."""
    return -(1 << bits(kind) - 1) if isinstance(kind, ir.IntType) else float("-inf")


def step(builder: Any, pointer: Any, offset: Any) -> Any:
    """Return the address `offset` elements further."""
    offset = ir.Constant(I64, offset) if isinstance(offset, int) else offset
    return builder.gep(pointer, [offset])


def load(builder: Any, pointer: Any, element: Any, lanes: int, align: int) -> Any:
    """Load a vector that is aligned to `align` bytes."""
    vector = ir.VectorType(element, lanes)
    return builder.load(builder.bitcast(pointer, vector.as_pointer()), align=align)


def load_first(builder: Any, pointer: Any, element: Any, lanes: int, count: int) -> Any:
    """Load the first `count` lanes of a vector that is aligned to its elements; the others are zero."""
    kind = ir.VectorType(element, lanes)
    mask = ir.VectorType(ir.IntType(1), lanes)
    there = ir.Constant(mask, [int(lane < count) for lane in range(lanes)])
    place = builder.bitcast(pointer, kind.as_pointer())
    align = ir.Constant(I32, bits(element) // 8)
    name = f"llvm.masked.load.v{lanes}{'i' if isinstance(element, ir.IntType) else 'f'}{bits(element)}.p0"
    return call(builder, name, kind, [place, align, there, zeros(element, lanes)])


def zeros(element: Any, lanes: int) -> Any:
    """Return a vector of zeros."""
    zero = 0 if isinstance(element, ir.IntType) else 0.0
    return ir.Constant(ir.VectorType(element, lanes), [zero] * lanes)


def call(builder: Any, name: str, result: Any, args: Sequence[Any]) -> Any:
    """Call a function of LLVM, which is declared on first use."""
    function = builder.module.globals.get(name)
    if function is None:
        kind = ir.FunctionType(result, [arg.type for arg in args])
        function = ir.Function(builder.module, kind, name)
    return builder.call(function, args)


def first_lane(builder: Any, mask: Any, last: int) -> Any:
    """Return the index of the first set lane before `last` as int32, or `last` if there is none."""
    wide = builder.zext(builder.bitcast(mask, ir.IntType(mask.type.count)), I32)
    marked = builder.or_(wide, ir.Constant(I32, 1 << last))
    return builder.cttz(marked, ir.Constant(ir.IntType(1), 1))


def store(builder: Any, value: Any, pointer: Any, align: int) -> None:
    """Store a vector at an address that is aligned to `align` bytes."""
    builder.store(value, builder.bitcast(pointer, value.type.as_pointer()), align=align)


def shuffle(builder: Any, a: Any, b: Any, picks: Sequence[int]) -> Any:
    """Select lanes of two vectors, numbered consecutively."""
    mask = ir.Constant(ir.VectorType(I32, len(picks)), list(picks))
    return builder.shuffle_vector(a, b, mask)


def splat(builder: Any, scalar: Any, lanes: int) -> Any:
    """Repeat a scalar in every lane."""
    vector = ir.Constant(ir.VectorType(scalar.type, lanes), ir.Undefined)
    vector = builder.insert_element(vector, scalar, ir.Constant(I32, 0))
    return shuffle(builder, vector, vector, [0] * lanes)


def compare(builder: Any, operator: str, a: Any, b: Any) -> Any:
    """Compare vectors of numbers; false for NaN."""
    if isinstance(a.type.element, ir.IntType):
        return builder.icmp_signed(operator, a, b)
    return builder.fcmp_ordered(operator, a, b)


def concatenate(builder: Any, parts: list[Any]) -> Any:
    """Join vectors of one length, a power of two of them, into one."""
    while len(parts) > 1:
        lanes = parts[0].type.count
        parts = [
            shuffle(builder, parts[i], parts[i + 1], range(2 * lanes))
            for i in range(0, len(parts), 2)
        ]
    return parts[0]


def fold_lanes(builder: Any, vector: Any) -> Any:
    """Add the lanes of a vector, first half to second half, until one is left."""
    while vector.type.count > 1:
        half = vector.type.count // 2
        low = shuffle(builder, vector, vector, range(half))
        vector = builder.fadd(low, shuffle(builder, vector, vector, range(half, 2 * half)))
    return vector


def fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c, rounded once, of vectors or scalars."""
    kind = a.type
    vector = isinstance(kind, ir.VectorType)
    size = bits(kind.element if vector else kind)
    name = f"llvm.fma.v{kind.count}f{size}" if vector else f"llvm.fma.f{size}"
    return call(builder, name, kind, [a, b, c])


def prefetch(builder: Any, place: Any, *, level: int = 1) -> None:
    """Prefetch the cache line of an address, which may be beyond the array.

    The target is the first or second cache level; the second allows more outstanding lines.
    """
    read, locality, data = (ir.Constant(I32, value) for value in (0, 4 - level, 1))
    byte = builder.bitcast(place, I8.as_pointer())
    call(builder, "llvm.prefetch.p0", ir.VoidType(), [byte, read, locality, data])


def loop(
    builder: Any,
    stop: Any,
    stride: int,
    carried: list[Any],
    body: Callable[[Any, list[Any]], list[Any]],
) -> list[Any]:
    """Emit ``for i in range(0, stop, stride)`` and return the carried values at its end.

    `body` gets the counter and the carried values, and returns the new ones.
    """
    before = builder.block
    head = builder.append_basic_block("head")
    inside = builder.append_basic_block("inside")
    after = builder.append_basic_block("after")
    builder.branch(head)
    builder.position_at_end(head)
    counter = builder.phi(I64)
    counter.add_incoming(ir.Constant(I64, 0), before)
    values = [builder.phi(value.type) for value in carried]
    for phi, value in zip(values, carried, strict=True):
        phi.add_incoming(value, before)
    builder.cbranch(builder.icmp_signed("<", counter, stop), inside, after)
    builder.position_at_end(inside)
    grown = body(counter, values)
    counter.add_incoming(builder.add(counter, ir.Constant(I64, stride)), builder.block)
    for phi, value in zip(values, grown, strict=True):
        phi.add_incoming(value, builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return values
