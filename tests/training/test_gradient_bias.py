import pytest
import torch

from cutlayer.training.load_run import open_run
from cutlayer.training.records import read
from cutlayer.training.train import train

COMMON = ["codec.up=sp:ratio=0.9", "train.epochs=1", "data.limit=90"]


def steps(config):
    return [r for r in read(f"{config.output.dir}/records.jsonl") if r["kind"] == "step"]


def both(configure, tmp_path, *overrides):
    """The same run without and with tracking."""
    plain = configure(*COMMON, *overrides, f"output.dir={tmp_path / 'plain'}")
    tracked = configure(*COMMON, *overrides, f"output.dir={tmp_path / 'tracked'}", "train.track_bias=3")
    train(plain)
    train(tracked)
    return plain, tracked


def check_same_training(plain, tracked):
    first, second = (open_run(c.output.dir).model.state_dict() for c in (plain, tracked))
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name
    assert [r["loss"] for r in steps(plain)] == [r["loss"] for r in steps(tracked)]
    assert [r["bytes"] for r in steps(plain)] == [r["bytes"] for r in steps(tracked)]


def test_tracking_changes_no_weight_and_no_record(configure, tmp_path):
    plain, tracked = both(configure, tmp_path)
    check_same_training(plain, tracked)
    found = steps(tracked)
    assert [r["global_step"] for r in found if "bias" in r] == list(range(1, len(found) + 1, 3))
    assert not any("bias" in r for r in steps(plain))
    bias = found[0]["bias"]
    assert bias["compression_error"] > 0
    assert bias["relative"] > 0
    assert -1 <= bias["cosine"] < 1
    squares = bias["client"]["norm"] ** 2 + bias["server"]["norm"] ** 2
    assert squares == pytest.approx(bias["norm"] ** 2)


def test_random_codecs_and_dropout_are_not_disturbed(configure, tmp_path, plain_model):
    words = ["model.name=plain_nets:dropping", "model.cut=4", "codec.up=rt:ratio=0.9"]
    check_same_training(*both(configure, tmp_path, *words))


def test_every_mode_can_be_tracked(configure, tmp_path):
    for mode in ("sequential", "relay"):
        check_same_training(*both(configure, tmp_path / mode, f"train.mode={mode}"))
    words = ["train.mode=u-shaped", 'model.cut=["layer1", "fc"]', "codec.down=qu:bits=4"]
    plain, tracked = both(configure, tmp_path / "u", *words)
    check_same_training(plain, tracked)
    assert steps(tracked)[0]["bias"]["relative"] > 0


def test_a_run_without_compression_has_no_bias(configure, tmp_path):
    config = configure("train.epochs=1", "train.track_bias=5", "data.limit=60")
    train(config)
    bias = steps(config)[0]["bias"]
    assert bias["relative"] == bias["compression_error"] == bias["inner"] == 0
    assert abs(bias["cosine"] - 1) < 1e-9


def movement(before, after):
    return torch.cat([(a - b.detach()).flatten().double() for a, b in zip(before, after, strict=True)])


def test_the_tracked_gradient_is_the_one_that_training_applies(configure, start):
    """With plain SGD, one step moves the weights by the learning rate times the compressed gradient."""
    from cutlayer.training.gradient_bias import track_bias

    session = start("codec.up=ms:ratio=0.9", "train.momentum=0", "train.weight_decay=0", "train.clients=1")
    parameters = session.clients.halves[0].model.parameters + session.server.half.parameters
    before = [p.detach().clone() for p in parameters]
    bias = track_bias(session)
    lr = session.server.plan.at(0).lr
    session.step()
    moved = movement(before, parameters) / lr
    again = start("train.momentum=0", "train.weight_decay=0", "train.clients=1")
    again.step()
    exact = again.clients.halves[0].model.parameters + again.server.half.parameters
    true = movement(before, exact) / lr
    assert float((moved - true).norm()) == pytest.approx(bias["norm"], rel=1e-3)
    assert float(true @ moved / true.norm() / moved.norm()) == pytest.approx(bias["cosine"], rel=1e-4)
