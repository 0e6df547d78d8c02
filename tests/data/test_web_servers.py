"""Files on a web server: read in place by ranges of bytes, refused where a server has none."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.errors import DatasetNotFoundError, InvalidDataError

pytest.importorskip("aiohttp", reason="aiohttp is not installed")
ROWS = np.random.default_rng(0).normal(size=(900, 4)).astype(np.float32)


class WholeFiles(SimpleHTTPRequestHandler):
    """Sends whole files, whatever range is asked for."""

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Ranges(WholeFiles):
    """Sends the range of bytes that is asked for."""

    def do_GET(self) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked is None:
            return super().do_GET()
        content = Path(self.translate_path(self.path)).read_bytes()
        part = content[int(asked[1]) : int(asked[2] or len(content)) + 1]
        self.send_response(206)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.copyfile(io.BytesIO(part), self.wfile)  # type: ignore[misc]
        return None


@contextmanager
def served(folder: Path, handler: type[WholeFiles]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    (tmp_path / "many").mkdir()
    for number in range(3):
        np.save(tmp_path / "many" / f"{number}.npy", ROWS[number * 300 : (number + 1) * 300])
    np.save(tmp_path / "one.npy", ROWS)
    np.savez(tmp_path / "one.npz", X=ROWS)
    frame = pd.DataFrame(ROWS, columns=list("abcd"))
    frame.to_parquet(tmp_path / "one.parquet")
    frame.to_csv(tmp_path / "one.csv", index=False)
    frame.to_csv(tmp_path / "one.csv.gz", index=False)
    return tmp_path


def test_files_are_read_in_place(folder: Path) -> None:
    with served(folder, Ranges) as url:
        for name in (
            "one.npy",
            "one.npz",
            "one.parquet",
            "one.csv",
            "one.csv.gz",
            "many",
            "many/*",
        ):
            rows: Any = dc.open_dataset(f"{url}/{name}")
            np.testing.assert_allclose(rows.to_numpy(), ROWS, rtol=1e-6)
            taken = np.array([899, 0, 301])
            np.testing.assert_allclose(rows.take(taken), ROWS[taken], rtol=1e-6)
        model = dc.KMeans(3, init=ROWS[:3]).fit(f"{url}/many/*.npy")
        expected = dc.KMeans(3, init=ROWS[:3]).fit(ROWS)
        assert np.array_equal(np.asarray(model.labels_), expected.labels_)
        with pytest.raises(DatasetNotFoundError, match=r"one\.parq"):
            dc.open_dataset(f"{url}/one.parq.npy")


def test_servers_of_whole_files_are_refused(folder: Path) -> None:
    with served(folder, WholeFiles) as url:
        for name in ("one.npy", "one.npz", "one.parquet", "one.csv", "many", "many/*.npy"):
            with pytest.raises(
                InvalidDataError, match=r"sends whole files only, and rows are read by"
            ):
                dc.open_dataset(f"{url}/{name}")
