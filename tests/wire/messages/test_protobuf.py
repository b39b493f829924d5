"""The compiled descriptions belong to the .proto files beside them."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cutlayer.wire.messages import protobuf as protocol

FOLDER = Path(protocol.__file__).parent


@pytest.mark.parametrize("name", ["cutlayer", "inference"])
def test_the_description_is_that_of_the_proto_file(name: str, tmp_path: Path) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools is not installed")
    made = tmp_path / "made.binpb"
    assert protoc.main(["", f"-I{FOLDER}", f"--descriptor_set_out={made}", f"{name}.proto"]) == 0
    assert made.read_bytes() == (FOLDER / f"{name}.binpb").read_bytes()


def test_messages_go_through_bytes() -> None:
    hello = protocol.message_class("Hello")(protocol=1, incarnation=b"x" * 16, attempt=2, claims=0)
    up = protocol.message_class("Up")(hello=hello)
    again = protocol.message_class("Up").FromString(up.SerializeToString())
    assert again.WhichOneof("content") == "hello"
    assert again.hello.HasField("claims")
    assert not protocol.message_class("Hello")().HasField("claims")


def test_threads_that_are_first_get_classes_that_fit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    # New caches, and not cleared ones: other tests of this process hold classes of the old pool.
    for name in ("_all_classes", "message_class"):
        monkeypatch.setattr(protocol, name, cache(getattr(protocol, name).__wrapped__))
    begin = threading.Barrier(4)

    def first(name: str) -> Any:
        begin.wait(10)
        return protocol.message_class(name)

    with ThreadPoolExecutor(4) as pool:
        down, goodbye, up, hello = pool.map(first, ["Down", "Goodbye", "Up", "Hello"])
    assert down(goodbye=goodbye(reason="x")).goodbye.reason == "x"
    assert up(hello=hello(attempt=1)).hello.attempt == 1
