"""Locations of data: URLs, their visibility, storage options and secrets, and errors on access."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from daskcluster.errors import (
    DaskClusterError,
    DatasetNotFoundError,
    InvalidDataError,
    InvalidParameterError,
    MissingExtraError,
)
from daskcluster.extras import install_command
from daskcluster.fingerprint import NO_MATTER
from daskcluster.storage.process_local import ProcessLocal
from daskcluster.typing import Visibility

_SECRET_WORDS = (
    "key", "secret", "token", "pass", "pwd", "credential", "connection_string", "sas", "sig", "auth",
    "private", "cert", "cookie", "header", "session",
)  # fmt: skip
_HARMLESS_VALUES = frozenset({"anon", "google_default", "cloud", "browser", "cache"})
_HARMLESS_NAMES = frozenset({"use_ssl", "signature_version", "key_encoding"})


def looks_secret(name: str, value: Any = "?") -> bool:
    """Return True if an option of this name may hold a credential.

    Examples
    --------
    >>> looks_secret("aws_secret_access_key"), looks_secret("endpoint_url"), looks_secret("token", "anon")
    (True, False, False)
    """
    name = name.lower()
    if value is None or isinstance(value, bool) or name in _HARMLESS_NAMES:
        return False
    if isinstance(value, str) and value in _HARMLESS_VALUES:
        return False
    return any(word in name for word in _SECRET_WORDS)


def split_options(options: Mapping[str, Any], prefix: str = "") -> tuple[dict[str, Any], list[str]]:
    """Return the options that may leave the process, and the dotted names of those that may not.

    Nested mappings (``client_kwargs``) are split too; values that are not plain data, such as an open
    session, never leave the process.

    Examples
    --------
    >>> split_options({"anon": False, "client_kwargs": {"endpoint_url": "http://h", "my_secret": "x"}})
    ({'anon': False, 'client_kwargs': {'endpoint_url': 'http://h'}}, ['client_kwargs.my_secret'])
    """
    public: dict[str, Any] = {}
    withheld: list[str] = []
    for name, value in options.items():
        if looks_secret(str(name), value) or not _is_plain(value):
            withheld.append(f"{prefix}{name}")
        elif isinstance(value, Mapping):
            public[name], inner = split_options(value, f"{prefix}{name}.")
            withheld += inner
        else:
            public[name] = value
    return public, withheld


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(item) and not isinstance(item, Mapping) for item in value)
    return value is None or isinstance(value, (bool, int, float, str, Mapping))


def secret_values(options: Mapping[str, Any]) -> list[str]:
    """Return the texts that must not appear in messages."""
    found: list[str] = []
    for name, value in options.items():
        if isinstance(value, Mapping):
            found += secret_values(value)
        elif isinstance(value, str) and value and looks_secret(str(name), value):
            found.append(value)
    return found


_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.\-]*)(://|::)")
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"} | dict.fromkeys(
    ("abfs", "abfss", "az", "adl"), "azure"
)
_ALIASES = {"s3a": "s3", "gcs": "gs"} | dict.fromkeys(("abfss", "az", "adl"), "abfs")
_ENVIRONMENT = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the files under ~/.aws (and AWS_ENDPOINT_URL "
    "where the server is not Amazon's)",
    "gcs": "GOOGLE_APPLICATION_CREDENTIALS, or the cloud's own metadata service",
    "azure": "AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME with ..._ACCOUNT_KEY",
}


@dataclass(frozen=True)
class Location:
    """A URL or local path with its storage options, safe to pickle and to print.

    Attributes
    ----------
    url : str
        Normalised: an absolute path for local files, else ``scheme://...`` without a trailing slash.
    options : str
        Options that are pickled, as JSON: locations can be hashed and compared.
    withheld : tuple of str
        Names of the options that are not pickled.
    held : ProcessLocal or None
        All options, in the process that received them.
    """

    url: str
    options: str = "{}"
    withheld: tuple[str, ...] = ()
    held: ProcessLocal[dict[str, Any]] | None = field(default=None, metadata=NO_MATTER)

    @property
    def scheme(self) -> str:
        """The scheme of the URL; of a chained URL, the last one, which locates the bytes."""
        match = _SCHEME.match(self.url.rsplit("::", 1)[-1])
        return match.group(1).lower() if match else "file"

    @property
    def is_local(self) -> bool:
        return not _SCHEME.match(self.url)

    @property
    def visibility(self) -> Visibility:
        """The processes that can read this location."""
        return {
            "file": Visibility.HOST,
            "local": Visibility.HOST,
            "memory": Visibility.PROCESS,
        }.get(self.scheme, Visibility.EVERYONE)

    def storage_options(self) -> dict[str, Any]:
        """Return all options known to this process; credentials only in the process that received them."""
        if self.held is not None and self.held.value is not None:
            return dict(self.held.value)
        return dict(json.loads(self.options))

    def child(self, name: str) -> Location:
        """Return the location of `name` below this one."""
        return replace(self, url=f"{self.url.rstrip('/')}/{name.strip('/')}")

    def resolved(self) -> str:
        """Return one name for all spellings of this place: symbolic links and aliases of schemes resolved.

        A chained URL has the name of the place of its bytes. Credentials and options do not count.
        """
        place = replace(self, url=_normalise(self.url.rpartition("::")[2]))
        if place.is_local:
            return os.path.realpath(place.url)
        scheme, _, path = place.url.partition("://")
        authority, slash, rest = path.strip("/").partition("/")
        return f"{_ALIASES.get(scheme, scheme)}://{authority.partition('@')[0]}{slash}{rest}"

    def holds(self, other: Location) -> bool:
        """Return True if `other` is this place, or lies within it.

        Examples
        --------
        >>> locate("s3a://bucket/rows.zarr").holds(locate("s3://bucket/rows.zarr/X"))
        True
        >>> locate("memory://rows").holds(locate("memory://rows-2"))
        False
        """
        one, two = f"{self.resolved()}/", f"{other.resolved()}/"
        if two.startswith(one):
            return True
        # One file may have several names that no link tells apart: upper and lower case, mounts.
        try:
            return os.path.samefile(one[:-1], two[:-1])
        except OSError:
            return False

    def filesystem(self) -> tuple[Any, str]:
        """Return the fsspec file system and the path in it (synchronous)."""
        import fsspec

        if self.is_local and "::" in self.url:  # which would be taken for a chain of file systems
            return fsspec.filesystem("file", **self.storage_options()), self.url
        try:
            fs, path = fsspec.core.url_to_fs(self.url, **self.storage_options())
        except (ImportError, ValueError, TypeError) as error:
            raise explain(error, self) from error
        return fs, str(path)

    def __repr__(self) -> str:
        return repr(self.url)


def locate(url: Any, storage_options: Mapping[str, Any] | None = None) -> Location:
    """Normalise a URL or path, and separate options that may leave the process from the others.

    A location is returned itself.

    Raises
    ------
    InvalidParameterError
        The URL is empty or carries a password or a signature.

    Examples
    --------
    >>> locate("s3://bucket/rows.zarr/", {"anon": True})
    's3://bucket/rows.zarr'
    >>> locate("memory://rows").visibility
    <Visibility.PROCESS: 0>
    """
    if isinstance(url, Location):
        return url
    url = os.fspath(url)
    if not url.strip():
        raise InvalidParameterError(
            "The URL is empty; give a path or a URL such as s3://bucket/rows.zarr."
        )
    _refuse_credentials(url)
    options = dict(storage_options or {})
    public, withheld = split_options(options)
    held = ProcessLocal(options, "storage options") if withheld else None
    return Location(_normalise(url), json.dumps(public, sort_keys=True), tuple(withheld), held)


ARCHIVE = ".zarr.zip"
"""Ending of a Zarr store in one file, which is read in place."""


def locate_rows(url: Any, storage_options: Mapping[str, Any] | None = None) -> Location:
    """Return where rows are: what `locate` returns, and the inside of a zip archive of a Zarr store.

    Examples
    --------
    >>> locate_rows("s3://bucket/rows.zarr.zip", {"anon": True})
    'zip::s3://bucket/rows.zarr.zip'
    """
    place = locate(url, storage_options)
    is_archive = place.url.lower().endswith(ARCHIVE) and "::" not in place.url
    if not is_archive or (place.is_local and not os.path.isfile(place.url)):
        return place
    options = place.storage_options()
    return locate(f"zip::{place.url}", {place.scheme: options} if options else None)


def _normalise(url: str) -> str:
    for scheme in ("file://", "local://"):
        if url.startswith(scheme):
            url = url[len(scheme) :]
    match = _SCHEME.match(url)
    if not match:
        return os.path.abspath(os.path.expanduser(url))
    if match.group(2) == "::":
        from fsspec import available_protocols

        return url if match.group(1) in available_protocols() else os.path.abspath(url)
    scheme, rest = match.group(1).lower(), url[match.end() :]
    return f"{'gs' if scheme == 'gcs' else scheme}://{rest.rstrip('/')}"


def _refuse_credentials(url: str) -> None:
    # URLs appear in recipes, models and logs, so they must not contain credentials.
    match = _SCHEME.match(url)
    if not match or match.group(2) == "::":
        return
    authority, _, query = url[match.end() :].partition("?")
    user_info = authority.split("/", 1)[0].rpartition("@")[0]
    is_container = match.group(1).lower() in ("abfs", "abfss") and ":" not in user_info
    signed = re.search(r"(^|&)(sig|[^&=]*(signature|token|secret|key|credential))=", query, re.I)
    if (user_info and not is_container) or signed:
        shown = match.group(0) + authority.split("/", 1)[0].rpartition("@")[2]
        raise InvalidParameterError(
            f"The URL under {shown} contains a credential, which would appear in recipes, models and "
            "logs; remove it, and give credentials through the environment or the cloud's own files."
        )


def explain(error: BaseException, location: Location, what: str = "dataset") -> DaskClusterError:
    """Turn an error of a store into one that names the data, its URL and a remedy.

    Its text never contains the value of a secret option.
    """
    extra = _EXTRAS.get(location.scheme)
    text = _scrubbed(f"{type(error).__name__}: {error}", location)
    if isinstance(error, DaskClusterError):
        return error
    if isinstance(error, ImportError):
        remedy = install_command(extra) if extra else "install the client it names"
        return MissingExtraError(
            f"{location.url!r} needs a cloud client: {text}. Remedy: {remedy}."
        )
    if isinstance(error, PermissionError) or "credential" in text.lower():
        return DatasetNotFoundError(
            f"No permission to reach the {what} at {location.url!r} ({text}). "
            f"{_credentials(location, extra)}"
        )
    if isinstance(error, FileNotFoundError) and what == "output" and extra is not None:
        return DatasetNotFoundError(
            f"There is no output at {location.url!r}: nothing is stored there, and buckets are not "
            "created. Create the bucket, or check its name and, in storage_options, the endpoint."
        )
    if isinstance(error, FileNotFoundError):
        return DatasetNotFoundError(
            f"There is no {what} at {location.url!r}: {_where_it_is_not(location)}"
        )
    if "Protocol not known" in text:
        return InvalidParameterError(
            f"The scheme of {location.url!r} is not known; use a path, file://, memory://, s3://, gs:// or "
            "abfs://. A source of another package needs DASKCLUSTER_PRELOAD=package, on workers too."
        )
    if isinstance(error, OSError) or "Connect" in type(error).__name__:
        return DatasetNotFoundError(
            f"The {what} at {location.url!r} cannot be reached ({text}); check the network and, in "
            "storage_options, the endpoint."
        )
    return InvalidDataError(
        f"The {what} at {location.url!r} cannot be read ({text}); check the URL, the storage options and "
        "that it was written completely."
    )


def _scrubbed(text: str, location: Location) -> str:
    for secret in secret_values(location.storage_options()):
        text = text.replace(secret, "***")
    return text


def _credentials(location: Location, extra: str | None) -> str:
    where = _ENVIRONMENT.get(extra or "", "the environment of the process")
    if location.withheld and location.held is not None and not location.held.is_here:
        names = ", ".join(location.withheld)
        return (
            f"The storage options {names} are secrets and are not sent to workers; give the workers "
            f"credentials of their own: {where}."
        )
    if extra is None:
        return "Ask for read access, or check the owner and mode of the files."
    return f"Credentials come from {where}."


def _where_it_is_not(location: Location) -> str:
    if location.is_local:
        return (
            "the path does not exist on this host. Check the spelling; a relative path starts at the "
            "current folder, and workers on other hosts need a shared path or a bucket's URL."
        )
    if location.scheme == "memory":
        return (
            "nothing was written there in this process; memory:// is not shared between processes."
        )
    return (
        f"nothing is stored there. {hint_of_slashes(location)}Check bucket, path and, in storage_options, "
        "the endpoint."
    )


def hint_of_slashes(location: Location) -> str:
    """Return a sentence for errors on two slashes in a row, which are part of the names in a bucket."""
    if location.is_local or "//" not in location.url.rpartition("://")[2]:
        return ""
    return "Two slashes in a row count as a folder without a name; write one. "
