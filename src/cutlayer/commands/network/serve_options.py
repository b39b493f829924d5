"""Options of `cutlayer serve` alone: lost clients, limits, a separate aggregator, and the dashboard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cutlayer.commands.options import Flag

if TYPE_CHECKING:
    from cutlayer.config.schema import Config
    from cutlayer.ranks.environment import RankEnvironment
    from cutlayer.training.result import Result
    from cutlayer.wire.grpc.server import Listening
    from cutlayer.wire.limits import Limits
    from cutlayer.wire.policy import Policy
    from cutlayer.wire.security.credentials import ClientSecurity

_STRAGGLERS, _LIMITS, _AGGREGATOR = "Clients that do not answer", "Limits of one client", "Aggregator"
_RANKS = "Ranks under torchrun"


@dataclass(frozen=True)
class StragglerOptions:
    """What to do about clients that do not answer."""

    straggler: Annotated[
        Literal["wait", "drop"],
        Flag(help="wait for lost clients, or drop them and go on", rich_help_panel=_STRAGGLERS),
    ] = "wait"
    deadline: Annotated[
        float, Flag(help="drop: seconds that a step waits", rich_help_panel=_STRAGGLERS, metavar="S")
    ] = 30.0
    quorum: Annotated[
        int, Flag(help="drop: the fewest clients to go on with", rich_help_panel=_STRAGGLERS, min=1)
    ] = 1
    elastic: Annotated[
        bool,
        Flag(
            "--elastic",
            help="drop: begin with the quorum; up to --clients may join and leave at any time",
            rich_help_panel=_STRAGGLERS,
        ),
    ] = False

    def policy(self) -> Policy:
        """As the server takes it."""
        from cutlayer.wire.policy import Policy

        return Policy(self.straggler, self.deadline, self.quorum, self.elastic)


@dataclass(frozen=True)
class RankOptions:
    """Several processes under torchrun."""

    advertise: Annotated[
        str | None,
        Flag(
            help="where clients reach this machine's ranks, if not at --listen",
            metavar="HOST:PORT",
            rich_help_panel=_RANKS,
        ),
    ] = None
    exact: Annotated[
        bool,
        Flag("--exact", help="ranks add in client order: the bits of one process", rich_help_panel=_RANKS),
    ] = False

    def of_rank(
        self, environment: RankEnvironment, page: DashboardOptions, log: Path | None, metrics: int | None
    ) -> tuple[DashboardOptions, Path | None, int | None]:
        """What this rank shows: the dashboard is the first one's; logs and metrics are each one's own."""
        if environment.rank and log is not None:
            log = log.with_name(f"{log.stem}-{environment.rank}{log.suffix}")
        if metrics:
            metrics += environment.local_rank
        return (DashboardOptions() if environment.rank else page), log, metrics

    def serve(
        self, environment: RankEnvironment, config: Config, listening: Listening, **how: Any
    ) -> Result | None:
        """Train as one rank of several."""
        from cutlayer.ranks.group import RankGroup
        from cutlayer.training.torchrun.serve_rank import serve_rank

        address = self.address(environment, listening.address)
        group = RankGroup(environment, config.train.device)
        result = serve_rank(config, listening, group, advertise=address, exact=self.exact, **how)
        group.close()
        return result

    def address(self, environment: RankEnvironment, listen: str) -> Callable[[int], str]:
        """The address that clients of this rank call, from the port that it listens on."""
        from cutlayer.errors import ConfigError
        from cutlayer.wire.address import parse_address

        if self.advertise is not None:
            told = environment.address(self.advertise)
            return lambda port: told
        host = parse_address(listen)[0]
        if host in ("0.0.0.0", "::"):
            raise ConfigError(
                f"--listen {listen}: clients are sent from rank to rank, and need an address to call; give "
                "--advertise HOST:PORT, as clients reach this machine"
            )
        return lambda port: f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True)
class LimitOptions:
    """What one client may cost the server."""

    max_message: Annotated[int, Flag(help="MiB of one message", rich_help_panel=_LIMITS, min=1)] = 256
    max_rate: Annotated[float, Flag(help="messages a second", rich_help_panel=_LIMITS)] = 1000.0
    idle: Annotated[
        float, Flag(help="seconds in which it must answer", rich_help_panel=_LIMITS, metavar="S")
    ] = 900.0

    def limits(self) -> Limits:
        """As the server takes them."""
        from cutlayer.wire.limits import MIB, Limits

        return Limits(message=self.max_message * MIB, rate=self.max_rate, silence=self.idle)


@dataclass(frozen=True)
class AggregatorOptions:
    """The aggregator in a process of its own, and this server's credentials there."""

    aggregator: Annotated[
        str | None,
        Flag(help="the address of a `cutlayer aggregate`", metavar="HOST:PORT", rich_help_panel=_AGGREGATOR),
    ] = None
    aggregator_ca: Annotated[
        Path | None, Flag(help="the CA of the aggregator's certificate", rich_help_panel=_AGGREGATOR)
    ] = None
    aggregator_token: Annotated[
        Path | None, Flag(help="the file of the token of `split-server`", rich_help_panel=_AGGREGATOR)
    ] = None
    aggregator_cert: Annotated[
        Path | None,
        Flag(help="mutual TLS: the certificate of `split-server`", rich_help_panel=_AGGREGATOR),
    ] = None
    aggregator_key: Annotated[
        Path | None, Flag(help="the certificate's key", rich_help_panel=_AGGREGATOR)
    ] = None

    def reached(self, insecure: bool) -> tuple[str, ClientSecurity] | None:
        """How the server reaches the aggregator, if there is one."""
        if self.aggregator is None:
            return None
        from cutlayer.wire.security.credentials import ClientSecurity

        credentials = ClientSecurity.load(
            self.aggregator_ca,
            self.aggregator_cert,
            self.aggregator_key,
            self.aggregator_token,
            insecure=insecure,
        )
        return self.aggregator, credentials


@dataclass(frozen=True)
class DashboardOptions:
    """The page that shows the run while it trains."""

    dashboard: Annotated[
        str | None,
        Flag(help="show the run in the browser, on this port of loopback", metavar="[HOST:]PORT"),
    ] = None
    dashboard_tokens: Annotated[
        Path | None, Flag(help="beyond loopback: the file of tokens of those who may look")
    ] = None

    @contextmanager
    def shown(self, directory: Path, cert: Path | None, key: Path | None) -> Iterator[str | None]:
        """Show the run for the time of the block; gives the page's address, None without a page."""
        if self.dashboard is None:
            yield None
            return
        from cutlayer.dashboard.child_process import dashboard_process
        from cutlayer.dashboard.http_server import Place
        from cutlayer.imports import need

        for module in ("starlette", "uvicorn"):
            need(module, "the dashboard", "dashboard")
        place = Place.parse(self.dashboard, cert, key, self.dashboard_tokens)
        if place.local:
            # The certificate is for the names by which others reach this machine.
            place = Place(place.address, tokens=self.dashboard_tokens)
        with dashboard_process(directory, place) as url:
            yield url
