"""Why a server cannot be reached or does not like us: connect as the client would, with Python's own TLS."""

from __future__ import annotations

import socket
import ssl
import tempfile
from contextlib import suppress
from pathlib import Path

from cryptography import x509

from cutlayer.errors import CredentialError, CutlayerError, UnreachableError
from cutlayer.wire.address import parse_address
from cutlayer.wire.security.credentials import ClientSecurity
from cutlayer.wire.security.pem import Description, describe_certificate

_UNKNOWN_CA = (2, 18, 19, 20, 21)
_OTHER_NAME = (62, 64)
#: What OpenSSL, in its various versions, calls an answer that is no TLS.
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")


class _HungUp(Exception):  # noqa: N818, never leaves this file
    """The server ended the connection after the handshake."""


def diagnose(address: str, security: ClientSecurity, timeout: float = 5.0) -> CutlayerError | None:
    """Connect as the client would, and say what is in the way; None if nothing is."""
    host, port = parse_address(address)
    try:
        socket.create_connection((host, port), timeout).close()
    except socket.gaierror:
        return UnreachableError(f"{address}: the name {host} is not known; check it, or give an IP address")
    except ConnectionRefusedError:
        return UnreachableError(
            f"{address}: nobody listens there; is the server running, and the port right?"
        )
    except TimeoutError:
        return UnreachableError(
            f"{address}: no answer within {timeout:g} s; is the host up, and is a firewall in the way?"
        )
    except OSError as error:
        return UnreachableError(f"{address}: cannot be reached ({error.strerror})")
    try:
        seen = _certificate(host, port, timeout)
    except OSError as error:  # a network that cuts connections says nothing about credentials
        return UnreachableError(f"{address}: the connection was cut ({error}); try again")
    if not security.tls:
        if seen is None:
            return None
        return CredentialError(
            f"{address}: the server speaks TLS; give --ca with the ca.pem of its certificate"
        )
    if seen is None:
        return CredentialError(
            f"{address}: the server speaks no TLS, so its identity cannot be checked. Start it with --cert "
            "and --key, or leave --ca out if plain text will do"
        )
    # Twice: one connection that ends early may be the network's fault.
    for _ in range(2):
        with suppress(_HungUp):
            return _handshake(address, security, seen, timeout)
    return _rejected(address, security)


def _certificate(host: str, port: int, timeout: float) -> Description | None:
    """What the server's certificate says, whether or not it can be trusted; None if it speaks no TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), timeout) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            found = secure.getpeercert(binary_form=True)
    except ssl.SSLError as error:
        if error.reason in _NOT_TLS:
            return None
        raise  # damaged on the way, perhaps: it says nothing about the server
    return describe_certificate(x509.load_der_x509_certificate(found)) if found else None


def _handshake(
    address: str, security: ClientSecurity, seen: Description, timeout: float
) -> CutlayerError | None:
    host, port = parse_address(address)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=(security.ca or b"").decode("ascii", "replace"))
    context.set_alpn_protocols(["h2"])
    if security.certificate is not None and security.key is not None:
        _load_pair(context, security.certificate, security.key)
    try:
        with (
            socket.create_connection((host, port), timeout) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            # With TLS 1.3 the server's verdict on our certificate comes after the handshake. A server that
            # is content speaks first (its HTTP/2 settings); gRPC's one that is not hangs up without a word.
            if secure.recv(1):
                return None
    except ssl.SSLCertVerificationError as error:
        return _distrust(address, host, error.verify_code, error.verify_message, seen)
    except TimeoutError:
        return None
    except OSError as error:
        if "alert" not in str(error).lower() and not isinstance(error, ConnectionResetError):
            return UnreachableError(f"{address}: TLS failed ({error})")
    raise _HungUp


def _rejected(address: str, security: ClientSecurity) -> CredentialError:
    """What the server does not like about the client's certificate; it does not say, so we look ourselves."""
    if security.certificate is None:
        why = "asks for a client's certificate: give --cert and --key of one that its CA made"
        return CredentialError(f"{address}: the server {why}")
    own = describe_certificate(x509.load_pem_x509_certificate(security.certificate))
    if own.days_left < 0:
        why = f"it expired on {own.not_after:%Y-%m-%d %H:%M} UTC; make a new one: cutlayer certs client "
        why += f"{own.subject} --force"
    elif "client" not in own.purpose and own.purpose != "any":
        why = f"it is for a {own.purpose}, not for a client"
    else:
        why = "it is not from the CA that the server trusts (its --client-ca); make one with that CA's key"
    return CredentialError(f"{address}: the server does not accept the certificate of {own.subject}: {why}")


def _distrust(address: str, host: str, code: int, message: str, seen: Description) -> CredentialError:
    """Why the server's certificate was not accepted."""
    if code == 10:
        return CredentialError(
            f"{address}: the server's certificate expired on {seen.not_after:%Y-%m-%d %H:%M} UTC; on the "
            f"server, make a new one: cutlayer certs server {' '.join(seen.names) or host} --force"
        )
    if code == 9:
        return CredentialError(
            f"{address}: its certificate is valid only from {seen.not_before:%Y-%m-%d %H:%M} UTC on: "
            "are the clocks of both machines right?"
        )
    if code in _OTHER_NAME:
        return CredentialError(
            f"{address}: the server's certificate is for {', '.join(seen.names) or 'no name'}, not {host}. "
            f"Call it by one of these names, or make one with: cutlayer certs server "
            f"{' '.join([*seen.names, host])} --force"
        )
    if code in _UNKNOWN_CA:
        return CredentialError(
            f"{address}: the server's certificate (of {seen.subject}, by {seen.issuer}) is not from the "
            "CA in --ca; copy ca.pem from where the server's certificate was made"
        )
    return CredentialError(f"{address}: the server's certificate is not accepted: {message}")


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    # Python's ssl takes them from files only; the directory is for this user alone.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "pair.pem")
        path.touch(mode=0o600)
        path.write_bytes(key + b"\n" + certificate)
        context.load_cert_chain(path)
