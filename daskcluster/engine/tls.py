"""TLS to a scheduler: certificates are checked before connecting, with no fallback to plain text."""

from __future__ import annotations

import os
import ssl

from distributed.security import Security

from daskcluster.errors import InvalidParameterError

ENCRYPTED = ("tls", "wss")
"""Schemes of addresses behind which Dask encrypts."""

_CONFIGURED = (
    "or tell Dask: distributed.comm.tls.ca-file, .client.cert and .client.key of its configuration"
)


def client_security(ca: str, cert: str, key: str | None = None) -> Security:
    """Return what a client needs to meet a scheduler over TLS, each side knowing the other.

    Parameters
    ----------
    ca : str
        PEM file with the authority that signed the certificates of the cluster.
    cert : str
        PEM file with the client's certificate, and perhaps its key.
    key : str, optional
        PEM file with the client's key, without a passphrase.

    Returns
    -------
    distributed.security.Security
        For `connect`, `daskcluster.DaskEngine` and ``distributed.Client``. Encryption is required.

    Raises
    ------
    InvalidParameterError
        A file cannot be read or is no such thing, the key does not belong to the certificate or needs a
        passphrase.

    Examples
    --------
    >>> client_security("no-ca.pem", "no-cert.pem")
    Traceback (most recent call last):
        ...
    daskcluster.errors.InvalidParameterError: TLS: the authority 'no-ca.pem' cannot be read ...
    """
    for what, path in (("authority", ca), ("certificate", cert), ("key", key)):
        if path is not None:
            _check_file(what, path)
    # Paths from here on: the name of a file may not be taken for a certificate in memory.
    files = [None if path is None else os.path.abspath(path) for path in (ca, cert, key)]
    security = Security(
        require_encryption=True,
        tls_ca_file=files[0],
        tls_client_cert=files[1],
        tls_client_key=files[2],
    )
    try:
        security.get_connection_args("client")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise InvalidParameterError(
            f"TLS: authority {ca!r}, certificate {cert!r} and key {key!r} do not go together "
            f"({reason}); give PEM files, and the key that belongs to the certificate."
        ) from error
    return security


def _check_file(what: str, path: str) -> None:
    try:
        with open(path, "rb") as file:
            content = file.read(1 << 20)
    except OSError as error:
        raise InvalidParameterError(
            f"TLS: the {what} {path!r} cannot be read ({error.strerror}); give the path of a PEM file."
        ) from error
    # OpenSSL would ask for the passphrase on the terminal, and wait.
    if b"ENCRYPTED" in content:
        raise InvalidParameterError(
            f"TLS: the {what} {path!r} needs a passphrase, which cannot be given here; keep a key "
            "without one in a file that only you can read."
        )


def address_under(security: Security | None, address: str) -> str:
    """Return the address to connect to, refusing one that would not be encrypted as was asked.

    Parameters
    ----------
    security : Security or None
        None: what Dask's configuration says.
    address : str
        With certificates, ``host:port`` stands for ``tls://host:port``.

    Raises
    ------
    InvalidParameterError
        Certificates were given for an address that Dask does not encrypt, or none for one that it does.

    Examples
    --------
    >>> address_under(None, "tcp://10.0.0.5:8786")
    'tcp://10.0.0.5:8786'
    """
    scheme, mark, _ = address.partition("://")
    encrypted = bool(mark) and scheme.lower() in ENCRYPTED
    if security is not None and security.require_encryption and not encrypted:
        if not mark:
            return f"tls://{address}"
        raise InvalidParameterError(
            f"scheduler={address!r} is not encrypted, and TLS was asked for; write "
            f"{address.replace(scheme, 'tls', 1)!r} if the scheduler listens with TLS."
        )
    if encrypted and not _has_certificates(security or Security()):
        raise InvalidParameterError(
            f"scheduler={address!r} needs certificates: give --tls-ca, --tls-cert and --tls-key on the "
            f"command line, DaskEngine(address, security=...) in Python, {_CONFIGURED}."
        )
    return address


def _has_certificates(security: Security) -> bool:
    return bool(security.tls_ca_file and security.tls_client_cert)
