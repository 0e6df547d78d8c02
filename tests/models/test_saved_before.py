"""What a version of 2026-11-23 has written is opened: models, and checkpoints of fits that were stopped.

One archive, kept as it is: rows, models, checkpoints, and what that version said of them.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.events import Notice

ARCHIVE = Path(__file__).parent / "saved" / "2026-11-23.zip"
DEFAULTS = {"minibatch": {"reassignment_ratio": 0.01}, "mixture": {"init": "afk-mc2"}}
"""Parameters whose defaults were others then."""
EXPECTED = json.loads(zipfile.ZipFile(ARCHIVE).read("told.json"))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", EXPECTED["models"])
def test_a_saved_model_predicts_the_same_labels(name: str, written: Path) -> None:
    model = dc.load_model(str(written / "models" / name))
    rows = np.load(written / "rows.npy")
    assert np.asarray(model.predict(rows)).tolist() == EXPECTED["models"][name]
    model.save(str(written / "again"))
    again = dc.load_model(str(written / "again"))
    assert again.get_params() == model.get_params()


def digest(model: Any, rows: np.ndarray) -> str:
    return hashlib.sha256(np.asarray(model.predict(rows)).tobytes()).hexdigest()[:16]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", EXPECTED["checkpoints"])
def test_a_fit_that_was_stopped_continues_to_the_same_end(name: str, written: Path) -> None:
    parameters = {**EXPECTED["parameters"][name], **DEFAULTS.get(name, {})}
    kind = getattr(dc, parameters.pop("cls"))
    rows, message = np.load(written / "noise.npy"), []
    model = kind(
        **parameters,
        checkpoint=str(written / "checkpoints" / name),
        checkpoint_every=1,
        callbacks=[message.append],
    )
    model.fit(rows, resume=True)
    notices = [each.text for each in message if isinstance(each, Notice)]
    assert any("resumes" in text for text in notices), notices
    assert digest(model, rows) == EXPECTED["checkpoints"][name]
