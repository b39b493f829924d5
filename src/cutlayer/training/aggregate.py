"""`aggregate`: the aggregator in a process of its own, with its checkpoints in a directory of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from cutlayer.aggregation.service import SPLIT_SERVER, AggregatorService
from cutlayer.config.schema import Config
from cutlayer.data.spec import DataSpec
from cutlayer.errors import ConfigError
from cutlayer.files import remove_partial_files
from cutlayer.interrupt import Interrupt
from cutlayer.models import ANY_MODEL
from cutlayer.protocol.admission import Fits
from cutlayer.protocol.boundary import Agreed
from cutlayer.protocol.build import make_client, make_codecs, prepare_model, vector_sizes
from cutlayer.protocol.handshake import data_spec_of, digest, settings_for_clients
from cutlayer.protocol.run_codecs import RunCodecs
from cutlayer.protocol.state_form import StateForm
from cutlayer.training import checkpoint
from cutlayer.training.build import make_mean_rule
from cutlayer.training.serving.checks import check_names
from cutlayer.wire.grpc.server import Listening, running
from cutlayer.wire.grpc.transport import GrpcTransport


def aggregate(
    config: Config, listening: Listening, directory: Path, *, note: Callable[[str], None] = lambda text: None
) -> None:
    """Average until Ctrl-C."""
    _check(config, listening)
    fits = Fits(config, evaluator=False)
    with suppress(KeyboardInterrupt), Interrupt() as interrupt:
        transport = GrpcTransport(
            config.train.clients,
            listening.policy,
            listening.limits,
            check=fits,
            names=listening.clients(SPLIT_SERVER),
            note=note,
            interrupted=lambda: interrupt.requested,
        )
        settings = settings_for_clients(config)

        def derive(clients: Sequence[Any]) -> tuple[RunCodecs, Agreed]:
            spec = data_spec_of(clients)
            fits.settle(spec)
            transport.recheck()
            return _derive(config, spec)

        service = AggregatorService(
            transport,
            _Checkpoints(directory, config),
            digest=digest(settings),
            weighting=config.train.weighting,
            rule=make_mean_rule(config),
            derive=derive,
            note=note,
        )
        with running(transport, listening, settings, service.handler(listening.security.identify)):
            while not interrupt.requested:
                time.sleep(0.2)
            raise KeyboardInterrupt


def _derive(config: Config, spec: DataSpec) -> tuple[RunCodecs, Agreed]:
    """The model follows from the settings and the data's form: what clients share has its size."""
    # It adds numbers up and runs no model, whatever the server's device is.
    config = config.model_copy(update={"train": config.train.model_copy(update={"device": "cpu"})})
    parts = prepare_model(config, spec.placeholder_data().train, ANY_MODEL)[1]
    half = make_client(config, parts)
    sizes = vector_sizes(half)
    return make_codecs(config, sizes, max(*sizes, 1), of_others=True), Agreed(state=StateForm.of(half))


class _Checkpoints:
    """The clients' states on disk."""

    def __init__(self, directory: Path, config: Config) -> None:
        self._directory = directory
        self._config = config
        remove_partial_files(directory)

    def load(self, step: int) -> Mapping[str, Tensor] | None:
        """See `Store.load`."""
        path = checkpoint.path_of(self._directory, step)
        return checkpoint.load(path).tensors if path.exists() else None

    def save(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        """See `Store.save`."""
        checkpoint.save(self._directory, step, tensors, {}, self._config.identity())
        checkpoint.keep(self._directory, self._config.output.keep + 1)


def _check(config: Config, listening: Listening) -> None:
    if config.train.aggregation != "server":
        raise ConfigError(
            f"with train.aggregation = {config.train.aggregation} clients need no aggregator; set "
            "train.aggregation to server"
        )
    check_names(config, listening)
    tokens = listening.security.tokens
    if tokens is not None and SPLIT_SERVER not in tokens.hashes:
        raise ConfigError(
            f"no token is {SPLIT_SERVER!r}'s, so nobody could give orders; make one with: cutlayer certs "
            f"token {SPLIT_SERVER}, and give its file to `cutlayer serve` with --aggregator-token"
        )
