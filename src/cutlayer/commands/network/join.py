"""`cutlayer join`: a client that takes part in a run over the network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutlayer.commands import show
from cutlayer.commands.network.credentials import NETWORK, ClientCredentials
from cutlayer.commands.network.monitoring import messages, silence_grpc
from cutlayer.commands.option_groups import with_groups
from cutlayer.commands.options import AllowModel, AllowTask, DataRoot, Flag, Quiet
from cutlayer.commands.threads import use_threads
from cutlayer.errors import ConfigError
from cutlayer.imports import need

if TYPE_CHECKING:
    from cutlayer.client.join import Participates


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("join")(join)


@with_groups
def join(
    address: Annotated[str, typer.Argument(help="the server", metavar="HOST:PORT")],
    data: Annotated[str, Flag(help="this client's data: a path, or digits, cifar10, ...")],
    *,
    half: Annotated[
        Path | None,
        Flag(
            help="without PyTorch: this client's half as `cutlayer export --format onnx-training` wrote it",
            metavar="FILE.onnx",
        ),
    ] = None,
    root: DataRoot = Path(),
    whole: Annotated[
        bool,
        Flag("--whole", help="the data are those of all clients; take the part that the run assigns"),
    ] = False,
    cache: Annotated[Path | None, Flag(help="keep decoded data in this folder for the next time")] = None,
    rate: Annotated[
        str | None,
        Flag(help="this client's bounds of the rate, if the run has --rate auto, as auto:max=2"),
    ] = None,
    device: Annotated[str, Flag(help="where this client computes: cpu, cuda, cuda:1 or mps")] = "cpu",
    allow_model: AllowModel = None,
    allow_task: AllowTask = None,
    lazy: Annotated[
        bool, Flag("--lazy", help="read samples from their files as they are needed, not all at once")
    ] = False,
    credentials: ClientCredentials,
    number: Annotated[
        int | None,
        Flag(
            "--as",
            help="which client to be, if the server asks for no credentials",
            min=0,
            metavar="N",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    retry: Annotated[
        float,
        Flag(help="seconds to try to reach a server that does not answer", min=0, rich_help_panel=NETWORK),
    ] = 300.0,
    link: Annotated[
        str | None, Flag(help="send no faster than this link, as 10mbit,20ms", rich_help_panel=NETWORK)
    ] = None,
    allreduce_listen: Annotated[
        str,
        Flag(
            help="train.aggregation = allreduce or allgather: this client's address for others",
            metavar="HOST[:PORT]",
            rich_help_panel=NETWORK,
        ),
    ] = "127.0.0.1",
    threads: Annotated[
        int | None, Flag(help="threads of the model; 1 by default, more pay for large models only", min=1)
    ] = None,
    quiet: Quiet = False,
    as_json: Annotated[bool, Flag("--json", help="print what was done as JSON")] = False,
) -> None:
    """Take part in a run as a client.

    The settings come from the server (`cutlayer serve`); the data stay here. A
    model that is not built in is imported only with --allow-model, a task only
    with --allow-task. A lost connection is made again, for as long as --retry
    says. Ctrl-C leaves the run; the same command takes part again.

    \b
    Examples:
      cutlayer join 127.0.0.1:50551 --data digits --whole
      cutlayer join train.example.org:50551 --data photos/ \\
          --ca ca.pem --token-file me.token
      cutlayer join train.example.org:50551 --data photos/ \\
          --ca ca.pem --cert me.pem --key me.key
      cutlayer join train.example.org:50551 --data mine.npz --half client.onnx \\
          --ca ca.pem --token-file me.token
    """
    silence_grpc()
    need("grpc", "joining a run", "network" if half is None else "device")
    from cutlayer.client.join import join as join_run
    from cutlayer.wire.link.model import Link

    tell = messages(quiet)
    participant: Participates
    gloo: Any = None
    if half is not None:
        if whole or lazy or allow_model or allow_task or device != "cpu" or (rate, cache) != (None, None):
            raise ConfigError(
                "--whole, --rate, --cache, --lazy, --device, --allow-model and --allow-task need PyTorch; "
                "leave them out"
            )
        from cutlayer.device.participant import OnnxParticipant

        participant = OnnxParticipant(half, data, threads or 1)
    else:
        need("pydantic", "training")
        need("torch", "a client that has no ONNX half (--half)")
        from cutlayer.aggregation.gloo import Gloo
        from cutlayer.client.participant import Participant

        # The server says which model it is only after the connection is made.
        use_threads(threads)
        participant = Participant(
            data,
            str(root),
            whole=whole,
            cache=None if cache is None else str(cache),
            rate=rate,
            allow_models=allow_model or (),
            allow_tasks=allow_task or (),
            lazy=lazy,
            device=device,
        )
        gloo = Gloo(allreduce_listen, insecure=credentials.insecure)
    bar = _StepBar(quiet)
    try:
        taken = join_run(
            address,
            participant,
            credentials.load(),
            claims=number,
            retry=retry,
            link=None if link is None else Link.parse(link),
            gloo=gloo,
            note=tell,
            on_step=bar.step,
        )
    except KeyboardInterrupt:
        tell("left; the same command takes part again")
        raise typer.Exit(130) from None
    finally:
        bar.close()
    if as_json:
        show.print_json(vars(taken))
    else:
        tell(f"{taken.reason}: client {taken.client} did {taken.steps} steps with {taken.samples} samples")


class _StepBar:
    """How far the run is, from this client's first step on."""

    def __init__(self, quiet: bool) -> None:
        from cutlayer.training.progress_bar import ProgressBar, progress_bar

        self._bar: ProgressBar = progress_bar(quiet=quiet)
        self._begun = False

    def step(self, done: int, total: int) -> None:
        """This client did a step; so many of the run are done."""
        if not self._begun:
            self._begun = True
            self._bar.begin(total, done - 1)
        self._bar.update(done, f"step {done}/{total}")

    def close(self) -> None:
        """The client leaves."""
        self._bar.close()
