"""Certificates and keys in PEM files: read, described, and checked before anybody relies on them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cutlayer.errors import CredentialError
from cutlayer.wire.security.private_files import read
from cutlayer.wire.text import plain_text

_PURPOSES = {ExtendedKeyUsageOID.SERVER_AUTH: "server", ExtendedKeyUsageOID.CLIENT_AUTH: "client"}


@dataclass(frozen=True)
class Description:
    """What a certificate says."""

    subject: str
    issuer: str
    purpose: str
    """ca, server or client."""
    names: tuple[str, ...]
    """Host names and addresses that it is good for."""
    not_before: datetime
    not_after: datetime
    fingerprint: str
    """SHA-256 of the certificate."""

    @property
    def days_left(self) -> float:
        """How many days it stays valid; negative once it has expired."""
        return (self.not_after - datetime.now(UTC)).total_seconds() / 86400


def describe(path: Path) -> Description:
    """What the (first) certificate in a PEM file says."""
    return describe_certificate(read_certificate(path))


def describe_certificate(certificate: x509.Certificate) -> Description:
    """What a certificate says."""
    names: tuple[str, ...] = ()
    purpose = "any"
    for extension in certificate.extensions:
        value = extension.value
        if isinstance(value, x509.SubjectAlternativeName):
            names = tuple(plain_text(str(name.value)) for name in value)
        elif isinstance(value, x509.ExtendedKeyUsage):
            purpose = " and ".join(_PURPOSES.get(use, use.dotted_string) for use in value)
        elif isinstance(value, x509.BasicConstraints) and value.ca:
            purpose = "ca"
    return Description(
        subject=common_name(certificate.subject),
        issuer=common_name(certificate.issuer),
        purpose=purpose,
        names=names,
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(),
    )


def common_name(name: x509.Name) -> str:
    """The common name, or the whole name where there is none."""
    found = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return plain_text(str(found[0].value) if found else name.rfc4514_string())


def read_certificate(path: Path) -> x509.Certificate:
    """The (first) certificate in a PEM file."""
    data = read(path, "certificate")
    if b"PRIVATE KEY" in data:
        raise CredentialError(f"{path}: holds a private key; a certificate was expected (usually *.pem)")
    try:
        return x509.load_pem_x509_certificates(data)[0]
    except (ValueError, IndexError) as error:
        raise CredentialError(f"{path}: is not a certificate in PEM form") from error


def read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """The private key in a PEM file. Any kind that TLS takes; ours are on an elliptic curve."""
    data = read(path, "private key")
    try:
        return serialization.load_pem_private_key(data, None)  # type: ignore[return-value]
    except (ValueError, TypeError) as error:
        raise CredentialError(f"{path}: is not a private key in PEM form without a password") from error


def check_pair(certificate: Path, key: Path) -> Description:
    """Refuse a key that is not the certificate's, and a certificate that is not valid now."""
    found = read_certificate(certificate)
    if found.public_key() != read_key(key).public_key():
        raise CredentialError(
            f"{key}: is not the key of the certificate {certificate}; they are made as a pair"
        )
    return check_validity(certificate)


def check_validity(path: Path) -> Description:
    """Refuse a certificate that has expired or is not valid yet."""
    about = describe(path)
    today = datetime.now(UTC)
    if today > about.not_after:
        raise CredentialError(
            f"{path}: the certificate expired on {about.not_after:%Y-%m-%d %H:%M} UTC; make a new one with "
            "`cutlayer certs` and --force"
        )
    if today < about.not_before:
        raise CredentialError(
            f"{path}: the certificate is valid only from {about.not_before:%Y-%m-%d %H:%M} UTC on; is this "
            "machine's clock right?"
        )
    return about
