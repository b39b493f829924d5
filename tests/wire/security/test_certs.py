"""The CA, certificates and tokens: what is in the files, and what is refused."""

import json
import shutil
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from cutlayer.commands.network import certs as command
from cutlayer.errors import CredentialError, FileError
from cutlayer.wire.security import certs, pem, tokens


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA, a server for two names, a client. Tests must not change it."""
    folder = tmp_path_factory.mktemp("certs")
    certs.make_ca(folder)
    certs.make_server(folder, ["localhost", "127.0.0.1"])
    certs.make_client(folder, "camera-0")
    return folder


@pytest.fixture
def own(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "own")


def run(*words: object):
    app = typer.Typer()
    command.register(app)
    return CliRunner().invoke(app, ["certs", *map(str, words)])


def test_certificates_say_who_they_are_for(made: Path) -> None:
    ca, server, client = (pem.describe(made / f"{n}.pem") for n in ("ca", "server", "camera-0"))
    assert (ca.purpose, server.purpose, client.purpose) == ("ca", "server", "client")
    assert server.names == ("localhost", "127.0.0.1")
    assert client.subject == "camera-0"
    assert server.issuer == client.issuer == ca.subject
    assert 824 < server.days_left < 826


def test_secrets_are_for_their_owner_only(made: Path) -> None:
    for path in made.iterdir():
        expected = 0o600 if path.suffix == ".key" else 0o644
        assert stat.S_IMODE(path.stat().st_mode) == expected, path


def test_nothing_is_overwritten_unless_forced(own: Path) -> None:
    before = {path: path.read_bytes() for path in own.iterdir()}
    with pytest.raises(FileError, match="--force"):
        certs.make_server(own, ["localhost"])
    # A key in the way stops the certificate, too: a pair is written as a pair.
    (own / "camera-0.pem").unlink()
    with pytest.raises(FileError, match=r"camera-0\.key"):
        certs.make_client(own, "camera-0")
    assert not (own / "camera-0.pem").exists()
    assert before[own / "server.pem"] == (own / "server.pem").read_bytes()
    certs.make_server(own, ["other.example"], force=True)
    assert pem.check_pair(own / "server.pem", own / "server.key").names == ("other.example",)


@pytest.mark.parametrize("name", ["", "a b", "../x", "-x", "x" * 65, "server", "CA", "é"])
def test_names_that_no_client_can_have(made: Path, name: str) -> None:
    with pytest.raises(CredentialError):
        certs.make_client(made, name)


@pytest.mark.parametrize("host", ["localhost:7000", "a b", "-x.example", "", "http://x"])
def test_hosts_that_no_server_can_have(made: Path, host: str) -> None:
    with pytest.raises(CredentialError, match="host name"):
        certs.make_server(made, [host])


def test_without_a_ca_nothing_is_signed(tmp_path: Path, made: Path) -> None:
    with pytest.raises(FileError, match="cutlayer certs ca"):
        certs.make_client(tmp_path, "a")
    for name in ("pem", "key"):  # a server's certificate cannot sign others
        shutil.copy(made / f"server.{name}", tmp_path / f"ca.{name}")
    with pytest.raises(CredentialError, match="not the certificate of a certificate authority"):
        certs.make_client(tmp_path, "a")


def test_no_certificate_outlives_its_ca(tmp_path: Path) -> None:
    certs.make_ca(tmp_path, days=10)
    with pytest.raises(CredentialError, match="outlive"):
        certs.make_client(tmp_path, "a", days=11)
    certs.make_client(tmp_path, "a", days=9)


def test_pairs_are_checked(own: Path) -> None:
    with pytest.raises(CredentialError, match="is not the key of"):
        pem.check_pair(own / "server.pem", own / "camera-0.key")
    with pytest.raises(CredentialError, match="holds a private key"):
        pem.check_pair(own / "server.key", own / "server.key")
    with pytest.raises(CredentialError, match="not a private key"):
        pem.check_pair(own / "server.pem", own / "server.pem")
    with pytest.raises(CredentialError, match="No such file"):
        pem.check_pair(own / "none.pem", own / "server.key")
    (own / "server.pem").write_text("nonsense")
    with pytest.raises(CredentialError, match="not a certificate"):
        pem.check_pair(own / "server.pem", own / "server.key")


def test_expired_and_early_certificates_are_told(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certs.make_server(own, ["localhost"], days=-1, force=True)
    with pytest.raises(CredentialError, match="expired on"):
        pem.check_validity(own / "server.pem")

    class Early(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(UTC) - timedelta(days=30)

    certs.make_server(own, ["localhost"], force=True)
    monkeypatch.setattr(pem, "datetime", Early)
    with pytest.raises(CredentialError, match="clock"):
        pem.check_validity(own / "server.pem")


def test_the_server_has_no_token_only_hashes(tmp_path: Path) -> None:
    server, files = tokens.make(tmp_path, ["b", "a"])
    secrets = [tokens.read_token(file) for file in files]
    assert len(set(secrets)) == 2
    for path in (server, *files):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not any(secret in server.read_text() for secret in secrets)
    known = tokens.Tokens.load(server)
    assert list(known.hashes) == ["b", "a"]
    assert [known.owner(secret) for secret in secrets] == ["b", "a"]
    assert known.owner(secrets[0][:-1] + "_") is None
    assert known.owner("") is None


def test_tokens_are_added_and_replaced(tmp_path: Path) -> None:
    server, (first,) = tokens.make(tmp_path, ["a"])
    old = tokens.read_token(first)
    tokens.make(tmp_path, ["b"])
    with pytest.raises(FileError, match="a has a token already"):
        tokens.make(tmp_path, ["c", "a"])
    assert not (tmp_path / "c.token").exists()
    tokens.make(tmp_path, ["a"], force=True)
    known = tokens.Tokens.load(server)
    assert list(known.hashes) == ["a", "b"]
    assert known.owner(old) is None


def test_a_server_follows_its_file_of_tokens(tmp_path: Path) -> None:
    server, files = tokens.make(tmp_path, ["a", "b"])
    old = [tokens.read_token(file) for file in files]
    known = tokens.Tokens.load(server)
    assert not known.refresh()
    tokens.make(tmp_path, ["a"], force=True)
    assert known.refresh()
    new = tokens.read_token(files[0])
    assert [known.owner(token) for token in (old[0], old[1], new)] == [None, "b", "a"]
    # A file that cannot be used changes nothing, and is told once.
    server.write_text("nonsense")
    with pytest.raises(CredentialError, match="line 1"):
        known.refresh()
    assert not known.refresh()
    server.unlink()
    with pytest.raises(CredentialError, match="No such file"):
        known.refresh()
    assert not known.refresh()
    assert known.owner(new) == "a"
    assert known.revision == 1


def test_damaged_token_files_are_named_without_their_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, (file,) = tokens.make(tmp_path, ["a"])
    secret = tokens.read_token(file)
    with pytest.raises(CredentialError, match="a client's secret") as caught:
        tokens.Tokens.load(file)
    assert secret not in str(caught.value)
    file.write_text(secret[:-3])
    with pytest.raises(CredentialError, match="does not hold one token") as caught:
        tokens.read_token(file)
    assert secret[:-3] not in str(caught.value)
    server.write_text(server.read_text() * 2)
    with pytest.raises(CredentialError, match="line 2 names a a second time"):
        tokens.Tokens.load(server)
    server.write_text("# nobody\n\n")
    with pytest.raises(CredentialError, match="names no client"):
        tokens.Tokens.load(server)
    with pytest.raises(CredentialError, match="No such file"):
        tokens.read_token(tmp_path / "none")
    monkeypatch.delenv(tokens.ENVIRONMENT, raising=False)
    assert tokens.read_token(None) is None
    monkeypatch.setenv(tokens.ENVIRONMENT, secret)
    assert tokens.read_token(None) == secret
    monkeypatch.setenv(tokens.ENVIRONMENT, "x")
    with pytest.raises(CredentialError, match=tokens.ENVIRONMENT):
        tokens.read_token(None)


def test_the_commands_make_what_they_say(tmp_path: Path) -> None:
    there = ["--dir", tmp_path / "c"]
    for words in (["ca"], ["server", "localhost"], ["client", "a", "b"], ["token", "a", "b"]):
        result = run(*words, *there)
        assert result.exit_code == 0, result.output
        for line in result.stdout.splitlines():
            assert Path(line.split()[0]).is_file()
        assert "PRIVATE" not in result.stdout
        assert not tokens.PATTERN.search(result.stdout)
    shown = run("show", tmp_path / "c" / "server.pem")
    assert "localhost" in shown.stdout
    assert "825 days left" in shown.stdout
    found = json.loads(run("show", tmp_path / "c" / "a.pem", "--json").stdout)
    assert (found["subject"], found["purpose"], found["expired"]) == ("a", "client", False)
    assert isinstance(run("ca", *there).exception, FileError)
    assert isinstance(run("show", tmp_path / "c" / "a.key").exception, CredentialError)
    # One bad name among several: nothing is made.
    assert isinstance(run("client", "c", "a b", *there).exception, CredentialError)
    assert not (tmp_path / "c" / "c.pem").exists()
