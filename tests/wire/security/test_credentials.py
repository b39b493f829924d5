"""Who may listen and who is who, over real sockets: what each side hears when credentials do not fit."""

import asyncio
import shutil
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc
import pytest

from cutlayer.errors import CredentialError, CutlayerError, UnreachableError
from cutlayer.wire.address import check_listen, is_loopback, parse_address
from cutlayer.wire.grpc.client.connection_errors import explain
from cutlayer.wire.security import certs, tokens
from cutlayer.wire.security.credentials import SERVER_OPTIONS, ClientSecurity, ServerSecurity
from cutlayer.wire.security.diagnose import diagnose


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of certificates: good, foreign (another CA), expired and misnamed (the same CA)."""
    root = tmp_path_factory.mktemp("bed")
    for name in ("good", "foreign"):
        certs.make_ca(root / name)
        certs.make_server(root / name, ["localhost", "127.0.0.1"])
        certs.make_client(root / name, "a")
    certs.make_client(root / "good", "b")
    tokens.make(root / "good", ["a", "b"])
    for name in ("expired", "misnamed"):
        shutil.copytree(root / "good", root / name)
    certs.make_server(root / "expired", ["localhost"], days=-1, force=True)
    certs.make_client(root / "expired", "a", days=-1, force=True)
    certs.make_server(root / "misnamed", ["train.example"], force=True)
    return root


@asynccontextmanager
async def listening(security: ServerSecurity) -> AsyncIterator[str]:
    """A server that tells each caller who it is."""

    async def who(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        try:
            return str(security.identify(context)).encode()
        except CredentialError as error:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))

    server = grpc.aio.server(options=SERVER_OPTIONS)
    handler = grpc.unary_unary_rpc_method_handler(who)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t", {"who": handler}),))
    port = security.bind(server, "127.0.0.1:0")
    await server.start()
    try:
        yield f"localhost:{port}"
    finally:
        await server.stop(0)


async def ask(address: str, security: ClientSecurity) -> str:
    async with security.channel(address) as channel:
        try:
            answer = await channel.unary_unary("/t/who")(b"", timeout=10, metadata=security.metadata)
        except grpc.RpcError as error:
            raise await asyncio.to_thread(explain, error, address, security) from error
    return answer.decode()


def talk(server: ServerSecurity, client: ClientSecurity, host: str = "localhost") -> str:
    async def both() -> str:
        async with listening(server) as address:
            return await ask(address.replace("localhost", host), client)

    return asyncio.run(both())


def serving(folder: Path, *, mutual: bool = False, with_tokens: bool = False) -> ServerSecurity:
    """Security without the checks of `load`, so that a server can be as wrong as a test wants it."""
    return ServerSecurity(
        (folder / "server.pem").read_bytes(),
        (folder / "server.key").read_bytes(),
        (folder.parent / "good" / "ca.pem").read_bytes() if mutual else None,
        tokens.Tokens.load(folder / "tokens.txt") if with_tokens else None,
    )


def calling(folder: Path, own: Path | None = None, name: str = "a", token: str | None = None):
    return ClientSecurity(
        (folder / "ca.pem").read_bytes(),
        (own / f"{name}.pem").read_bytes() if own else None,
        (own / f"{name}.key").read_bytes() if own else None,
        tokens.read_token(folder / f"{token}.token") if token else None,
    )


def test_identity_comes_from_the_credential(bed: Path) -> None:
    good = bed / "good"
    assert talk(serving(good), calling(good)) == "None"
    assert talk(serving(good), calling(good), host="127.0.0.1") == "None"
    assert talk(serving(good, mutual=True), calling(good, good, "b")) == "b"
    assert talk(serving(good, with_tokens=True), calling(good, token="a")) == "a"
    assert talk(serving(good, mutual=True, with_tokens=True), calling(good, good, "b", token="b")) == "b"
    # Without TLS a token is sent over loopback only.
    plain = ServerSecurity(tokens=tokens.Tokens.load(good / "tokens.txt"))
    assert talk(plain, ClientSecurity(token=tokens.read_token(good / "b.token"))) == "b"


def test_tokens_that_are_missing_wrong_or_of_another(bed: Path) -> None:
    good = bed / "good"
    server = serving(good, with_tokens=True)
    with pytest.raises(CredentialError, match="--token-file"):
        talk(server, calling(good))
    with pytest.raises(CredentialError, match="does not know this token"):
        talk(server, ClientSecurity((good / "ca.pem").read_bytes(), token="cutlayer-" + "x" * 43))
    with pytest.raises(CredentialError, match="certificate is b's, but the token is a's"):
        talk(serving(good, mutual=True, with_tokens=True), calling(good, good, "b", token="a"))


CASES = {
    "wrong CA": (("good", False), ("foreign", None), "is not from the CA in --ca"),
    "expired server": (("expired", False), ("good", None), "expired on .* cutlayer certs server localhost"),
    "other name": (("misnamed", False), ("good", None), "is for train.example, not localhost"),
    "no client certificate": (("good", True), ("good", None), "asks for a client's certificate"),
    "client of another CA": (("good", True), ("good", "foreign"), "not from the CA that the server trusts"),
    "expired client": (("good", True), ("good", "expired"), "it expired on"),
    "a server as client": (("good", True), ("good", "server"), "not for a client"),
}


@pytest.mark.parametrize("case", CASES)
def test_each_mismatch_names_its_cause_and_remedy(bed: Path, case: str) -> None:
    (server, mutual), (ca, own), message = CASES[case]
    name = "a"
    if own == "server":
        own, name = "good", "server"
    client = calling(bed / ca, bed / own if own else None, name)
    with pytest.raises(CredentialError, match=message):
        talk(serving(bed / server, mutual=mutual), client)


def test_one_side_without_tls(bed: Path) -> None:
    with pytest.raises(CredentialError, match="the server speaks TLS; give --ca"):
        talk(serving(bed / "good"), ClientSecurity())
    with pytest.raises(CredentialError, match="the server speaks no TLS"):
        talk(ServerSecurity(), calling(bed / "good"))


def test_nobody_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(UnreachableError, match="nobody listens there"):
        asyncio.run(ask(f"127.0.0.1:{port}", ClientSecurity()))
    with pytest.raises(UnreachableError, match=r"the name nowhere\.invalid is not known"):
        asyncio.run(ask("nowhere.invalid:7000", ClientSecurity(insecure=True)))


def test_a_network_that_cuts_connections_is_not_taken_for_a_wrong_credential(bed: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"

        def cut() -> None:
            with suppress(OSError):
                while True:
                    listener.accept()[0].close()

        thread = threading.Thread(target=cut)
        thread.start()
        try:
            for client in (ClientSecurity(), calling(bed / "good")):
                found = diagnose(address, client)
                assert isinstance(found, UnreachableError)
                assert "cut" in str(found)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_port_in_use_is_named() -> None:
    async def twice() -> None:
        async with listening(ServerSecurity()) as address:
            second = grpc.aio.server(options=SERVER_OPTIONS)
            ServerSecurity().bind(second, address.replace("localhost", "127.0.0.1"))

    with pytest.raises(UnreachableError, match="another program listens there"):
        asyncio.run(twice())

    async def elsewhere() -> None:
        ServerSecurity().bind(grpc.aio.server(), "192.0.2.1:7000", insecure=True)

    with pytest.raises(UnreachableError, match="an address that this machine has"):
        asyncio.run(elsewhere())


def test_files_are_checked_before_anybody_relies_on_them(bed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(tokens.ENVIRONMENT, raising=False)
    good, expired = bed / "good", bed / "expired"
    pair = {"cert": good / "server.pem", "key": good / "server.key"}
    full = ServerSecurity.load(**pair, client_ca=good / "ca.pem", tokens=good / "tokens.txt")
    assert full.tls
    assert full.auth
    assert full.names == ("a", "b")
    for wrong, message in (
        ({"cert": good / "server.pem"}, "belong together"),
        ({"client_ca": good / "ca.pem"}, "needs the server's own"),
        ({"cert": good / "server.pem", "key": good / "a.key"}, "is not the key of"),
        ({"cert": good / "a.pem", "key": good / "a.key"}, "not for a server"),
        ({"cert": expired / "server.pem", "key": expired / "server.key"}, "expired on"),
        ({"cert": good / "none.pem", "key": good / "server.key"}, "No such file"),
        ({**pair, "tokens": good / "a.token"}, "secret, not the server's file"),
    ):
        with pytest.raises(CredentialError, match=message):
            ServerSecurity.load(**wrong)
    for wrong, message in (
        ({"ca": good / "ca.key"}, "holds a private key"),
        ({"cert": good / "a.pem", "key": good / "a.key"}, "give --ca"),
        ({"ca": good / "ca.pem", "cert": good / "a.pem"}, "belong together"),
        ({"ca": good / "ca.pem", "cert": expired / "a.pem", "key": expired / "a.key"}, "expired on"),
        ({"token_file": good / "none.token"}, "No such file"),
    ):
        with pytest.raises(CredentialError, match=message):
            ClientSecurity.load(**wrong)


def test_secrets_do_not_show_in_repr(bed: Path) -> None:
    good = bed / "good"
    shown = repr(serving(good)) + repr(calling(good, good, token="a"))
    assert "PRIVATE KEY" not in shown
    assert not tokens.PATTERN.search(shown)


def test_plain_text_leaves_the_machine_only_if_asked() -> None:
    with pytest.raises(CredentialError, match="plain text"):
        asyncio.run(ask("192.0.2.1:7000", ClientSecurity(token="x")))


@pytest.mark.parametrize("address", ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "train.example:1"])
def test_listening_beyond_loopback_needs_both(address: str) -> None:
    check_listen(address, tls=True, auth=True, insecure=False)
    check_listen(address, tls=False, auth=False, insecure=True)
    for tls, auth, missing in ((False, True, "--cert"), (True, False, "--tokens"), (False, False, "nor")):
        with pytest.raises(CredentialError, match=missing):
            check_listen(address, tls=tls, auth=auth, insecure=False)


def test_loopback_is_free() -> None:
    for address in ("127.0.0.1:1", "127.8.9.1:1", "localhost:1", "[::1]:1"):
        check_listen(address, tls=False, auth=False, insecure=False)
    assert not is_loopback("localhost.example")


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:x", "host:99999", "::1:7000"])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(CutlayerError, match="HOST:PORT"):
        parse_address(address)
