"""A short form of `make fuzz`: lying clients and servers, in every mode and role."""

import importlib.util
from pathlib import Path

spec = importlib.util.spec_from_file_location("protocol_fuzzer", Path(__file__).with_name("protocol.py"))
assert spec is not None
assert spec.loader is not None
protocol = importlib.util.module_from_spec(spec)
spec.loader.exec_module(protocol)


def test_no_message_ends_a_run_and_no_honest_client_pays() -> None:
    counts = protocol.run(60, seed=7)
    assert sum(counts.values()) == 60
    # All roles, both policies, several modes.
    kinds = " ".join(counts)
    roles = (
        "client, ",
        "aggregator",
        ", wait, ",
        ", drop, ",
        "remote server",
        "connected client",
        "sent on, ",
    )
    assert all(word in kinds for word in roles)
