"""The messages of cutlayer.proto as Python classes.

They are made from the compiled description, `cutlayer.binpb`, because Python code that protoc generates works
with one major version of protobuf only. After a change of the .proto:

    cd src/cutlayer/wire
    python -m grpc_tools.protoc -I . --descriptor_set_out=cutlayer.binpb cutlayer.proto
"""

from __future__ import annotations

import threading
from functools import cache
from importlib import resources
from typing import Any

VERSION = 1
PACKAGE = "cutlayer.v1"
TRAINING = f"{PACKAGE}.Training"
TRAIN = f"/{TRAINING}/Train"
INFERENCE = f"{PACKAGE}.Inference"
PREDICT = f"/{INFERENCE}/Predict"
#: Metadata by which a server tells a client, before any message, that its credential is good.
LISTENING = "cutlayer-protocol"
_ONE_AT_A_TIME = threading.Lock()


@cache
def message_class(name: str) -> Any:
    """The class of a message, such as `Hello` or `Goodbye`."""
    # Two threads that are first must get classes of the same pool, which go into each other.
    with _ONE_AT_A_TIME:
        return _all_classes()[f"{PACKAGE}.{name}"]


@cache
def _all_classes() -> dict[str, Any]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    # A pool of its own: another package may have a file of the same name.
    pool = descriptor_pool.DescriptorPool()
    files = []
    for path in sorted(resources.files(__package__).iterdir(), key=lambda found: found.name):
        if path.name.endswith(".binpb"):
            for file in descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes()).file:
                pool.Add(file)
                files.append(file.name)
    return message_factory.GetMessageClassesForFiles(files, pool)
