"""Which storage options are secrets: those stay in the process, the others may travel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    """Return the options that may travel, and the dotted names of those that may not.

    Nested mappings (``client_kwargs``) are split too; values that are not plain data, such as an
    opened session, never travel.

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
    """Return the texts that must not show up in a message."""
    found: list[str] = []
    for name, value in options.items():
        if isinstance(value, Mapping):
            found += secret_values(value)
        elif isinstance(value, str) and value and looks_secret(str(name), value):
            found.append(value)
    return found
