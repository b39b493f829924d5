"""A run over the network from Python, with a model and data written here, is the run in one process."""

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import cutlayer
from cutlayer.errors import ModelError
from cutlayer.wire.grpc.server import Listening


def test_objects_over_the_network(model: nn.Module, problem: dict[str, Any], tmp_path: Path) -> None:
    alone = cutlayer.train(model, **problem)
    train, test = problem.pop("train"), problem.pop("test")
    port: list[int] = []
    listening, found, seen = threading.Event(), [], []

    def ready(number: int) -> None:
        port.append(number)
        listening.set()

    def watch(event: cutlayer.Event) -> None:
        seen.append(event.kind)
        if len(seen) == 4:
            event.stop()

    def serve() -> None:
        """Stopped by a callback, and started again, with clients that wait for it."""
        for resume in (False, True):
            where = Listening(f"127.0.0.1:{port[0] if resume else 0}", ready=ready)
            kept = tmp_path / "run"
            found.append(
                cutlayer.serve(model, **problem, out=kept, resume=resume, listening=where, callbacks=[watch])
            )

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    assert listening.wait(60)
    where = f"127.0.0.1:{port[0]}"
    with pytest.raises(ModelError, match="Python object"):
        cutlayer.join(where, train, test, whole=True, client=0)
    joined = [
        threading.Thread(
            target=cutlayer.join,
            args=(where, train, test),
            kwargs={"model": model, "whole": True, "client": client, "retry": 30},
            daemon=True,
        )
        for client in range(2)
    ]
    for thread in joined:
        thread.start()
    for thread in [*joined, server]:
        thread.join(30)
        assert not thread.is_alive()
    stopped, result = found
    assert (stopped.stopped, stopped.steps, result.stopped) == (True, 4, False)
    weights = zip(result.model.state_dict().values(), alone.model.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in weights)
    assert result.accuracy == alone.accuracy
    assert seen.count("step") == alone.steps
    assert cutlayer.load_run(tmp_path / "run", model=model).step == alone.steps
