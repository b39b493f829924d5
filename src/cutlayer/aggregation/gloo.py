"""Connections between all clients, by torch.distributed with the gloo backend.

Client 0 opens the rendezvous (a TCPStore) and tells the server its address, which hands it to the others.
There each leaves the address where it listens itself. Gloo neither encrypts nor authenticates, so nothing
beyond loopback is used unless the user takes the risk.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

from cutlayer.errors import ConfigError, CredentialError, MessageError, RollbackError, UnreachableError
from cutlayer.wire.address import bind_error, is_loopback, parse_address
from cutlayer.wire.limits import Limits

# Not all that is used here is in PyTorch's own type descriptions.
dist: Any = torch.distributed
# An exchange begins when all clients have ended their turns, so it waits for the network alone.
_PATIENCE = timedelta(seconds=60)


class Gloo:
    """This client's end. `listen` is where the others reach it, as HOST or HOST:PORT.

    The port is that of the rendezvous, for client 0. Beside it gloo takes ports of its own.
    """

    def __init__(self, listen: str = "127.0.0.1", *, insecure: bool = False) -> None:
        alone = ":" not in listen or listen.endswith("]")
        self._host, self._port = parse_address(f"{listen}:0" if alone else listen)
        self._insecure = insecure
        if self._host in ("0.0.0.0", "::"):
            raise UnreachableError(
                f"--allreduce-listen {listen}: other clients have to find this one; give the address of one "
                "of this machine's networks"
            )
        self._check(self._host, "listen for other clients on")
        self._store: Any = None
        self._group: Any = None
        self._rendezvous = ""
        self._era = ""
        self._client, self._clients = 0, 1

    def open(self) -> str:
        """Open the place where clients meet, once. Its address."""
        _need_gloo()
        if self._store is None:
            listener = self._bind()
            self._port = listener.getsockname()[1]
            # Its own socket would listen on every network of the machine.
            self._store = dist.TCPStore(
                self._host,
                self._port,
                is_master=True,
                wait_for_workers=False,
                timeout=_PATIENCE,
                master_listen_fd=listener.detach(),
            )
        return f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"

    def begin(self, client: int, clients: int, rendezvous: str, era: str) -> None:
        """A new era: the connections of the last one are closed, new ones made at the first exchange."""
        _need_gloo()
        self._group = None
        host, _ = parse_address(rendezvous)
        self._check(host, "meet other clients at")
        self._client, self._clients, self._rendezvous, self._era = client, clients, rendezvous, era

    def all_gather(self, own: bytes) -> list[bytes]:
        """What every client gives, in client order. All clients call this. Raises `RollbackError`."""
        if self._clients == 1:
            return [own]
        with self._unbroken():
            return self._gather(own)

    def all_reduce(self, own: torch.Tensor, *, largest: bool = False) -> torch.Tensor:
        """The sum, or the largest, of what clients give. All clients call this. Raises `RollbackError`."""
        if self._clients == 1 or not own.numel():
            return own
        total = own.clone()
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM
        with self._unbroken():
            self._connected().allreduce([total], options).wait()
        return total

    def close(self) -> None:
        """Leave."""
        self._group = self._store = None

    @contextlib.contextmanager
    def _unbroken(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, ValueError, OSError) as error:
            # Nobody waits for this one, either.
            self._group = None
            raise RollbackError(f"the exchange among clients broke ({_gist(error)})") from None

    def _gather(self, own: bytes) -> list[bytes]:
        lengths = self._all(torch.tensor([len(own)]))
        sizes = [int(length) for length in lengths]
        limit = Limits().message
        if max(sizes) > limit or min(sizes) < 0:
            raise MessageError(f"a client shares {max(sizes)} bytes; at most {limit} are expected")
        padded = torch.zeros(max(1, *sizes), dtype=torch.uint8)
        if own:
            padded[: len(own)] = torch.frombuffer(bytearray(own), dtype=torch.uint8)
        found = self._all(padded)
        return [t[:size].numpy().tobytes() for t, size in zip(found, sizes, strict=True)]

    def _all(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        found = [torch.empty_like(tensor) for _ in range(self._clients)]
        self._connected().allgather([found], [tensor]).wait()
        return found

    def _connected(self) -> Any:
        if self._group is None:
            self._group = self._connect()
        return self._group

    def _connect(self) -> Any:
        host, port = parse_address(self._rendezvous)
        store = self._store
        if store is None:
            store = dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=_PATIENCE)
        options = dist.ProcessGroupGloo._Options()
        options._timeout = _PATIENCE
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=self._host)]
        prefixed = dist.PrefixStore(self._era, store)
        return dist.ProcessGroupGloo(prefixed, self._client, self._clients, options)

    def _bind(self) -> socket.socket:
        where = f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"
        try:
            family, kind, protocol, _, place = socket.getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM
            )[0]
            with contextlib.ExitStack() as stack:
                listener = stack.enter_context(socket.socket(family, kind, protocol))
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(place)
                listener.listen()
                stack.pop_all()
        except OSError:
            raise bind_error(where) from None
        return listener

    def _check(self, host: str, what: str) -> None:
        if not (self._insecure or is_loopback(host)):
            raise CredentialError(
                f"will not {what} {host}: gloo, which carries what clients share, neither encrypts nor asks "
                "who somebody is. Use loopback (or a tunnel to it), set train.aggregation to server, or take "
                "the risk with --insecure"
            )


def _gist(error: Exception) -> str:
    """The first sentence of an error, without the place in somebody's source code."""
    first = str(error).strip().partition("\n")[0].rpartition(".cc:")[2].lstrip("0123456789] ")
    return first.partition(". ")[0][:200]


def _need_gloo() -> None:
    if not (dist.is_available() and dist.is_gloo_available()):
        raise ConfigError(
            "this PyTorch has no gloo, which aggregation among clients needs; install one that has, or "
            "set train.aggregation to server"
        )
