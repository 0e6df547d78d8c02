"""Models and checkpoints of any content come back as they were, to the bit."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from daskcluster.methods.mixture.model import MixtureModel
from daskcluster.models.fitted import KMeansModel, load_document, save_model
from daskcluster.storage.checkpoint import CheckpointFolder
from daskcluster.storage.document import Document

NUMBERS = itertools.count()
QUICK = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])

printable = st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=12)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
)
records = st.dictionaries(st.text(max_size=8), scalars, max_size=4)
nested = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
sizes = st.integers(1, 9)


def finite(dtype: Any, shape: Any, least: float | None = None) -> Any:
    width = 8 * np.dtype(dtype).itemsize
    bounds: dict[str, Any] = {"allow_nan": False, "allow_infinity": False, "width": width}
    if least is not None:
        bounds["min_value"] = least
    return arrays(dtype, shape, elements=st.floats(**bounds))


@st.composite
def provenances(draw: st.DrawFn, d: int) -> dict[str, Any]:
    names = st.none() | st.lists(st.text(max_size=8), min_size=d, max_size=d)
    return {
        "n_iter": draw(st.integers(0, 2**62)),
        "stop_reason": draw(printable),
        "seeding": draw(printable),
        "passes": draw(st.integers(0, 10**6)),
        "bytes_read": draw(st.integers(0, 2**62)),
        "history": draw(st.lists(records, max_size=3)),
        "parameters": draw(records),
        "feature_names": draw(names),
        "n_rows": draw(st.integers(0, 2**62)),
        "created_with": draw(st.dictionaries(printable, printable, max_size=2)),
    }


@st.composite
def kmeans_models(draw: st.DrawFn) -> KMeansModel:
    k, d, dtype = draw(sizes), draw(sizes), draw(st.sampled_from([np.float32, np.float64]))
    return KMeansModel(
        draw(finite(dtype, (k, d))),
        draw(finite(np.float64, k, 0.0)),
        sizes=draw(arrays(np.int64, k, elements=st.integers(0, 2**62))),
        costs=draw(finite(np.float64, k, 0.0)),
        metric=draw(st.sampled_from(["euclidean", "cosine"])),
        inertia=draw(st.floats(0.0, allow_nan=False, allow_infinity=False)),
        **draw(provenances(d)),
    )


@st.composite
def mixture_models(draw: st.DrawFn) -> MixtureModel:
    k, d, dtype = draw(sizes), draw(sizes), draw(st.sampled_from([np.float32, np.float64]))
    kind = draw(st.sampled_from(["isotropic", "spherical", "diag", "tied", "full"]))
    shape: Any = {"isotropic": 1, "spherical": k, "diag": (k, d), "tied": (1, d)}.get(kind, (k, d))
    variances = draw(finite(np.float64, shape, 1e-300))
    if kind in ("tied", "full"):
        variances = variances[:, :, None] * np.eye(d)
    return MixtureModel(
        draw(finite(dtype, (k, d))),
        variances,
        draw(finite(np.float64, k, 0.0)),
        draw(finite(np.float64, k, 0.0)),
        covariance_type=kind,
        lower_bound=draw(st.none() | st.floats(allow_nan=False, allow_infinity=False)),
        truncation=draw(st.integers(1, k)),
        **draw(provenances(d)),
    )


@QUICK
@given(kmeans_models() | mixture_models())
def test_a_model_comes_back(model: KMeansModel | MixtureModel) -> None:
    url = f"memory://round-trips/{next(NUMBERS)}"
    save_model(model, url)
    found = load_document(url)
    assert type(found) is type(model)
    assert found.body() == model.body()
    for name, values in model.arrays().items():
        back = found.arrays()[name]
        assert (back.dtype, back.shape, back.tobytes()) == (
            values.dtype,
            values.shape,
            values.tobytes(),
        )


array_values = st.one_of(
    finite(np.float64, st.tuples(sizes, sizes)),
    finite(np.float32, sizes),
    arrays(np.int64, sizes),
    arrays(np.float64, sizes),  # a state may hold NaN and infinity
)
names = st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True).filter(lambda name: name != "c")


@QUICK
@given(
    st.dictionaries(st.text(max_size=8), nested, max_size=4),
    st.dictionaries(names, array_values, min_size=1, max_size=3),
    st.dictionaries(st.text(max_size=8), scalars, max_size=3),
)
def test_a_checkpoint_comes_back(
    body: dict[str, Any], held: dict[str, np.ndarray], facts: dict[str, Any]
) -> None:
    url = f"memory://round-trips/{next(NUMBERS)}"
    CheckpointFolder(url, facts).commit(Document("test", body, held))
    found = CheckpointFolder(url, facts).latest()
    assert found is not None
    assert (found.kind, found.body, set(found.arrays)) == ("test", body, set(held))
    for name, values in held.items():
        assert found.arrays[name].dtype == values.dtype
        assert found.arrays[name].tobytes() == values.tobytes()
