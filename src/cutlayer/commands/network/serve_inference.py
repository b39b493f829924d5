"""`cutlayer serve --model RUN --inference`: the server's half of a trained model, for devices that ask."""

from __future__ import annotations

from pathlib import Path

import torch

from cutlayer.commands import show
from cutlayer.commands.network.quiet_grpc import quiet_grpc
from cutlayer.imports import need


def serve_inference(
    run: Path,
    listen: str = "127.0.0.1:50551",
    *,
    cert: Path | None = None,
    key: Path | None = None,
    client_ca: Path | None = None,
    tokens: Path | None = None,
    insecure: bool = False,
    at: str = "last",
    max_batch: int = 256,
    max_wait: float = 2.0,
    metrics: int | None = None,
    log_file: Path | None = None,
    threads: int | None = None,
    quiet: bool = False,
) -> None:
    """Serve until Ctrl-C. `max_batch` counts samples in one pass, `max_wait` is in milliseconds."""
    quiet_grpc()
    need("pydantic", "reading a run")
    need("grpc", "serving", "network")
    from cutlayer.inference.batcher import Batching
    from cutlayer.inference.server import Serving
    from cutlayer.inference.server import serve_inference as serve
    from cutlayer.training.load_run import open_run
    from cutlayer.wire import log
    from cutlayer.wire.security.credentials import ServerSecurity

    if threads is not None:
        torch.set_num_threads(threads)
    screen = show.console(stderr=True)
    security = ServerSecurity.load(cert, key, client_ca, tokens)
    trained = open_run(run, at, lambda text: screen.print(text))

    def ready(port: int) -> None:
        if not quiet:
            host = listen.rpartition(":")[0]
            said = f"serving {run.name}, step {trained.step}, on {host}:{port}; Ctrl-C ends it"
            screen.print(said, soft_wrap=True)

    if log_file is not None:
        log.open_log(log_file)
    batching = Batching(max_batch, max_wait / 1000)
    try:
        serve(trained, Serving(listen, security, insecure, batching, metrics, ready))
    finally:
        log.close_log()
