"""Memories of samples over gRPC: the run in one process to the bit, also when the server was stopped."""

import threading
from pathlib import Path
from typing import Any

import torch
from torch import nn

import cutlayer
from cutlayer.wire.grpc.server import Listening


def test_memories_over_the_network(model: nn.Module, problem: dict[str, Any], tmp_path: Path) -> None:
    problem |= {"settings": {"codec.memory": "aqsgd:change=qu:bits=4", "codec.commitment": 0.01}, "epochs": 3}
    alone = cutlayer.train(model, **problem)
    train, test = problem.pop("train"), problem.pop("test")
    port: list[int] = []
    listening, found, steps = threading.Event(), [], []

    def ready(number: int) -> None:
        port.append(number)
        listening.set()

    def watch(event: cutlayer.Event) -> None:
        if event.kind == "step":
            steps.append(event)
            if len(steps) == 8:  # in the second epoch: some samples are known, and some twice
                event.stop()

    def serve() -> None:
        for resume in (False, True):
            where = Listening(f"127.0.0.1:{port[0] if resume else 0}", ready=ready)
            out = tmp_path / "run"
            found.append(
                cutlayer.serve(model, **problem, out=out, resume=resume, listening=where, callbacks=[watch])
            )

    joins = {"model": model, "whole": True, "retry": 30}
    threads = [threading.Thread(target=serve, daemon=True)]
    threads[0].start()
    assert listening.wait(60)
    for client in range(2):
        args = (f"127.0.0.1:{port[0]}", train, test)
        kwargs = joins | {"client": client}
        threads.append(threading.Thread(target=cutlayer.join, args=args, kwargs=kwargs, daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    stopped, result = found
    assert (stopped.steps, result.steps) == (8, alone.steps)
    weights = zip(result.model.state_dict().values(), alone.model.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in weights)
    assert result.bytes == alone.bytes
