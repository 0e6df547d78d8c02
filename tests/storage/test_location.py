"""URLs, reach, and what never travels."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.errors import DatasetNotFoundError, InvalidParameterError, MissingExtraError
from daskcluster.extras import install_command
from daskcluster.storage.location import explain, locate, looks_secret, split_options
from daskcluster.typing import Visibility

PLANTED = "planted-secret"


@pytest.mark.parametrize(
    ("url", "normalised", "visibility"),
    [
        ("rows.zarr", os.path.abspath("rows.zarr"), Visibility.HOST),
        ("/a/../b/x.zarr/", "/b/x.zarr", Visibility.HOST),
        ("~/x.zarr", os.path.expanduser("~/x.zarr"), Visibility.HOST),
        ("file:///a/x.zarr", "/a/x.zarr", Visibility.HOST),
        ("memory://x/", "memory://x", Visibility.PROCESS),
        ("s3://bucket/x.zarr/", "s3://bucket/x.zarr", Visibility.EVERYONE),
        ("gcs://bucket/x", "gs://bucket/x", Visibility.EVERYONE),
        ("abfs://container@account.dfs.core.windows.net/x", None, Visibility.EVERYONE),
        ("simplecache::s3://bucket/x", None, Visibility.EVERYONE),
        ("a::b.npy", os.path.abspath("a::b.npy"), Visibility.HOST),
    ],
)
def test_urls(url: str, normalised: str | None, visibility: Visibility) -> None:
    location = locate(url)
    assert location.url == (normalised or url)
    assert location.visibility == visibility


@pytest.mark.parametrize(
    "url",
    [
        f"s3://key:{PLANTED}@bucket/x",
        f"https://user:{PLANTED}@host/x.zarr",
        f"https://account.blob.core.windows.net/c/x.zarr?sv=2022&sig={PLANTED}",
        f"https://host/x?X-Amz-Signature={PLANTED}",
    ],
)
def test_a_url_with_a_credential_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(InvalidParameterError, match=r"contains a credential") as caught:
        locate(url)
    assert PLANTED not in str(caught.value)


def test_secrets_are_known_by_their_names() -> None:
    secret = (
        "key secret token password account_key connection_string sas aws_session_token credential"
    )
    assert [name for name in secret.split() if not looks_secret(name)] == []
    harmless = "anon endpoint_url region_name use_ssl account_name project"
    assert [name for name in harmless.split() if looks_secret(name)] == []


def test_options_are_split_at_every_depth() -> None:
    session = object()
    public, withheld = split_options(
        {
            "anon": False,
            "token": "google_default",
            "secret": PLANTED,
            "client_kwargs": {"endpoint_url": "http://h", "aws_session_token": PLANTED},
            "loop": session,
        }
    )
    assert public == {
        "anon": False,
        "token": "google_default",
        "client_kwargs": {"endpoint_url": "http://h"},
    }
    assert withheld == ["secret", "client_kwargs.aws_session_token", "loop"]


OPTIONS: dict[str, Any] = {
    "key": PLANTED,
    "secret": PLANTED,
    "anon": False,
    "client_kwargs": {"endpoint_url": "http://h", "tags": ["a", "b"]},
}


def test_secrets_stay_in_the_process() -> None:
    location = locate("s3://bucket/x", OPTIONS)
    sent = pickle.dumps(location)
    assert PLANTED not in repr(location)
    assert PLANTED.encode() not in sent
    assert pickle.loads(sent).storage_options() == OPTIONS  # the same process finds them again
    code = (
        "import pickle, sys; place = pickle.loads(sys.stdin.buffer.read());"
        "print(place.storage_options(), place.withheld)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], input=sent, capture_output=True, check=True
    ).stdout
    public = {"anon": False, "client_kwargs": OPTIONS["client_kwargs"]}
    assert shown.decode().strip() == f"{public} ('key', 'secret')"


def test_secrets_are_struck_from_messages() -> None:
    error = explain(ValueError(f"bad signature {PLANTED}"), locate("s3://bucket/x", OPTIONS))
    assert PLANTED not in str(error)
    assert "bad signature ***" in str(error)


def test_errors_of_stores_say_what_to_do() -> None:
    cases: list[tuple[Exception, str, str, type[Exception], str]] = [
        (PermissionError(13, "denied"), "/x", "dataset", DatasetNotFoundError, "owner and mode"),
        (PermissionError("no"), "s3://b/x", "dataset", DatasetNotFoundError, "AWS_ENDPOINT_URL"),
        (FileNotFoundError("no"), "s3://b/x", "output", Exception, "Create the bucket"),
        *(
            (ImportError("no"), f"{scheme}://b/x", "dataset", MissingExtraError, extra)
            for scheme, extra in (("gs", "gcs"), ("abfs", "azure"), ("s3", "s3"))
        ),
    ]
    for error, url, what, kind, text in cases:
        found = explain(error, locate(url), what)
        assert isinstance(found, kind), url
        expected = install_command(text) if kind is MissingExtraError else text
        assert expected in str(found), url
    assert "Create the bucket" not in str(explain(FileNotFoundError("no"), locate("s3://b/x")))


def test_a_local_name_may_have_two_colons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("a::b.npy", np.eye(3))
    dc.KMeans(2, random_state=0).fit("a::b.npy").save("m::n")
    dc.load_model("m::n").predict("a::b.npy", output="o::p.csv")
    assert sorted(os.listdir()) == ["a::b.npy", "m::n", "o::p.csv"]
