"""How both ends treat a connection: sizes, and pings that find a dead one."""

from cutlayer.wire.grpc.guard.connections import connections_at_most
from cutlayer.wire.grpc.retransmit import PIECE
from cutlayer.wire.limits import Limits

#: By this metadata of a refusal a server tells in how many milliseconds to come again (gRPC's retry design).
PUSHBACK = "grpc-retry-pushback-ms"
_PING = 20_000
# A piece of a message (`retransmit.PIECE`) and what is around it; or settings, or a description of data.
_PIECE = PIECE + (1 << 20)
# Messages are large: frames of HTTP/2 and the window of what may be on its way are, too.
_BOTH = [
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", _PING),
    ("grpc.keepalive_timeout_ms", _PING // 2),
    ("grpc.http2.max_frame_size", 4 << 20),
    ("grpc.http2.lookahead_bytes", 4 << 20),
    # Windows are as large as they need to be: to probe each connection costs the other end a ping a message.
    ("grpc.http2.bdp_probe", 0),
]


def client_options() -> list[tuple[str, int]]:
    """How a client treats its connection."""
    return [
        *_BOTH,
        ("grpc.max_receive_message_length", _PIECE),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def server_options(limits: Limits, streams: int = 4, *, pieces: bool = True) -> list[tuple[str, int]]:
    """How a server treats connections; each has so many streams at a time.

    gRPC takes memory for a whole request before anybody can look, so large messages come in `pieces`.
    """
    largest = min(_PIECE, limits.message) if pieces else limits.message
    return [
        *_BOTH,
        ("grpc.max_receive_message_length", largest),
        ("grpc.max_metadata_size", 16 << 10),
        ("grpc.max_allowed_incoming_connections", connections_at_most(limits)),
        ("grpc.max_concurrent_streams", streams),
        ("grpc.server_handshake_timeout_ms", round(1000 * limits.handshake)),
        ("grpc.max_connection_idle_ms", round(1000 * limits.idle)),
        ("grpc.http2.min_ping_interval_without_data_ms", 5000),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.so_reuseport", 0),
    ]
