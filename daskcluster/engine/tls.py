"""TLS connections to a scheduler: certificates are checked first, with no fallback to plain text."""

from __future__ import annotations

import os
import ssl

from distributed.security import Security

from daskcluster.errors import InvalidParameterError

ENCRYPTED = ("tls", "wss")
"""Address schemes that Dask encrypts."""

_CONFIGURED = (
    "or set distributed.comm.tls.ca-file, .client.cert and .client.key in Dask's configuration"
)


def client_security(ca: str, cert: str, key: str | None = None) -> Security:
    """Return the security settings of a client for mutual TLS with a scheduler.

    Parameters
    ----------
    ca : str
        PEM file with the certificate of the authority that signed the cluster's certificates.
    cert : str
        PEM file with the client's certificate, and its key if `key` is not given.
    key : str, optional
        PEM file with the client's key, without a passphrase.

    Returns
    -------
    distributed.security.Security
        For `connect`, `daskcluster.DaskEngine` and ``distributed.Client``. Encryption is required.

    Raises
    ------
    InvalidParameterError
        A file cannot be read or is not a PEM file of its kind, or the key does not match the certificate or
        needs a passphrase.

    Notes
    -----
    Cost: reads the files; makes no connection.

    Examples
    --------
    >>> client_security("no-ca.pem", "no-cert.pem")
    Traceback (most recent call last):
        ...
    daskcluster.errors.InvalidParameterError: TLS: the file 'no-ca.pem' cannot be read ...
    """
    for path in filter(None, (ca, cert, key)):
        _check_file(path)
    # Absolute paths, so that Dask never takes a file name for the content of a certificate.
    security = Security(
        require_encryption=True,
        tls_ca_file=os.path.abspath(ca),
        tls_client_cert=os.path.abspath(cert),
        tls_client_key=None if key is None else os.path.abspath(key),
    )
    try:
        security.get_connection_args("client")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise InvalidParameterError(
            f"TLS: authority {ca!r}, certificate {cert!r} and key {key!r} do not match ({reason}); give "
            "PEM files, and the key of this certificate."
        ) from error
    return security


def _check_file(path: str) -> None:
    try:
        with open(path, "rb") as file:
            content = file.read(1 << 20)
    except OSError as error:
        raise InvalidParameterError(
            f"TLS: the file {path!r} cannot be read ({error.strerror}); give the path of a PEM file."
        ) from error
    # OpenSSL would prompt for the passphrase on the terminal and wait.
    if b"ENCRYPTED" in content:
        raise InvalidParameterError(
            f"TLS: the file {path!r} needs a passphrase, which is not supported; give a key without "
            "one, in a file that only you can read."
        )


def address_under(security: Security | None, address: str) -> str:
    """Return the address to connect to; refuse one that contradicts the security settings.

    Parameters
    ----------
    security : Security or None
        None: use Dask's configuration.
    address : str
        With certificates, ``host:port`` stands for ``tls://host:port``.

    Raises
    ------
    InvalidParameterError
        Certificates were given for an unencrypted address, or none for an encrypted one.

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
            f"scheduler={address!r} is not encrypted, but TLS was requested; write "
            f"{address.replace(scheme, 'tls', 1)!r} if the scheduler listens with TLS."
        )
    used = security or Security()
    if encrypted and not (used.tls_ca_file and used.tls_client_cert):
        raise InvalidParameterError(
            f"scheduler={address!r} needs certificates: give --tls-ca, --tls-cert and --tls-key on the "
            f"command line, DaskEngine(address, security=...) in Python, {_CONFIGURED}."
        )
    return address
