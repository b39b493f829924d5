import math
import resource
from collections.abc import Callable

import pytest
import torch

import cutlayer
from cutlayer.codecs import inspect
from cutlayer.config.schema import Config
from cutlayer.errors import DataError, DivergedError, MessageError, ParameterError
from cutlayer.training.local_run import LocalRun, local_run
from cutlayer.wire.messages.base import Message
from cutlayer.wire.messages.types import BeginStep, Gradient, Labels, Share, Smashed, SyncDown, SyncUp

Start = Callable[..., LocalRun]
U = ["train.mode=u-shaped", 'model.cut=["layer1", "fc"]']
MODES = {
    "parallel": [],
    "fused": ["train.server_batching=fused"],
    "sequential": ["train.mode=sequential"],
    "relay": ["train.mode=relay", "train.sync=2"],
    "u-shaped": U,
    "u-shaped fused": [*U, "train.server_batching=fused"],
    "sync 3": ["train.sync=3"],
    "sync epoch": ["train.sync=epoch", "train.optimizer=adamw", "train.lr=0.01"],
    "channels last": ["model.layout=channels_last"],
}
RANDOM = ["codec.up=rt:ratio=0.8", "codec.down=qu:bits=6,rounding=stochastic", "codec.sync=qu:bits=8"]


def snapshot(session: LocalRun) -> dict[str, torch.Tensor]:
    return {name: t.clone() for name, t in session.state()[0].items()}


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for name, tensor in a.items():
        assert torch.equal(tensor, b[name]), name


@pytest.mark.parametrize("mode", MODES)
def test_a_session_goes_on_exactly_from_its_state(start: Start, mode: str) -> None:
    settings = [*MODES[mode], *RANDOM, "data.partition=dirichlet:alpha=1", "data.limit=100"]
    whole, first = start(*settings), start(*settings)
    torch.manual_seed(1)
    losses = [whole.step().losses for _ in range(whole.server.plan.total)]
    torch.manual_seed(2)  # the global random state has no say
    stop = whole.server.plan.steps_per_epoch + 2
    for _ in range(stop):
        first.step()
    first.evaluate()  # changes nothing
    tensors, state = first.state()
    second = start(*settings)
    second.step()  # what was there before does not matter
    second.restore({name: t.clone() for name, t in tensors.items()}, state)
    assert [second.step().losses for _ in range(stop, whole.server.plan.total)] == losses[stop:]
    equal(snapshot(whole), snapshot(second))
    assert whole.meter.state() == second.meter.state()
    scored, again = whole.evaluate(), second.evaluate()
    assert (scored.loss, scored.metrics, scored.bytes) == (again.loss, again.metrics, again.bytes)


def test_dropout_depends_only_on_the_place_in_the_run(start: Start, plain_model: str) -> None:
    settings = ["model.name=plain_nets:dropping", "model.cut=4"]
    whole, first = start(*settings), start(*settings)
    losses = [whole.step().loss for _ in range(6)]
    for _ in range(3):
        first.step()
    torch.rand(17)
    second = start(*settings)
    second.restore(*first.state())
    assert [second.step().loss for _ in range(3)] == losses[3:]


@pytest.mark.parametrize("mode", MODES)
def test_every_byte_is_counted_once(start: Start, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from cutlayer.wire import loopback

    frames: dict[str, int] = {}
    plain: dict[str, int] = {}
    real = loopback.parse

    def watch(head: bytes, body: bytes) -> Message:
        message = real(head, body)
        pieces = message.frames if isinstance(message, SyncUp) else (message.content,)
        if isinstance(message, Smashed | Gradient | SyncUp):
            for piece in filter(None, pieces):
                info = inspect(piece)
                assert info.header_bytes + info.payload_bytes == len(piece)
                if isinstance(message, SyncUp):
                    key = "down/sync" if isinstance(message, SyncDown) else "up/sync"
                    plain[key] = plain.get(key, 0) + 4 * math.prod(info.shape)
        frames[message.kind] = frames.get(message.kind, 0) + (len(message.content) or len(head))
        return message

    monkeypatch.setattr(loopback, "parse", watch)
    session = start(*MODES[mode], "codec.up=ms:ratio=0.9", "codec.sync=qu:bits=8", "data.limit=60")
    results = [session.step() for _ in range(session.server.plan.total)]
    counted = session.meter.snapshot()
    for kind in ("smashed", "labels", "gradients", "sync", "control"):
        assert counted[f"up/{kind}"] + counted[f"down/{kind}"] == frames.get(kind, 0)
    for key in counted:
        assert sum(result.bytes[key] for result in results) == counted[key]
    for key in ("up/sync", "down/sync"):
        assert sum(result.raw_bytes.get(key, 0) for result in results) == plain[key]
    labelled = "u-shaped" not in mode
    assert (counted["up/labels"] > 0) == labelled
    assert counted["up/smashed"] < sum(o.raw_bytes["up/smashed"] for o in results) / 4


@pytest.mark.parametrize("mode", MODES)
def test_gradients_come_down_under_their_codec(
    start: Start, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a U-shape `down` also carries activations. The server's own backward pass stays exact."""
    session = start(*MODES[mode], "codec.down=ms:ratio=0.9,rounding=nearest", "data.limit=60")
    kinds = []
    send = session.server.transport.send

    def watch(client: int, message: Message) -> None:
        if isinstance(message, Smashed | Gradient):
            kinds.append((type(message), str(inspect(message.body).codec).partition(":")[0]))
        send(client, message)

    monkeypatch.setattr(session.server.transport, "send", watch)
    result = session.step()
    assert {name for _, name in kinds} == {"ms"}
    assert {kind for kind, _ in kinds} == ({Smashed, Gradient} if "u-shaped" in mode else {Gradient})
    assert 4 * result.bytes["down/gradients"] < result.raw_bytes["down/gradients"]
    assert math.isfinite(session.step().loss if session.number < session.server.plan.total else result.loss)


def test_control_messages_are_small(start: Start) -> None:
    """A step costs a client 26 bytes down (BeginStep), 41 up (Report), and 4 for 8 labels of 10 classes."""
    session = start()
    sent = session.step().bytes
    clients = len(session.clients.halves)
    assert (sent["down/control"], sent["up/control"]) == (26 * clients, 41 * clients)
    assert sent["up/labels"] == 4 * clients


def test_labels_never_leave_the_client_in_a_u_shape(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    session = start(*U)
    seen = []
    handle = session.server.transport.receive
    monkeypatch.setattr(
        session.server.transport, "receive", lambda client: seen.append(handle(client)) or seen[-1]
    )
    for _ in range(3):
        session.step()
    session.evaluate()
    assert seen
    assert not any(isinstance(message, Labels) for message in seen)


@pytest.mark.parametrize("sync", ["step", "2"])
def test_a_client_half_without_weights(start: Start, plain_model: str, sync: str) -> None:
    session = start("model.name=plain_nets:dropping", "model.cut=0", f"train.sync={sync}")
    for _ in range(4):
        assert session.step().loss > 0
    other = start("model.name=plain_nets:dropping", "model.cut=0", f"train.sync={sync}")
    other.restore(*session.state())
    assert other.step().loss == session.step().loss
    assert session.evaluate().samples == len(session.data.test)


def test_the_same_seed_gives_the_same_run(start: Start) -> None:
    first, second, other = (start(*RANDOM, f"seed={seed}") for seed in (5, 5, 6))
    losses = [[session.step().loss for _ in range(5)] for session in (first, second, other)]
    assert losses[0] == losses[1] != losses[2]


def test_compression_error_is_measured(start: Start) -> None:
    assert start().step().error == 0.0
    assert 0 < start("codec.up=ms:ratio=0.9").step().error < 1
    assert math.isnan(start("codec.up=ms:ratio=0.9", "codec.measure=false").step().error)


@pytest.mark.parametrize("mode", MODES)
def test_evaluation_is_the_whole_model_on_the_test_set(start: Start, mode: str) -> None:
    session = start(*MODES[mode], "train.evaluate_batch=100")
    for _ in range(5):
        session.step()
    before = snapshot(session)
    counted = session.meter.snapshot()
    scored = session.evaluate()
    equal(before, snapshot(session))
    assert session.meter.snapshot() == counted
    test = session.data.test
    with torch.no_grad():
        logits = session.model()(session.data.augment.test(test.images))
    assert scored.samples == len(test)
    assert scored.loss == pytest.approx(
        float(torch.nn.functional.cross_entropy(logits, test.labels)), rel=1e-4
    )
    right = float((logits.argmax(1) == test.labels).float().mean())
    assert scored.metrics["accuracy"] == pytest.approx(right, abs=0.02)
    assert scored.metrics["accuracy"] <= scored.metrics["accuracy_top5"] <= 1


def test_batch_norm_statistics_are_averaged_for_evaluation(start: Start) -> None:
    session = start("data.partition=shard:shards=1")
    for _ in range(3):
        session.step()
    name = "layer1.bn.running_mean"
    place = session.clients.halves[0].model.buffer_names.index(name)
    own = torch.stack([half.buffers[place] for half in session.clients.halves])
    assert not torch.allclose(own[0], own[1])
    torch.testing.assert_close(session.model().get_buffer(name), own.mean(0))


def test_a_diverging_run_says_at_which_step(start: Start) -> None:
    session = start("train.lr=1e30", "train.momentum=0")
    with pytest.raises(DivergedError, match="training diverged at step ") as caught:
        [session.step() for _ in range(10)]
    assert caught.value.step == session.number
    assert f"step {session.number + 1}" in str(caught.value)


def test_a_codec_that_cannot_carry_the_tensor(start: Start) -> None:
    with pytest.raises((ParameterError, DataError, ValueError)):
        start("codec.up=ms:bits=0")


def test_clients_refuse_messages_out_of_place(start: Start) -> None:
    session = start()
    client = session.server.transport._clients[1]
    with pytest.raises(MessageError, match="not the step in progress"):
        client(Gradient(0, b""))
    with pytest.raises(MessageError, match="no use for a Labels"):
        client(Labels(0, b"", 0))
    with pytest.raises(MessageError, match="no test set"):
        client(SyncDown(0, b"", Share.BUFFERS, 0, 0.0, True))
    list(client(BeginStep(0, 0, 0, 0.1, Share.GRADIENTS)))
    with pytest.raises(MessageError, match="not the step in progress"):
        client(Gradient(1, b""))


def test_the_server_believes_no_client(start: Start) -> None:
    def replaced(change: Callable[[Message], Message]) -> LocalRun:
        session = start()
        real = session.server.transport.receive
        session.server.transport.receive = lambda client: change(real(client))  # type: ignore[method-assign]
        return session

    small = cutlayer.codec("dense").encode(torch.zeros(3, 4, 4, 4))
    for change, complaint in (
        (lambda m: Smashed(m.number, small) if isinstance(m, Smashed) else m, "its batch of step 0 has 8"),
        (lambda m: Labels(m.number, b"", 0) if isinstance(m, Labels) else m, "0 labels for 8 samples"),
        (lambda m: Labels(m.number, b"\xff" * 4, 8) if isinstance(m, Labels) else m, "classes 0 to 9"),
        (lambda m: Gradient(m.number, b"") if isinstance(m, Smashed) else m, "expected a Smashed of step 0"),
        (lambda m: Smashed(7, m.content) if isinstance(m, Smashed) else m, "of step 7; expected"),
    ):
        with pytest.raises(MessageError, match=complaint):
            replaced(change).step()


def test_repeated_means_are_harmless(start: Start) -> None:
    session = start()
    sent = []
    real = session.server.transport.send

    def send(client: int, message: Message) -> None:
        sent.append((client, message))
        real(client, message)

    session.server.transport.send = send  # type: ignore[method-assign]
    session.step()
    before = snapshot(session)
    for client, message in sent:
        if isinstance(message, SyncDown):
            real(client, message)
    equal(before, snapshot(session))


def test_a_thousand_clients_share_one_model(configure: Callable[..., Config]) -> None:
    config = configure("train.clients=1000", "train.batch_size=1", "data.limit=1400", "train.epochs=1")
    session = local_run(config)
    assert len({id(half.model) for half in session.clients.halves}) == 1
    session.step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = session.step()
    assert len(result.losses) == sum(1 for part in session.data.parts if len(part) > 1)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 50_000  # kilobytes: a step leaves nothing behind
    tensors, _ = session.state()
    own = tensors["clients.buffers"]
    assert own.shape[0] == 1000
    # Beyond the one model: per client its batch-norm buffers, nothing else.
    assert sum(t.numel() for t in tensors.values()) - own.numel() < 20_000
    assert session.evaluate().samples == len(session.data.test)


def test_the_layout_changes_speed_and_rounding_only(start: Start) -> None:
    first, last = start(), start("model.layout=channels_last")
    weights = [p for p in last.server.half.parameters if p.dim() == 4 and p.shape[1] > 1]
    assert weights
    assert all(p.is_contiguous(memory_format=torch.channels_last) for p in weights)
    for _ in range(3):
        assert last.step().loss == pytest.approx(first.step().loss, rel=1e-4)
