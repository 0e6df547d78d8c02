"""Certificates made on the spot: an authority, and those that it signs."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Files:
    """Paths of PEM files, as the flags and Dask want them."""

    ca: str
    cert: str
    key: str

    def flags(self) -> tuple[str, ...]:
        return ("--tls-ca", self.ca, "--tls-cert", self.cert, "--tls-key", self.key)

    def of_dask(self) -> tuple[str, ...]:
        """Return the flags of ``dask scheduler`` and ``dask worker``."""
        return ("--tls-ca-file", self.ca, "--tls-cert", self.cert, "--tls-key", self.key)


def make_files(folder: Path, name: str) -> Files:
    """Write an authority called `name`, and a certificate that it signed, to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca = signed(name, ca_key, name, ca_key, authority=True)
    cert = signed(f"member of {name}", key, name, ca_key, authority=False)
    paths = {part: folder / f"{part}.pem" for part in ("ca", "cert", "key")}
    paths["ca"].write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    paths["cert"].write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    paths["key"].write_bytes(private_bytes(key))
    return Files(**{part: str(path) for part, path in paths.items()})


def private_bytes(key: ec.EllipticCurvePrivateKey, passphrase: bytes = b"") -> bytes:
    """Return a key as PEM, locked if there is a passphrase."""
    lock: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase:
        lock = serialization.BestAvailableEncryption(passphrase)
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, lock)


def signed(
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    authority: bool,
) -> x509.Certificate:
    """Return the certificate of `subject`, good for an hour."""

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name(subject))
        .issuer_name(name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
