"""States become documents and come back as they were, and nothing else comes back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daskcluster.errors import ModelFormatError
from daskcluster.events import StopReason
from daskcluster.storage.checkpoint import CheckpointFolder
from daskcluster.storage.document import Document, document_of, state_of


@dataclass(frozen=True)
class Inner:
    values: np.ndarray
    least: float = math.inf
    _n: int = 0


@dataclass(frozen=True)
class State:
    seed: int
    cost: float
    name: str
    flag: bool
    centres: np.ndarray
    history: Sequence[dict[str, Any]] = ()
    reason: StopReason | None = None
    inner: Inner | None = None
    low: np.ndarray | None = None


SHAPES = {"centres": (2, 3), "inner_values": (4,), "low": (2,)}

state = State(
    2**64 - 1,
    -math.inf,
    "nested",
    True,
    np.arange(6.0).reshape(2, 3),
    [{"inertia": math.inf, "n_empty": 3, "validation": None, "went_back": False, "shift": 0.1}],
    StopReason.MAX_TIME,
    Inner(np.arange(4), 0.1 + 0.2, 7),
)


def through_a_store(given: State) -> State:
    folder = CheckpointFolder("memory://tests/state", {})
    folder.commit(document_of(given))
    found = folder.latest()
    assert found is not None
    folder.clear()
    return state_of(State, found, SHAPES)


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if hasattr(one, "__dataclass_fields__"):
        return all(equal(getattr(one, n), getattr(other, n)) for n in one.__dataclass_fields__)
    if isinstance(one, (list, tuple)):
        return list(one) == list(other)
    return type(one) is type(other) and repr(one) == repr(other)


def test_a_state_comes_back_as_it_was() -> None:
    assert equal(through_a_store(state), state)
    least = replace(state, inner=None, reason=None, history=(), low=np.zeros(2, np.float32))
    assert equal(through_a_store(least), least)


@settings(suppress_health_check=[HealthCheck.too_slow])  # a machine may stand still for a while
@given(
    seed=st.integers(-(2**70), 2**70),
    cost=st.floats(),
    records=st.lists(
        st.dictionaries(st.text(max_size=3), st.floats() | st.none() | st.booleans(), max_size=4),
        max_size=3,
    ),
)
def test_any_numbers_come_back(seed: int, cost: float, records: list[dict[str, Any]]) -> None:
    found = through_a_store(replace(state, seed=seed, cost=cost, history=records))
    assert found.seed == seed
    assert repr((found.cost, list(found.history))) == repr((cost, records))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 1.5}, "'seed' should be of type int"),
        ({"seed": True}, "'seed' should be of type int"),
        ({"seed": "1" * 99}, "'seed' should be of type int"),
        ({"cost": "much"}, "'cost' should be of type float"),
        ({"flag": 1}, "'flag' should be of type bool"),
        ({"name": None}, "'name' should be of type str"),
        ({"reason": "bored"}, "'reason' should be of type StopReason"),
        ({"history": 3}, "'history'"),
        ({"history": [3]}, "'history'"),
        ({"inner": []}, "'inner'"),
        ({"inner": {}}, "it lacks 'inner_values'"),
        ({"low": "array"}, "it lacks the array 'low'"),
    ],
)
def test_invalid_states_are_refused(changes: dict[str, Any], message: str) -> None:
    document = document_of(state)
    other = Document(document.kind, {**document.body, **changes}, document.arrays)
    with pytest.raises(ModelFormatError, match=message):
        state_of(State, other, SHAPES)


def test_other_shapes_kinds_and_arrays_are_refused() -> None:
    document = document_of(state)
    with pytest.raises(ModelFormatError, match=r"'centres' is of shape \(2, 3\), not \(3, 2\)"):
        state_of(State, document, {**SHAPES, "centres": (3, 2)})
    with pytest.raises(ModelFormatError, match="not there"):
        state_of(State, document, {"centres": (2, 3)})
    with pytest.raises(ModelFormatError, match="of kind 'State', not 'Inner'"):
        state_of(Inner, document, SHAPES)
    body = {name: value for name, value in document.body.items() if name != "cost"}
    with pytest.raises(ModelFormatError, match="it lacks 'cost'"):
        state_of(State, Document(document.kind, body, document.arrays), SHAPES)
