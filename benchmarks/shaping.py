"""The rate that a shaped gRPC stream achieves, against the rate that was set.

    python benchmarks/shaping.py            print the table
    python benchmarks/shaping.py --save     and write it to benchmarks/results/shaping.json

A client streams messages of one size through a `DelayLine` to a server on loopback, which notes when each
arrives; both share one event loop. `gRPC alone` is the same stream without shaping, over at most 2,000
messages and its start included: a rough ceiling, measured once. Run it on an idle machine. Nothing here
passes or fails; the aim is 5 % of the set rate.
"""

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from cutlayer.training.provenance import provenance
from cutlayer.wire.link.model import Link
from cutlayer.wire.link.shaping import DelayLine, Pacer
from cutlayer.wire.meter import Direction

RESULTS = Path(__file__).parent / "results" / "shaping.json"
SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


async def stream(link: Link | None, size: int, count: int) -> tuple[float, float]:
    """Seconds until the first and the last of so many messages have arrived."""
    arrivals: list[float] = []

    async def receive(requests: AsyncIterator[bytes], context: Any) -> bytes:
        async for _ in requests:
            arrivals.append(time.perf_counter())
        return b""

    server = grpc.aio.server(options=OPTIONS)
    handler: Any = grpc.stream_unary_rpc_method_handler(receive)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("b", {"m": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    message = bytes(size)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", OPTIONS) as channel:
        await channel.channel_ready()
        call: Any = channel.stream_unary("/b/m")()
        await call.wait_for_connection()
        began = time.perf_counter()
        if link is None:
            for _ in range(count):
                await call.write(message)
        else:
            async with DelayLine(Pacer.of(link, Direction.UP), call.write) as line:
                for _ in range(count):
                    await line.send(message, size)
                await line.drain()
        await call.done_writing()
        await call
    await server.stop(None)
    return arrivals[0] - began, arrivals[-1] - began


def measure(link: Link, size: int, seconds: float) -> dict[str, Any]:
    """Stream for about so many seconds; the achieved rate, and when the first message came."""
    count = max(2, round(link.up / 8 * seconds / size))
    alone = min(count, 2000)
    _, bare = asyncio.run(stream(None, size, alone))
    first, last = asyncio.run(stream(link, size, count))
    return {
        "link": str(link),
        "bytes": size,
        "messages": count,
        "achieved": round(8 * size * count / (last - link.latency) / link.up, 4),
        "grpc_alone_mbit": round(8 * size * alone / bare / 1e6, 1),
        "first_ms": round(1000 * first, 2),
        "first_expected_ms": round(1000 * link.seconds(Direction.UP, size), 2),
    }


def main() -> None:
    """Measure all sizes on all links."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--link", action="append", help="a link to shape; may be repeated")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each size")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    arguments = parser.parse_args()
    rows = []
    columns = {"link": 16, "message": 12, "messages": 9, "achieved/set": 13, "gRPC alone": 13, "first": 10}
    print(" ".join(f"{name:>{width}}" for name, width in {**columns, "expected": 10}.items()))
    for spec in arguments.link or ["10mbit,10ms", "100mbit,10ms"]:
        for size in SIZES:
            row = measure(Link.parse(spec), size, arguments.seconds)
            rows.append(row)
            print(
                f"{row['link']:>16} {size:>10} B {row['messages']:>9} {row['achieved']:>13.4f} "
                f"{row['grpc_alone_mbit']:>8.0f} mbit "
                f"{row['first_ms']:>7.1f} ms {row['first_expected_ms']:>7.1f} ms"
            )
    if arguments.save:
        found = {"provenance": provenance(0), "rows": rows}
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
