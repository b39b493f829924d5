"""Split learning as a Flower app: nodes have the first half of a model, the ServerApp has the rest.

    client_app = split_client_app(net, at="1", data=load, up="ems:bpe=1.0")
    server_app = split_server_app(net, at="1", steps=50)

A step is two messages to each node. The first brings the clients' weights. The node answers with smashed
data, as a frame of a codec, and labels. The second brings the gradient of the smashed data, as a frame. The
node answers with the gradient of its weights. Nodes keep nothing between messages: in Flower's simulation any
process may play any node. Frames are checked when they are decoded.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from torch import Tensor, nn
from torch.nn import functional as F

from cutlayer.codecs.decode import decode
from cutlayer.codecs.registry import codec
from cutlayer.errors import MessageError
from cutlayer.split.cut import cut
from cutlayer.split.layer import mix

Model = Callable[[], nn.Module]
# Elements of the smashed data of one node: memory is not taken for more.
_LARGEST = 1 << 26
#: The batch of a node at a step: inputs and labels, of (node's number, step).
Batches = Callable[[int, int], tuple[Tensor, Tensor]]


def split_client_app(model: Model, at: str, data: Batches, *, up: str = "ems:bpe=1.0") -> Any:
    """The app of a node: its half of the model, its data, and the codec of its smashed data."""
    app = ClientApp()

    @app.train()
    def step(message: Message, context: Any) -> Message:
        asked = message.content["ask"]
        half = cut(model(), at)[0].train()
        half.load_state_dict(message.content["weights"].to_torch_state_dict())
        number, place = int(asked["step"]), int(context.node_config.get("partition-id", 0))
        inputs, labels = data(place, number)
        smashed = half(inputs)
        answer = RecordDict()
        if "gradient" not in asked:
            frame = codec(up).encode(smashed.detach(), seed=mix(place, number))
            answer["smashed"] = ConfigRecord({"frame": frame, "labels": labels.tolist()})
        else:
            gradient = decode(asked["gradient"], max_elements=smashed.numel())
            smashed.backward(gradient.view_as(smashed).to(smashed.dtype))
            shared = {name: p.grad for name, p in half.named_parameters() if p.grad is not None}
            answer["gradients"] = ArrayRecord(shared)
        answer["metrics"] = MetricRecord({"num-examples": len(labels)})
        return Message(content=answer, reply_to=message)

    return app


def split_server_app(
    model: Model,
    at: str,
    steps: int,
    *,
    down: str = "ems:bpe=3.0",
    lr: float = 0.1,
    told: Callable[[int, float, int, int], None] = lambda step, loss, sent, raw: None,
) -> Any:
    """The app of the server. `told` gets step, mean loss, bytes of smashed data, and these as float32."""
    app = ServerApp()

    @app.main()
    def main(grid: Any, context: Any) -> None:
        client, server = cut(model(), at)
        trained = [*client.parameters(), *server.parameters()]
        optimizer = torch.optim.SGD(trained, lr=lr, momentum=0.9)
        nodes = sorted(_nodes(grid))
        for number in range(steps):
            weights = ArrayRecord(client.state_dict())
            replies = _ask(grid, {node: {"step": number} for node in nodes}, weights)
            optimizer.zero_grad()
            losses, sent, raw, gradients = [], 0, 0, {}
            for node, content in replies.items():
                frame, labels = content["smashed"]["frame"], content["smashed"]["labels"]
                smashed = decode(frame, max_elements=_LARGEST).requires_grad_()
                if len(labels) != len(smashed):
                    raise MessageError(f"node {node} sent {len(smashed)} samples and {len(labels)} labels")
                loss = F.cross_entropy(server(smashed), torch.tensor(labels)) / len(replies)
                torch.autograd.backward(loss)
                losses.append(float(loss.detach()))
                sent, raw = sent + len(frame), raw + 4 * smashed.numel()
                back = codec(down).encode(smashed.grad, seed=mix(node, number))
                gradients[node] = {"step": number, "gradient": back}
            shares = _ask(grid, gradients, weights)
            _apply(client, (content["gradients"].to_torch_state_dict() for content in shares.values()))
            optimizer.step()
            told(number, sum(losses), sent, raw)

    return app


def _apply(client: nn.Module, shares: Iterable[dict[str, Tensor]]) -> None:
    """Add what nodes share. Their losses are weighted already, so it is a sum."""
    named = dict(client.named_parameters())
    for share in shares:
        for name, gradient in share.items():
            if name not in named or gradient.shape != named[name].shape:
                raise MessageError(f"a node shared a gradient of {name!r}, which does not fit the model")
            parameter = named[name]
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient


def _ask(grid: Any, asked: dict[int, dict[str, Any]], weights: Any) -> dict[int, Any]:
    """Ask every node; their answers by node, in the order of nodes. One that failed is an error."""
    messages = [
        Message(
            content=RecordDict({"ask": ConfigRecord(about), "weights": weights}),
            message_type=MessageType.TRAIN,
            dst_node_id=node,
        )
        for node, about in asked.items()
    ]
    found = {}
    for reply in grid.send_and_receive(messages):
        if reply.has_error():
            raise MessageError(f"node {reply.metadata.src_node_id} failed: {reply.error.reason}")
        found[reply.metadata.src_node_id] = reply.content
    return dict(sorted(found.items()))


def _nodes(grid: Any) -> list[int]:
    """The nodes, as soon as there are some."""
    while not (nodes := list(grid.get_node_ids())):
        time.sleep(0.1)
    return nodes
