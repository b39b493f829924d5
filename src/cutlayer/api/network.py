"""`cutlayer.serve` and `cutlayer.join`: a run over the network, with objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Unpack

import torch
from torch import nn

from cutlayer.aggregation.gloo import Gloo
from cutlayer.api.callbacks import Callbacks
from cutlayer.api.data import DataLike, as_datasets
from cutlayer.api.keywords import RunKeywords, display, refuse_unknown, resolve
from cutlayer.api.result import Result
from cutlayer.api.settings import LossLike, OptimizerLike, run_objects
from cutlayer.api.train import make_result
from cutlayer.client.join import Participation
from cutlayer.client.join import join as join_run
from cutlayer.client.participant import Participant
from cutlayer.errors import ConfigError
from cutlayer.interrupt import Interrupt
from cutlayer.protocol.objects import allow_object
from cutlayer.tasks.base import Task
from cutlayer.training.load_run import open_run
from cutlayer.training.serve import serve as serve_run
from cutlayer.wire.grpc.server import Listening
from cutlayer.wire.link.model import Link
from cutlayer.wire.security.credentials import ClientSecurity


def serve(
    model: nn.Module | str | None = None,
    *,
    out: str | Path,
    listening: Listening | str = "127.0.0.1:50551",
    **keywords: Unpack[RunKeywords],
) -> Result:
    """Train with clients that connect, as `cutlayer serve`. The keywords are those of `cutlayer.train`.

    `listening` is an address, or a `Listening` with credentials, limits and all else. No code travels: a
    model, loss or optimizer that is given as an object has to be given to each client's `join`, too.
    """
    refuse_unknown("serve", keywords)
    resolved = resolve(model, keywords, Path(out), {})
    objects = run_objects(model, keywords.get("loss"), keywords.get("optimizer"))
    interrupt = Interrupt()
    where = Listening(listening) if isinstance(listening, str) else listening
    found = serve_run(
        resolved,
        where,
        progress=display(keywords),
        resume=keywords.get("resume", False),
        objects=objects,
        listeners=[Callbacks(keywords.get("callbacks", ()), interrupt)],
        interrupt=interrupt,
    )
    # With an aggregator of its own, nobody here has the clients' weights.
    trained = None if where.aggregator is not None else open_run(out, objects=objects).model
    return make_result(found, trained, Path(out))


def join(
    address: str,
    train: DataLike | str,
    test: DataLike | None = None,
    *,
    model: nn.Module | None = None,
    loss: LossLike | Task | None = None,
    optimizer: OptimizerLike | None = None,
    security: ClientSecurity | None = None,
    client: int | None = None,
    whole: bool = False,
    root: str = ".",
    cache: str | None = None,
    allow_models: Sequence[str] = (),
    rate: str | None = None,
    link: str | None = None,
    retry: float = 300.0,
    device: str | torch.device | None = None,
    gloo: Gloo | None = None,
    note: Callable[[str], None] = lambda text: None,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> Participation:
    """Take part in a run over the network until it is complete, as `cutlayer join`.

    `train` are this client's own data (with `whole`, those of all clients, of which it takes its part), as
    for `cutlayer.train`, or their name. `client` asks for a number, where the server knows no names. By
    `gloo` clients reach each other that average among themselves.
    """
    given = None
    if not isinstance(train, str):
        if test is None:
            raise ConfigError("test= is missing: the data to evaluate on, in the form of train=")
        given = as_datasets(train, test)
    objects = run_objects(model, loss, optimizer)
    participant = Participant(
        "object" if given is not None else str(train),
        root,
        whole=whole,
        cache=cache,
        rate=rate,
        allow_models=allow_models,
        models=None if model is None else allow_object(model, anything=False).at_hand,
        data=given,
        make_task=objects.make_task,
        make_optimizer=objects.make_optimizer,
        device="cpu" if device is None else str(device),
    )
    return join_run(
        address,
        participant,
        security or ClientSecurity(),
        claims=client,
        retry=retry,
        link=None if link is None else Link.parse(link),
        gloo=gloo,
        note=note,
        on_step=on_step,
    )
