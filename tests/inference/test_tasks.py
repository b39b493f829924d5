"""Trained models of other tasks than classification: opened, used whole, and served."""

from collections.abc import Callable

import torch

from cutlayer.config.schema import Config
from cutlayer.data import ArrayDataset
from cutlayer.inference.predict import Predictor
from cutlayer.inference.server import ServerSide
from cutlayer.protocol.build import federate
from cutlayer.training.load_run import open_run
from cutlayer.training.train import train


def test_a_language_model_is_used_without_its_text(configure: Callable[..., Config]) -> None:
    tokens = (torch.arange(9) + torch.arange(20)[:, None]) % 5
    data = ArrayDataset(tokens[:, :-1], tokens[:, 1:], classes=5, tokens=5)
    config = configure(
        "model.name=gpt", "model.blocks=2", "model.heads=2", "train.epochs=1", "model.cut=shallow"
    )
    result = train(config, data=federate(config, data, data))
    trained = open_run(result.directory)
    inputs = tokens[:3, :-1]
    logits = Predictor(trained).logits(inputs)
    assert logits.shape == (3, 8, 5)
    torch.testing.assert_close(logits, trained.model(inputs).detach())
    side = ServerSide(trained, 4)
    assert side.forms == (8, 4)
