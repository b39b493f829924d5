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
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


def _pool() -> Any:
    # Classes of two pools do not go into each other, so two threads must not make one each.
    with _ONE_AT_A_TIME:
        return _made_pool()


@cache
def _made_pool() -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool

    # A pool of its own: another package may have a file of the same name.
    pool = descriptor_pool.DescriptorPool()
    for path in sorted(resources.files(__package__).iterdir(), key=lambda found: found.name):
        if path.name.endswith(".binpb"):
            for file in descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes()).file:
                pool.Add(file)
    return pool
