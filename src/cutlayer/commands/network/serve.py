"""`cutlayer serve`: the split server of a run whose clients come over the network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer

from cutlayer.commands import show
from cutlayer.commands.network.quiet_grpc import quiet_grpc
from cutlayer.commands.network.serve_inference import serve_inference
from cutlayer.commands.runs.compare import traffic_table
from cutlayer.errors import ConfigError
from cutlayer.imports import need

Flag = typer.Option
_NETWORK, _FAULTS, _LIMITS = "Network", "Clients that do not answer", "Limits"
_INFERENCE = "Inference"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve")(serve)


def serve(
    config: Annotated[
        Path | None, typer.Argument(help="a configuration file in TOML", metavar="CONFIG")
    ] = None,
    recipe: Annotated[str | None, Flag(help="a named recipe; `cutlayer recipes` lists them")] = None,
    clients: Annotated[int | None, Flag(help="how many clients take part")] = None,
    rate: Annotated[
        str | None,
        Flag(help="bits an element that change: auto follows the link, until:80%=0.5 begins with few"),
    ] = None,
    overrides: Annotated[
        list[str] | None, Flag("--set", help="any setting, as train.epochs=5", metavar="A.B=C")
    ] = None,
    out: Annotated[Path | None, Flag(help="the run's directory; made up if not given")] = None,
    resume: Annotated[bool, Flag("--resume", help="continue the run in --out from its checkpoint")] = False,
    listen: Annotated[
        str, Flag(help="where clients connect", metavar="HOST:PORT", rich_help_panel=_NETWORK)
    ] = "127.0.0.1:50551",
    cert: Annotated[Path | None, Flag(help="the server's certificate", rich_help_panel=_NETWORK)] = None,
    key: Annotated[Path | None, Flag(help="its key", rich_help_panel=_NETWORK)] = None,
    client_ca: Annotated[
        Path | None, Flag(help="mutual TLS: who signs clients' certificates", rich_help_panel=_NETWORK)
    ] = None,
    tokens: Annotated[
        Path | None, Flag(help="the file of clients' hashed tokens", rich_help_panel=_NETWORK)
    ] = None,
    names: Annotated[
        str | None,
        Flag(help="mutual TLS: the clients' names in order, as a,b,c", rich_help_panel=_NETWORK),
    ] = None,
    insecure: Annotated[
        bool,
        Flag("--insecure", help="listen anywhere without TLS or credentials", rich_help_panel=_NETWORK),
    ] = False,
    straggler: Annotated[
        Literal["wait", "drop"],
        Flag(help="wait for lost clients, or go on without them", rich_help_panel=_FAULTS),
    ] = "wait",
    deadline: Annotated[
        float, Flag(help="drop: seconds that a step waits", rich_help_panel=_FAULTS, metavar="S")
    ] = 30.0,
    quorum: Annotated[
        int, Flag(help="drop: the fewest clients with which to go on", rich_help_panel=_FAULTS, min=1)
    ] = 1,
    max_message: Annotated[
        int, Flag(help="MiB of one message from a client", rich_help_panel=_LIMITS, min=1)
    ] = 256,
    max_rate: Annotated[
        float, Flag(help="messages a second of one client", rich_help_panel=_LIMITS)
    ] = 1000.0,
    idle: Annotated[
        float, Flag(help="seconds in which a client must answer", rich_help_panel=_LIMITS)
    ] = 900.0,
    inference: Annotated[
        bool, Flag("--inference", help="answer predictions instead of training", rich_help_panel=_INFERENCE)
    ] = False,
    model: Annotated[
        Path | None, Flag(help="the run whose model it is", metavar="RUN", rich_help_panel=_INFERENCE)
    ] = None,
    at: Annotated[
        str, Flag("--checkpoint", help="last, best, or a step's number", rich_help_panel=_INFERENCE)
    ] = "last",
    max_batch: Annotated[
        int, Flag(help="samples in one pass, and in one request", min=1, rich_help_panel=_INFERENCE)
    ] = 256,
    max_wait: Annotated[
        float, Flag(help="ms that a request waits for company", min=0, rich_help_panel=_INFERENCE)
    ] = 2.0,
    link: Annotated[
        str | None,
        Flag(help="the link that clients without one play, as 10mbit,20ms", rich_help_panel=_NETWORK),
    ] = None,
    aggregator: Annotated[
        str | None,
        Flag(
            help="a `cutlayer aggregate` that averages instead", metavar="HOST:PORT", rich_help_panel=_NETWORK
        ),
    ] = None,
    aggregator_ca: Annotated[
        Path | None, Flag(help="who signs the aggregator's certificate", rich_help_panel=_NETWORK)
    ] = None,
    aggregator_token: Annotated[
        Path | None, Flag(help="the file with the token of `split-server` there", rich_help_panel=_NETWORK)
    ] = None,
    aggregator_cert: Annotated[
        Path | None,
        Flag(help="mutual TLS: the certificate of `split-server` there", rich_help_panel=_NETWORK),
    ] = None,
    aggregator_key: Annotated[Path | None, Flag(help="its key", rich_help_panel=_NETWORK)] = None,
    metrics: Annotated[
        int | None, Flag(help="serve Prometheus metrics on this port of loopback", metavar="PORT", min=0)
    ] = None,
    log_file: Annotated[Path | None, Flag("--log", help="write events to this file, as JSON lines")] = None,
    threads: Annotated[int | None, Flag(help="threads of PyTorch", min=1)] = None,
    quiet: Annotated[bool, Flag("--quiet", help="show warnings and errors only")] = False,
    as_json: Annotated[bool, Flag("--json", help="print the records and the result as JSON lines")] = False,
) -> None:
    """Train with clients on other machines: the split server, and the aggregator of what they share.

    Waits for all clients (`cutlayer join`), hands each its settings, and trains. The data stay with the
    clients. The run's directory is as that of `cutlayer train`. Beyond loopback TLS and credentials are
    needed.

    \b
    Examples:
      cutlayer serve --clients 3                              on this machine, for a try
      cutlayer join 127.0.0.1:50551 --data digits --whole     three times, in other terminals
      cutlayer serve my.toml --listen 0.0.0.0:50551 --cert certs/server.pem --key certs/server.key \\
          --tokens certs/tokens.txt --straggler drop --deadline 20 --quorum 8
      cutlayer serve --resume --out runs/ms                   after a crash, or Ctrl-C
      cutlayer serve --model runs/ms --inference              answer `cutlayer predict --server`
    """
    if inference or model is not None:
        if not inference or model is None:
            raise ConfigError("--model and --inference belong together: give the run to serve, and say so")
        if config or recipe or clients or overrides or out or resume:
            raise ConfigError("--inference trains nothing: leave settings, --out and --resume out")
        serve_inference(
            model,
            listen,
            cert=cert,
            key=key,
            client_ca=client_ca,
            tokens=tokens,
            insecure=insecure,
            at=at,
            max_batch=max_batch,
            max_wait=max_wait,
            metrics=metrics,
            log_file=log_file,
            threads=threads,
            quiet=quiet,
        )
        return
    if quiet and as_json:
        raise ConfigError("--quiet and --json exclude each other; give one of them")
    quiet_grpc()
    need("pydantic", "training")
    need("grpc", "serving", "network")
    from cutlayer.config.resolve import refuse_existing_run, resolve_config
    from cutlayer.report.run_summary import summarize
    from cutlayer.training import progress
    from cutlayer.training.serve import serve as serve_run
    from cutlayer.wire import log
    from cutlayer.wire.grpc.server import Listening
    from cutlayer.wire.limits import MIB, Limits
    from cutlayer.wire.link.model import Link
    from cutlayer.wire.metrics import Metrics
    from cutlayer.wire.policy import Policy
    from cutlayer.wire.security.credentials import ClientSecurity, ServerSecurity

    if threads is not None:
        torch.set_num_threads(threads)
    flags: dict[str, Any] = {
        "train.clients": clients,
        "codec.rate": rate,
        "output.dir": None if out is None else str(out),
    }
    given = {name: value for name, value in flags.items() if value is not None}
    settled = resolve_config(config, recipe, given, overrides or [], resume)
    refuse_existing_run(settled.output.dir, resume)
    screen = show.console(stderr=True)

    def ready(port: int) -> None:
        if not quiet:
            host = listen.rpartition(":")[0]
            screen.print(f"listening on {host}:{port} for {settled.train.clients} clients", soft_wrap=True)

    if log_file is not None:
        log.open_log(log_file)
    counted = None
    if metrics is not None:
        counted = Metrics()
        scraped = counted.serve(metrics)
        screen.print(f"metrics: http://127.0.0.1:{scraped}/metrics", soft_wrap=True)
    averager = None
    if aggregator is not None:
        credentials = ClientSecurity.load(
            aggregator_ca, aggregator_cert, aggregator_key, aggregator_token, insecure=insecure
        )
        averager = (aggregator, credentials)
    listening = Listening(
        listen,
        ServerSecurity.load(cert, key, client_ca, tokens),
        insecure,
        tuple(name.strip() for name in names.split(",")) if names else (),
        Policy(straggler, deadline, quorum),
        Limits(message=max_message * MIB, rate=max_rate, silence=idle),
        "" if link is None else str(Link.parse(link)),
        counted,
        averager,
        ready,
    )
    shown = progress.display("quiet" if quiet else "json" if as_json else "auto")
    try:
        result = serve_run(settled, listening, progress=shown, resume=resume)
    except KeyboardInterrupt:
        again = f"cutlayer serve --resume --out {settled.output.dir}"
        screen.print(f"stopped; to continue: {again}", soft_wrap=True)
        raise typer.Exit(130) from None
    finally:
        if counted is not None:
            counted.close()
        log.close_log()
    summary = summarize(result.directory)
    if as_json:
        show.print_line({"kind": "result", "directory": str(result.directory), **summary.to_json()})
    elif not quiet:
        show.console().print(traffic_table(summary))
        show.console().print(f"The run is in {result.directory}", soft_wrap=True)
