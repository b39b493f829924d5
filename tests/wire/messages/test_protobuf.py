"""The compiled descriptions belong to the .proto files beside them."""

from pathlib import Path

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
