"""A device that is told to come again does so, for a while; one that is refused does not."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
import torch

from cutlayer.codecs import codec
from cutlayer.errors import LimitError, RefusedError, UnreachableError
from cutlayer.inference.remote_model import RemoteModel
from cutlayer.inference.service import INFERENCE
from cutlayer.wire.grpc.guard.gate import PUSHBACK
from cutlayer.wire.messages.protobuf import message_class
from tests.samples import images


def logits(request: Any) -> Any:
    return message_class("PredictReply")(frame=codec("dense").encode(torch.ones(1, 10)))


@contextmanager
def answering(predict: Callable[[Any, Any], Any], port: int = 0) -> Iterator[int]:
    """A server of gRPC's own."""
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
    method = grpc.unary_unary_rpc_method_handler(
        predict,
        request_deserializer=message_class("PredictRequest").FromString,
        response_serializer=message_class("PredictReply").SerializeToString,
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(INFERENCE, {"Predict": method}),))
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield port
    finally:
        server.stop(0).wait()


def failing(times: int, code: Any, *metadata: tuple[str, str]) -> tuple[Callable[[Any, Any], Any], list[int]]:
    """Refuses so many times, then answers; and how often it was asked."""
    asked = [0]

    def predict(request: Any, context: Any) -> Any:
        asked[0] += 1
        if asked[0] <= times:
            context.set_trailing_metadata(metadata)
            context.abort(code, "not \x1b[2J now")
        return logits(request)

    return predict, asked


@pytest.mark.parametrize(
    ("code", "metadata"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, [(PUSHBACK, "50")]),
        (grpc.StatusCode.UNAVAILABLE, []),
    ],
)
def test_who_is_told_to_come_again_does(trained, code, metadata) -> None:
    predict, asked = failing(3, code, *metadata)
    with answering(predict) as port, RemoteModel(f"127.0.0.1:{port}", trained, retry=60) as model:
        assert torch.equal(model(images(1)), torch.ones(1, 10))
    assert asked == [4]


def test_not_for_ever(trained) -> None:
    predict, asked = failing(10**6, grpc.StatusCode.RESOURCE_EXHAUSTED, (PUSHBACK, "50"))
    with (
        answering(predict) as port,
        RemoteModel(f"127.0.0.1:{port}", trained, retry=2) as model,
        pytest.raises(RefusedError) as caught,
    ):
        model(images(1))
    assert "\x1b" not in str(caught.value)
    assert 2 <= asked[0] < 20


@pytest.mark.parametrize("code", [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT])
def test_a_refusal_is_final(trained, code) -> None:
    predict, asked = failing(10**6, code)
    with (
        answering(predict) as port,
        RemoteModel(f"127.0.0.1:{port}", trained, retry=60) as model,
        pytest.raises(RefusedError),
    ):
        model(images(1))
    assert asked == [1]


def test_an_answer_larger_than_asked_for_takes_no_memory(trained) -> None:
    # A frame of a few kilobytes can claim gigabytes.
    claims = codec("sp:ratio=0.9999").encode(torch.ones(100_000, 10))
    reply = message_class("PredictReply")(frame=claims)
    with (
        answering(lambda request, context: reply) as port,
        RemoteModel(f"127.0.0.1:{port}", trained) as model,
        pytest.raises(LimitError, match="claims 1,000,000 elements"),
    ):
        model(images(1))


def test_a_server_that_restarts_is_found_again(trained) -> None:
    predict, _ = failing(0, grpc.StatusCode.UNAVAILABLE)
    with answering(predict) as port, RemoteModel(f"127.0.0.1:{port}", trained, retry=60) as model:
        assert model(images(1)).shape == (1, 10)
    with RemoteModel(f"127.0.0.1:{port}", trained, retry=0.3) as model:
        with pytest.raises(UnreachableError, match="nobody listens"):
            model(images(1))
        model.retry = 60
        answers: list[Any] = []
        asking = threading.Thread(target=lambda: answers.append(model(images(1))))
        asking.start()
        with answering(predict, port):
            asking.join(60)
        assert answers[0].shape == (1, 10)
