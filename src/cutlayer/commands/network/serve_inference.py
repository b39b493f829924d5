"""`cutlayer serve-inference`: the server's half of a trained model, for clients that ask for predictions."""

from __future__ import annotations

from typing import Annotated

import typer

from cutlayer.commands.network.credentials import NETWORK, ServerCredentials
from cutlayer.commands.network.monitoring import (
    Log,
    MetricsHost,
    MetricsPort,
    event_log,
    messages,
    silence_grpc,
)
from cutlayer.commands.option_groups import with_groups
from cutlayer.commands.options import Checkpoint, Flag, Quiet, RunArgument, Threads
from cutlayer.commands.runs.model_check import threads_for_inference
from cutlayer.imports import need

# Clients send so many samples a request; see RemoteModel.
_REQUEST = 64


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve-inference")(serve_inference)


@with_groups
def serve_inference(
    run: RunArgument,
    *,
    listen: Annotated[
        str, Flag(help="the address for clients", metavar="HOST:PORT", rich_help_panel=NETWORK)
    ] = "127.0.0.1:50551",
    credentials: ServerCredentials,
    checkpoint: Checkpoint = "last",
    max_batch: Annotated[int, Flag(help="samples in one forward pass, and in one request", min=1)] = 256,
    max_wait: Annotated[
        float, Flag(help="milliseconds that a request waits to share a forward pass", min=0)
    ] = 2.0,
    metrics: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    log: Log = None,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Answer predictions with the server's half of a trained model.

    Clients run their half and send smashed data: `cutlayer predict --server`.
    Requests that arrive together share one forward pass. Ctrl-C ends it. To
    listen beyond loopback, the server needs TLS and a way to know its clients.

    \b
    Examples:
      cutlayer serve-inference runs/ms
      cutlayer serve-inference runs/ms --checkpoint best --listen 0.0.0.0:50551 \\
          --cert server.pem --key server.key --tokens tokens.txt
    """
    silence_grpc()
    need("pydantic", "reading a run")
    need("grpc", "serving", "network")
    from cutlayer.inference.batcher import Batching
    from cutlayer.inference.server import Serving
    from cutlayer.inference.server import serve_inference as serve
    from cutlayer.training.load_run import open_run

    security = credentials.load()
    trained = open_run(run, checkpoint, messages(quiet=False))
    threads_for_inference(threads, trained.config, trained.data_spec.shape, min(max_batch, _REQUEST))
    tell = messages(quiet)

    def ready(port: int) -> None:
        host = listen.rpartition(":")[0]
        tell(f"serving {run.name}, step {trained.step}, on {host}:{port}; Ctrl-C ends it")

    batching = Batching(max_batch, max_wait / 1000)
    with event_log(log):
        serving = Serving(
            listen,
            security,
            credentials.insecure,
            batching,
            metrics=metrics,
            metrics_host=metrics_host,
            ready=ready,
        )
        serve(trained, serving)
