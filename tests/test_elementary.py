"""Logarithms and exponentials: near the truth, exact where they can be, and the same bits everywhere."""

from __future__ import annotations

import hashlib
import warnings

import numpy as np
import pytest

from daskcluster.elementary import exp, exp2, log, log1p, log2
from daskcluster.randomness import Key

UNIFORMS = Key(0, "elementary").uniforms(0, 20_000)
AROUND_ONE = 1.0 + np.ldexp(UNIFORMS - 0.5, -(np.arange(20_000) % 50))
POSITIVE = np.concatenate([
    UNIFORMS, AROUND_ONE, np.ldexp(0.5 + UNIFORMS, np.arange(20_000) % 2000 - 1000), [5e-324, 1e308]
])  # fmt: skip
SIGNED = np.concatenate([(UNIFORMS - 0.5) * 1400.0, (UNIFORMS - 0.5) * 1e-3, [-708.0, 709.7]])
CASES = {
    "log": (log, np.log, POSITIVE, 1.0),
    "log1p": (log1p, np.log1p, np.concatenate([-UNIFORMS, POSITIVE, UNIFORMS * 1e-9]), 1.0),
    "log2": (log2, np.log2, POSITIVE, 2.0),
    "exp": (exp, np.exp, SIGNED, 1.0),
    "exp2": (exp2, np.exp2, SIGNED, 2.0),
}
wide = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant <= 52, reason="no floating-point type here is longer than float64"
)


@wide
@pytest.mark.parametrize("name", CASES)
def test_errors_are_below_the_promised_units(name: str) -> None:
    ours, true, values, units = CASES[name]
    expected = true(values.astype(np.longdouble))
    found = ours(values)
    unit = np.spacing(np.maximum(np.abs(expected.astype(np.float64)), np.finfo(float).tiny))
    errors = np.abs(found.astype(np.longdouble) - expected) / unit
    assert float(errors.max()) < units


# Digests of float64 in little-endian order. They hold for any machine: a new value is a change of results.
BITS = {
    "log": "97bcfa4f2d6272a0", "log1p": "341113a47d53b3d6", "log2": "eefa08ec9a9d1d7e",
    "exp": "2261cc8232e23540", "exp2": "ddbc0ad2ca2eeaac",
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_bits_are_those_of_every_machine(name: str) -> None:
    ours, _, values, _ = CASES[name]
    found = ours(values).astype("<f8")
    assert hashlib.sha256(found.tobytes()).hexdigest()[:16] == BITS[name]


def test_ends_are_those_of_ieee() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for function in (log, log2):
            np.testing.assert_equal(
                function([0.0, -0.0, -1.0, np.inf, np.nan, 1.0]),
                [-np.inf, -np.inf, np.nan, np.inf, np.nan, 0.0],
            )
        np.testing.assert_equal(
            log1p([-1.0, -2.0, np.inf, np.nan, 0.0]), [-np.inf, np.nan, np.inf, np.nan, 0.0]
        )
        for function in (exp, exp2):
            np.testing.assert_equal(
                function([-np.inf, -1e5, np.inf, 1e5, np.nan, 0.0, -1100.0]),
                [0.0, 0.0, np.inf, np.inf, np.nan, 1.0, 0.0],
            )


def test_powers_of_two_are_exact() -> None:
    exponents = np.arange(-1074.0, 1024.0)
    powers = np.ldexp(1.0, exponents.astype(int))
    np.testing.assert_array_equal(log2(powers), exponents)
    np.testing.assert_array_equal(exp2(exponents), powers)


def test_shapes_stay_and_a_value_does_not_depend_on_its_neighbours() -> None:
    table = POSITIVE[:12_000].reshape(3, 4000)
    assert log(2.0).shape == ()
    assert exp(np.empty((0, 3))).shape == (0, 3)
    np.testing.assert_array_equal(log(table.T), log(table).T)
    assert [float(log(x)) for x in table[0, :50]] == log(table)[0, :50].tolist()
