"""Addresses as `HOST:PORT`, and where it is safe to listen."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket

from cutlayer.errors import CredentialError, UnreachableError


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT` or `[IPv6]:PORT`."""
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535 or (":" in host and not bracketed):
        raise UnreachableError(
            f"{address!r} is not an address; write HOST:PORT, such as train.example.org:7000, 127.0.0.1:7000 "
            "or [::1]:7000"
        )
    return host[1:-1] if bracketed else host, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect there. Names other than localhost are not looked up."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_listen(address: str, *, tls: bool, auth: bool, insecure: bool) -> None:
    """Refuse to listen where others can connect, unless traffic is encrypted and clients are known."""
    host, _ = parse_address(address)
    if insecure or is_loopback(host) or (tls and auth):
        return
    missing = []
    if not tls:
        missing.append("a certificate (--cert and --key)")
    if not auth:
        missing.append("a way to know clients (--tokens, or --client-ca for mutual TLS)")
    raise CredentialError(
        f"will not listen on {address}: others can reach it, and there is not {' nor '.join(missing)}. "
        "`cutlayer certs` makes both; listen on 127.0.0.1, or take the risk with --insecure"
    )


def bind_error(address: str) -> UnreachableError:
    """Why a server could not listen there. Tries again with a plain socket, which tells the reason."""
    host, port = parse_address(address)
    why, remedy = "the reason is unknown", "try another address"
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as attempt:
            attempt.bind(place)
    except socket.gaierror as error:
        why, remedy = f"the name {host} is not known ({error.strerror})", "give an address of this machine"
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        remedy = {
            errno.EADDRINUSE: "another program listens there: stop it, or choose another port (0 takes any)",
            errno.EACCES: "ports below 1024 need rights: choose a higher one",
            errno.EADDRNOTAVAIL: "give an address that this machine has",
        }.get(error.errno or 0, remedy)
    return UnreachableError(f"cannot listen on {address}: {why}; {remedy}")
