"""A private certificate authority for a test bed: a CA, certificates for the server and for each client.

Keys are on the curve P-256, which every TLS library speaks. A client's certificate carries its name as
common name; the server takes the identity of a peer from there and nowhere else.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cutlayer.errors import CredentialError, FileError
from cutlayer.wire.security.client_names import check_client_name
from cutlayer.wire.security.pem import check_pair, read_certificate, read_key
from cutlayer.wire.security.private_files import PUBLIC, SECRET, write_all

_HOST = re.compile(
    r"(?=.{1,253}$)(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,62}))*"
)


def make_ca(directory: Path, *, days: int = 3650, force: bool = False) -> tuple[Path, Path]:
    """A certificate authority: `ca.pem`, which everybody gets, and `ca.key`, which nobody gets."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject("cutlayer private CA")
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
        decipher_only=False,
    )  # fmt: skip
    builder = (
        _builder(subject, subject, key, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _write(directory / "ca", builder.sign(key, hashes.SHA256()), key, force)


def make_server(
    directory: Path, hosts: Sequence[str], *, days: int = 825, force: bool = False
) -> tuple[Path, Path]:
    """A certificate for the server under the names and addresses by which clients call it."""
    if not hosts:
        raise CredentialError("a server's certificate needs at least one host name or address")
    names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
    return _issue(
        directory, "server", hosts[0][:64], ExtendedKeyUsageOID.SERVER_AUTH, days, force, names=names
    )


def make_client(directory: Path, name: str, *, days: int = 825, force: bool = False) -> tuple[Path, Path]:
    """A certificate for one client. Its name is the identity that the server will see."""
    check_client_name(name)
    return _issue(directory, name, name, ExtendedKeyUsageOID.CLIENT_AUTH, days, force)


def _issue(
    directory: Path,
    file: str,
    subject: str,
    purpose: x509.ObjectIdentifier,
    days: int,
    force: bool,
    names: x509.SubjectAlternativeName | None = None,
) -> tuple[Path, Path]:
    """Make a certificate that the CA in the directory signs."""
    ca_path, ca_key_path = directory / "ca.pem", directory / "ca.key"
    if not ca_path.exists() or not ca_key_path.exists():
        raise FileError(
            f"{directory}: there is no certificate authority (ca.pem and ca.key); make one with: "
            f"cutlayer certs ca --dir {directory}"
        )
    authority = check_pair(ca_path, ca_key_path)
    if authority.purpose != "ca":
        raise CredentialError(f"{ca_path}: is not the certificate of a certificate authority")
    if days > authority.days_left:
        raise CredentialError(
            f"the CA expires in {authority.days_left:.0f} days; a certificate of {days} days would outlive "
            "it: give fewer --days, or make a new CA"
        )
    ca, ca_key = read_certificate(ca_path), read_key(ca_key_path)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(_subject(subject), ca.subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
    )
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    return _write(directory / file, builder.sign(ca_key, hashes.SHA256()), key, force)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    # Clocks of devices are not exact: valid since yesterday.
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1) if days >= 0 else now + timedelta(days=days - 1))
        .not_valid_after(now + timedelta(days=days))
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if not _HOST.fullmatch(host):
            raise CredentialError(
                f"{host!r} is neither a host name nor an IP address; give names without a port, such as "
                "train.example.org or 192.0.2.7"
            ) from None
        return x509.DNSName(host)


def _write(
    stem: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, force: bool
) -> tuple[Path, Path]:
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    paths = stem.with_name(f"{stem.name}.pem"), stem.with_name(f"{stem.name}.key")
    write_all({paths[1]: (secret, SECRET), paths[0]: (certificate.public_bytes(pem), PUBLIC)}, force=force)
    return paths
