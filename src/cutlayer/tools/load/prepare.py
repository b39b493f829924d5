"""What light clients say, made once: the frames of one batch, and shares and states of the right sizes.

A real client's half is built and run here, once, on a batch of real data. So frames have the sizes that the
run's codecs give them. The light clients then send the same bytes again and again.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cutlayer.codecs import Codec, codec
from cutlayer.data import Augment, load_both
from cutlayer.data.federated import FederatedData
from cutlayer.errors import ConfigError
from cutlayer.protocol.build import load_settings, make_client, make_codecs, make_task, prepare_model
from cutlayer.protocol.handshake import config_from_offer, describe
from cutlayer.protocol.run_codecs import RunCodecs
from cutlayer.protocol.state_bytes import to_bytes
from cutlayer.split.client import ClientHalf
from cutlayer.split.state import client_state
from cutlayer.split.tensors import flat
from cutlayer.tools.load.answers import Prepared
from cutlayer.wire.messages.types import GRADIENTS, Share


def prepare(
    offer: Any, data: str, root: str, *, steps: int, up: str | None = None, frame_bytes: int | None = None
) -> Prepared:
    """Make what clients of the offered run say, who have data like these for `steps` batches an epoch.

    `up` is another codec of smashed data than the run's, `frame_bytes` about how large its frames are to be.
    """
    config = config_from_offer(offer.settings, {"source": data, "root": root})
    if config.train.mode == "u-shaped" or config.train.aggregation != "server":
        raise ConfigError(
            "the load generator has no tail of a model and exchanges nothing between clients; start the "
            "server with mode parallel, sequential or relay, and train.aggregation = server"
        )
    if config.codec.memory != "none":
        raise ConfigError(
            "codec.memory: the load generator's clients send one batch again and again and remember nothing; "
            "start the server without it"
        )
    train, test = load_both(data, root=root, limit=config.data.limit, **load_settings(config))
    augment = Augment.of(train, config.data.augment)
    whole = FederatedData(train, test, augment, (torch.arange(len(train)),))
    batch, test_batch = config.train.batch_size, min(config.train.evaluate_batch, config.train.batch_size)
    ready = describe(whole, 0, offer.settings)
    ready.samples, ready.test_samples = batch * steps, test_batch
    half = make_client(config, prepare_model(config, train)[1])
    codecs = make_codecs(config)

    def frames(size: int) -> tuple[bytes, bytes]:
        inputs, targets = train.batch(torch.arange(size) % len(train))
        smashed = half.forward(augment.test(inputs))
        chosen = codecs
        if frame_bytes is not None and size == batch:
            chosen = replace(codecs, up=_codec_for(frame_bytes, flat(smashed)))
        elif up is not None:
            chosen = replace(codecs, up=codec(up))
        task = make_task(config, train)
        return chosen.encode(chosen.up, smashed, "up", 0, 0, 0), task.pack(targets)

    frame, labels = frames(batch)
    return Prepared(
        ready=ready.SerializeToString(),
        frame=frame,
        labels=labels,
        batch=batch,
        test=(*frames(test_batch), test_batch),
        shares={int(share): _share(half, codecs, share) for share in Share},
        state=to_bytes(client_state(half)),
        own_state=to_bytes({}),
    )


def _codec_for(frame_bytes: int, x: Tensor) -> Codec:
    """A codec whose frames of this tensor have about so many bytes: found by bisection."""
    dense = codec("dense")
    most = len(dense.encode(x))
    if frame_bytes > most:
        raise ConfigError(
            f"frames of this run have {most:,} bytes at most; for larger ones give the server a larger "
            "--batch, or another cut"
        )
    low, high = 0.02, 16.0
    found = {most: dense}
    for _ in range(12):
        middle = codec(f"ems:bpe={(low * high) ** 0.5:.4f}")
        size = len(middle.encode(x))
        found[size] = middle
        low, high = ((low * high) ** 0.5, high) if size < frame_bytes else (low, (low * high) ** 0.5)
    return found[min(found, key=lambda size: abs(size - frame_bytes))]


def _share(half: ClientHalf, codecs: RunCodecs, share: Share) -> tuple[bytes, int]:
    sizes = (half.weight_vector(), half.buffer_vector())
    vector, buffers = (
        tensor[: tensor.numel() * bool(n)]
        for tensor, n in zip(sizes, replace(codecs, vector_sizes=(1, 1)).elements(share), strict=True)
    )
    if share in GRADIENTS or share == Share.DIFFERENCES:
        vector = 1e-6 * torch.ones_like(vector)  # the model stays about as it is
    first = codecs.encode(codecs.sync, vector, "sync-up", 0, 0, 0) if vector.numel() else b""
    return first + codecs.plain(buffers), len(first)
