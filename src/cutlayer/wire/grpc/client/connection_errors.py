"""Why a connection failed, in words for the side that can mend it.

gRPC reports most failures as UNAVAILABLE: "Socket closed" is all that a client hears when the server did
not like its certificate. So after such a failure we connect once more with Python's own TLS, which tells.
"""

from __future__ import annotations

import grpc

from cutlayer.errors import CredentialError, CutlayerError, UnreachableError
from cutlayer.wire.security.credentials import ClientSecurity
from cutlayer.wire.text import plain_text


def explain(
    error: grpc.RpcError, address: str, security: ClientSecurity, timeout: float = 5.0
) -> CutlayerError:
    """What an RPC's failure means, and what to do about it. May connect, so keep it off an event loop."""
    code, details = error.code(), plain_text(error.details() or "")
    if code == grpc.StatusCode.UNAUTHENTICATED or code == grpc.StatusCode.PERMISSION_DENIED:
        return CredentialError(f"{address}: {details}")
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return UnreachableError(
            f"{address}: the server there does not offer this; it is of another kind or version ({details})"
        )
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return UnreachableError(f"{address}: the server did not answer in time; is it overloaded or frozen?")
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL):  # the latter while something was sent
        # It imports cryptography, which only a failure needs.
        from cutlayer.wire.security.diagnose import diagnose

        found = diagnose(address, security, timeout)
        return found or UnreachableError(f"{address}: the connection was lost ({details}); try again")
    return UnreachableError(f"{address}: {code.name.lower().replace('_', ' ')}: {details}")


def blame(error: CutlayerError, target: str, address: str) -> CutlayerError:
    """The error, with who sent this client to `target`, if that is not the address that it calls itself."""
    if target == address:
        return error
    return type(error)(f"{error} ({address} sends this client there, as its server's --advertise says)")
