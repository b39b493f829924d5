"""Split inference over real sockets: what the device gets is what the whole model says."""

import csv
import io
import json
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
import torch

import cutlayer
from cutlayer.errors import ConfigError, CredentialError, DataError, FileError, RefusedError, UnreachableError
from cutlayer.inference import server
from cutlayer.inference.batcher import Batching
from cutlayer.inference.client_half import ClientSide
from cutlayer.inference.predict import Predictor
from cutlayer.inference.remote_model import RemoteModel
from cutlayer.inference.service import PREDICT
from cutlayer.training import checkpoint
from cutlayer.training.load_run import open_run
from cutlayer.wire.messages.protobuf import message_class
from cutlayer.wire.security import certs, tokens
from cutlayer.wire.security.credentials import ClientSecurity, ServerSecurity
from tests.samples import images


@pytest.mark.parametrize("which", ["trained", "u_shaped"])
def test_many_clients_at_once_get_what_the_whole_model_says(served, request, which) -> None:
    folder = request.getfixturevalue(which)
    pieces = torch.split(images(96), 8)
    local = Predictor(open_run(folder))
    expected = [local.logits(piece) for piece in pieces]
    with served(folder, batching=Batching(samples=32, wait=0.05)) as (address, server):
        models = [RemoteModel(address, folder) for _ in range(3)]
        with ThreadPoolExecutor(12) as pool:
            found = list(pool.map(lambda n: models[n % 3](pieces[n]), range(len(pieces))))
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
        assert server.batcher.passes < len(pieces)  # they shared passes
        assert sum(model.bytes for model in models) == local.bytes
        for model in models:
            model.close()


def test_alone_it_is_the_same_to_the_bit(served, trained) -> None:
    local = Predictor(open_run(trained))
    with served(trained) as (address, _), RemoteModel(address, trained, batch=10) as model:
        pieces = torch.split(images(35), 10)
        expected = torch.cat([local.logits(piece) for piece in pieces])
        # One request after another, so that no two share a pass.
        assert torch.equal(torch.cat([model(piece) for piece in pieces]), expected)
        torch.testing.assert_close(model(images(35)), expected)


@pytest.mark.parametrize("which", ["trained", "u_shaped"])
def test_the_exported_half_is_all_that_a_device_needs(served, run, request, which, tmp_path) -> None:
    folder = request.getfixturevalue(which)
    half = tmp_path / "device.safetensors"
    assert run("export", folder, "--part", "client", "--out", half).exit_code == 0
    assert ClientSide.load(half).digest == ClientSide.load(folder).digest
    with served(folder) as (address, _):
        words = ["--data", "digits", "--limit", 40]
        remote = run("predict", half, *words, "--server", address)
        local = run("predict", folder, *words)
        rows = [list(csv.DictReader(io.StringIO(result.stdout))) for result in (remote, local)]
        assert [row["label"] for row in rows[0]] == [row["label"] for row in rows[1]]
        assert len(rows[0]) == 40
        assert "over the cut" in remote.stderr
        assert isinstance(run("predict", half, "--server", address).exception, ConfigError)
    assert isinstance(run("predict", half, *words).exception, FileError)


def test_halves_that_do_not_belong_together(served, run, trained, tmp_path) -> None:
    half = tmp_path / "old.safetensors"
    first, *_, last = checkpoint.steps(trained / "checkpoints")
    assert first < last
    assert run("export", trained, "--part", "client", "--checkpoint", first, "--out", half).exit_code == 0
    refused = pytest.raises(RefusedError, match="another run or checkpoint")
    with served(trained) as (address, _), RemoteModel(address, half) as model, refused:
        model(images(1))
    whole = tmp_path / "whole.safetensors"
    assert run("export", trained, "--out", whole).exit_code == 0
    with pytest.raises(FileError, match="--part client"):
        ClientSide.load(whole)
    whole.write_bytes(b"nonsense")
    with pytest.raises(FileError, match="cutlayer export"):
        ClientSide.load(whole)


def test_what_no_honest_client_sends_is_refused_and_disturbs_nobody(served, trained) -> None:
    with served(trained, batching=Batching(samples=16)) as (address, server):
        shape = server.side.forms
        good = cutlayer.codec("dense").encode(torch.zeros(2, *shape))
        damaged = good[:-1] + bytes([good[-1] ^ 1])
        cases = {
            b"": "INVALID_ARGUMENT",
            b"nonsense": "INVALID_ARGUMENT",
            damaged: "INVALID_ARGUMENT",
            cutlayer.codec("dense").encode(torch.zeros(2, 3)): "INVALID_ARGUMENT",
            cutlayer.codec("dense").encode(torch.zeros(17, *shape)): "INVALID_ARGUMENT",
            cutlayer.codec("dense").encode(torch.zeros(2, *shape).double()): "INVALID_ARGUMENT",
            # A few bytes that claim a billion elements: refused before memory is taken.
            cutlayer.codec("sp:ratio=0.999999").encode(torch.ones(1 << 20, 8)): "INVALID_ARGUMENT",
            b"x" * (1 << 22): "RESOURCE_EXHAUSTED",  # more than a full batch can have
        }
        with grpc.insecure_channel(address) as channel:
            call = channel.unary_unary(
                PREDICT,
                message_class("PredictRequest").SerializeToString,
                message_class("PredictReply").FromString,
            )
            for frame, code in cases.items():
                with pytest.raises(grpc.RpcError) as caught:
                    call(message_class("PredictRequest")(frame=frame), timeout=30)
                assert caught.value.code().name == code, (frame[:20], caught.value.details())
            with pytest.raises(grpc.RpcError, match="a damaged request"):
                channel.unary_unary(PREDICT)(b"\xff\xff\xff", timeout=30)  # not even protobuf
            reply = call(message_class("PredictRequest")(frame=good), timeout=30)
            assert cutlayer.decode(reply.frame).shape == (2, 10)
        assert 'refusals_total{reason="request"} 8.0' in server.metrics.text()
        counted = f'bytes_total{{direction="up",kind="smashed"}} {float(len(good))}'
        assert counted in server.metrics.text()


def test_only_those_with_a_token_and_over_tls(served, trained, tmp_path) -> None:
    certs.make_ca(tmp_path)
    certs.make_server(tmp_path, ["127.0.0.1"])
    tokens.make(tmp_path, ["camera"])
    security = ServerSecurity.load(
        tmp_path / "server.pem", tmp_path / "server.key", tokens=tmp_path / "tokens.txt"
    )
    with served(trained, security=security) as (address, _):
        known = ClientSecurity.load(ca=tmp_path / "ca.pem", token_file=tmp_path / "camera.token")
        with RemoteModel(address, trained, known) as model:
            assert model(images(3)).shape == (3, 10)
        for stranger, message in (
            (ClientSecurity(known.ca), "--token-file"),
            (ClientSecurity(known.ca, token="cutlayer-" + "x" * 43), "does not know this token"),
            (ClientSecurity(token=known.token), "give --ca"),
        ):
            with (
                RemoteModel(address, trained, stranger) as model,
                pytest.raises(CredentialError, match=message),
            ):
                model(images(1))
    with (
        RemoteModel(address, trained, known, retry=0.2) as model,
        pytest.raises(UnreachableError, match="nobody listens"),
    ):
        model(images(1))


def test_the_command_serves_until_it_is_told_to_stop(run, trained) -> None:
    words = ["serve-inference", trained, "--listen", "127.0.0.1:0"]
    program = [sys.executable, "-c", "from cutlayer.cli import main; main()", *map(str, words)]
    with subprocess.Popen(
        program, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    ) as process:
        try:
            line = process.stderr.readline()
            assert "serving small" in line, line
            address = line.split(" on ")[1].split(";")[0]
            result = run("predict", trained, "--limit", 5, "--server", address, "--out", trained / "p.jsonl")
            assert result.exit_code == 0, result.output
            rows = [json.loads(x) for x in (trained / "p.jsonl").read_text().splitlines()]
            assert len(rows) == 5
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
            (trained / "p.jsonl").unlink(missing_ok=True)


def test_mistakes_on_the_command_line_are_named(run, trained, tmp_path) -> None:
    assert run("serve-inference").exit_code == 2
    assert isinstance(run("serve-inference", tmp_path).exception, FileError)
    beyond = ["--listen", "0.0.0.0:0"]
    assert isinstance(run("serve-inference", trained, *beyond).exception, CredentialError)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        result = run("serve-inference", trained, "--listen", where)
        assert isinstance(result.exception, UnreachableError)
    assert isinstance(run("predict", trained, "--server", "nonsense").exception, UnreachableError)
    assert isinstance(run("predict", trained, "--ca", tmp_path).exception, ConfigError)


def test_models_with_several_inputs_on_the_command_line(
    served, run, several_nets, tmp_path, monkeypatch
) -> None:
    ids = torch.arange(120).reshape(40, 3) % 5
    arrays = {"x/ids": ids.numpy(), "x/values": torch.linspace(-1, 1, 120).reshape(40, 3).numpy()}
    np.savez(tmp_path / "two.npz", y=(ids[:, 0] % 2).numpy(), **arrays)
    folder, half, data = (tmp_path / name for name in ("run", "device.safetensors", "two.npz"))
    words = ["--data", data, "--model", "several_nets:TwoInputs", "--cut", "mix", "--codec", "qu:bits=8"]
    words += ["--clients", 2, "--epochs", 1, "--threads", 1, "--out", folder, "--quiet"]
    assert run("train", *words).exit_code == 0
    local = run("predict", folder, "--split", "train")
    assert len(local.stdout.splitlines()) == 1 + 36
    asked = []
    monkeypatch.setattr(server, "serve_inference", lambda trained, serving: asked.append((trained, serving)))
    assert run("serve-inference", folder, "--listen", "127.0.0.1:0", "--max-batch", 64).exit_code == 0
    ((trained, serving),) = asked
    assert run("export", folder, "--part", "client", "--out", half).exit_code == 0
    with served(trained, batching=serving.batching) as (address, _):
        common = ["--split", "train", "--server", address]
        allow = ["--data", data, "--allow-model", "several_nets:TwoInputs"]
        for remote in (run("predict", folder, *common), run("predict", half, *common, *allow)):
            found, expected = (list(csv.DictReader(io.StringIO(result.stdout))) for result in (remote, local))
            assert [row["label"] for row in found] == [row["label"] for row in expected]
            assert "over the cut" in remote.stderr
        np.savez(tmp_path / "one.npz", y=ids[:, 0].numpy() % 2, **{"x/ids": arrays["x/ids"]})
        refused = run("predict", folder, "--data", tmp_path / "one.npz", "--server", address).exception
        assert isinstance(refused, DataError)
        assert "a dict of ids: int64 [3], but the model takes a dict of ids" in str(refused)
