"""`cutlayer serve`: the split server of a run whose clients come over the network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cutlayer.commands import show
from cutlayer.commands.network.credentials import NETWORK, Names, ServerCredentials, in_order
from cutlayer.commands.network.monitoring import (
    Log,
    MetricsHost,
    MetricsPort,
    event_log,
    messages,
    silence_grpc,
)
from cutlayer.commands.network.serve_options import (
    AggregatorOptions,
    DashboardOptions,
    LimitOptions,
    RankOptions,
    StragglerOptions,
)
from cutlayer.commands.option_groups import with_groups
from cutlayer.commands.options import Flag, RunOutput, Threads
from cutlayer.commands.runs.model_check import threads_for_training
from cutlayer.commands.runs.settings import RunSettings
from cutlayer.commands.runs.show_result import show_result
from cutlayer.commands.trackers import tracked
from cutlayer.errors import ConfigError
from cutlayer.imports import need


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve")(serve)


@with_groups
def serve(
    settings: RunSettings,
    output: RunOutput,
    *,
    listen: Annotated[
        str, Flag(help="the address for clients", metavar="HOST:PORT", rich_help_panel=NETWORK)
    ] = "127.0.0.1:50551",
    names: Names = None,
    link: Annotated[
        str | None,
        Flag(help="clients without a --link send no faster than this", rich_help_panel=NETWORK),
    ] = None,
    credentials: ServerCredentials,
    aggregator: AggregatorOptions,
    stragglers: StragglerOptions,
    limits: LimitOptions,
    page: DashboardOptions,
    ranks: RankOptions,
    metrics: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    log: Log = None,
    threads: Threads = None,
) -> None:
    """Train with clients on other machines.

    This is the split server. It waits for all clients (`cutlayer join`),
    sends them the settings, and trains. Data stay with the clients. Settings
    and the run's directory are those of `cutlayer train`. To listen beyond
    loopback, the server needs TLS and a way to know its clients.

    \b
    Examples:
      # On one machine; run the second line three times, in other terminals
      cutlayer serve --clients 3 --codec ms:ratio=0.99,bits=2 --epochs 5
      cutlayer join 127.0.0.1:50551 --data digits --whole
      # Watch it in the browser, at http://127.0.0.1:8080
      cutlayer serve --clients 3 --dashboard 8080
      # Between machines; go on without clients that take more than 20 s
      cutlayer serve my.toml --listen 0.0.0.0:50551 \\
          --cert server.pem --key server.key --tokens tokens.txt \\
          --straggler drop --deadline 20 --quorum 8
      # Clients come and go; fifty of those who are there take part in a step
      cutlayer serve --clients 1000 --clients-per-step 50 --elastic \\
          --straggler drop --quorum 50 --tokens tokens.txt
      # After a crash, or Ctrl-C
      cutlayer serve --resume --out runs/ms
      # Two processes share the clients, and start again by themselves
      torchrun --nproc-per-node 2 --max-restarts 10 \\
          -m cutlayer serve my.toml --out runs/ms
    """
    display = output.display
    silence_grpc()
    need("pydantic", "training")
    need("grpc", "serving", "network")
    from cutlayer.config.resolve import refuse_existing_run
    from cutlayer.ranks.environment import RankEnvironment
    from cutlayer.training import progress
    from cutlayer.training.serve import serve as serve_run
    from cutlayer.wire.grpc.server import Listening
    from cutlayer.wire.link.model import Link
    from cutlayer.wire.metrics import Metrics

    environment = RankEnvironment.read()
    if environment is not None:
        if output.out is None:
            raise ConfigError("under torchrun, give --out, so that a run that starts again finds itself")
        listen = environment.address(listen)
    config = settings.resolve(output.out, output.resume)
    resume = output.resume
    if environment is None or environment.world == 1:  # several ranks find out together
        resume = resume or (environment is not None and environment.restarts > 0)
        refuse_existing_run(config.output.dir, resume)
    threads_for_training(threads, config)
    tell = messages(quiet=False)
    directory = Path(config.output.dir)
    if environment is not None and environment.world > 1:
        page, log, metrics = ranks.of_rank(environment, page, log, metrics)
        display = display if environment.rank == 0 else "quiet"
    with event_log(log), page.shown(directory, credentials.cert, credentials.key) as url:
        if url is not None:
            tell(f"dashboard: {url}")
        leads = environment is None or environment.rank == 0
        counted = None if metrics is None else Metrics()
        if counted is not None and metrics is not None:
            tell(f"metrics: http://{metrics_host}:{counted.serve(metrics, metrics_host)}/metrics")

        def ready(port: int) -> None:
            if not output.quiet:
                tell(f"listening on {listen.rpartition(':')[0]}:{port} for {config.train.clients} clients")

        listening = Listening(
            listen,
            credentials.load(),
            credentials.insecure,
            in_order(names),
            stragglers.policy(),
            limits.limits(),
            "" if link is None else str(Link.parse(link)),
            counted,
            aggregator.reached(credentials.insecure),
            ready,
        )
        try:
            with tracked(output.tracker if leads else None, config) as listeners:
                if environment is not None and environment.world > 1:
                    result = ranks.serve(
                        environment,
                        config,
                        listening,
                        progress=progress.display(display),
                        resume=resume,
                        listeners=listeners,
                    )
                else:
                    result = serve_run(
                        config,
                        listening,
                        progress=progress.display(display),
                        resume=resume,
                        listeners=listeners,
                    )
        except KeyboardInterrupt:
            tell(f"stopped; to continue: cutlayer serve --resume --out {config.output.dir}")
            raise typer.Exit(130) from None
        finally:
            if counted is not None:
                counted.close()
    if result is None:
        return
    show_result(result.directory, display)
    if display == "auto":
        show.say(f"The run is in {result.directory}")
