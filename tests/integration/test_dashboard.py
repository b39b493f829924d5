"""The dashboard of a real run over TLS: the open page shows a client that is killed and one that stalls."""

import json
import signal
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from cutlayer.wire.security import certs, tokens

NAMES = ("ann", "bob", "cat")
pytest.importorskip("uvicorn", reason="the extra dashboard is not installed")
pytest.importorskip("starlette", reason="the extra dashboard is not installed")


@pytest.fixture
def folder(cluster) -> Path:
    found = cluster.folder / "certs"
    certs.make_ca(found)
    certs.make_server(found, ["localhost"])
    tokens.make(found, NAMES)
    return found


def secured(*more: str) -> tuple[str, ...]:
    server = ("--cert", "certs/server.pem", "--key", "certs/server.key", "--tokens", "certs/tokens.txt")
    return (*server, *more)


def join(cluster: Any, name: str, *flags: str) -> Any:
    who = ("--ca", "certs/ca.pem", "--token-file", f"certs/{name}.token")
    args = ("--data", "digits", "--whole", "--threads", "1", *who, *flags)
    return cluster.nursery.start("join", f"localhost:{cluster.port}", *args, cwd=cluster.folder)


def state(name: str) -> str:
    """The state of a client's row in the page."""
    return (
        "[...document.querySelectorAll('#clients tbody tr')]"
        f".find((row) => row.cells[0].textContent.includes('({name})'))?.dataset.state"
    )


def test_a_killed_and_a_stalled_client_show_within_two_seconds(cluster, folder: Path, browser) -> None:
    server = cluster.serve("train.epochs=400", flags=secured("--dashboard", "0"))
    browser.open(server.says(r"dashboard: (http://\S+)")[1])
    browser.until("document.getElementById('state').textContent === 'waiting for clients'")
    browser.until("document.querySelectorAll('#clients tr[data-state=absent]').length === 3")
    clients = {name: join(cluster, name) for name in NAMES}
    browser.until("document.querySelectorAll('#clients tr[data-state=connected]').length === 3")
    browser.until("/step [1-9]\\d+ of/.test(document.getElementById('place').textContent)")
    browser.until("document.querySelectorAll('#metric-chart circle').length > 1")
    assert "smaller than float32" in browser.value("document.getElementById('figures').innerText")
    rows = browser.value("document.getElementById('clients').innerText")
    assert "kB/s" in rows or "MB/s" in rows

    clients["bob"].send(signal.SIGSTOP)
    assert browser.until(f"{state('bob')} === 'slow'") <= 2.0
    clients["cat"].kill()
    assert browser.until(f"{state('cat')} === 'lost'") <= 2.0
    told = browser.value("document.getElementById('client-sum').textContent")
    assert told.startswith("2 of 3 connected, 1 slow, 1 lost"), told
    browser.until("/waits for client .*bob/.test(document.getElementById('client-sum').textContent)")
    browser.until(
        "document.getElementById('events').innerText.includes('connection of client 2 (cat) has ended')"
    )

    clients["bob"].send(signal.SIGCONT)
    clients["cat"] = join(cluster, "cat")
    browser.until("document.querySelectorAll('#clients tr[data-state=connected]').length === 3")
    browser.until("document.getElementById('events').innerText.includes('going back to step')")
    server.send(signal.SIGTERM)
    browser.until("document.getElementById('state').textContent === 'stopped'")
    assert server.wait() == 130, server.text
    browser.until("document.getElementById('connection').textContent.includes('does not answer')")
    # The end of the stream is all that a console may complain about.
    assert [c for c in browser.complaints if "net::ERR" not in c] == []


@pytest.fixture
def run(cluster) -> Path:
    """The directory of a run of one step."""
    found = cluster.folder / "run"
    found.mkdir()
    (found / "status.json").write_text('{"state": "complete", "steps": 1}')
    (found / "records.jsonl").write_text('{"kind": "step", "global_step": 1, "loss": 2.5}\n')
    return found


def test_beyond_loopback_only_with_tls_and_a_token(cluster, folder: Path, run: Path) -> None:
    start = lambda *flags: cluster.nursery.start("dashboard", str(run), *flags, cwd=cluster.folder)  # noqa: E731
    refused = start("--listen", "0.0.0.0:0")
    assert refused.wait() == 1
    assert "will not show the dashboard on 0.0.0.0:0" in refused.text
    shown = start("--listen", "0.0.0.0:0", *secured())
    port = shown.says(r"https://\S+:(\d+)/")[1]
    trust = ssl.create_default_context(cafile=folder / "ca.pem")

    def get(path: str, token: str | None = None, method: str = "GET") -> bytes:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(f"https://localhost:{port}{path}", headers=headers, method=method)
        with urllib.request.urlopen(request, context=trust, timeout=60) as answer:
            found: bytes = answer.read()
            return found

    assert b"2.5" not in get("/"), "the page itself tells nothing about the run"
    good = (folder / "ann.token").read_text().strip()
    for token in (None, "", "cutlayer-" + "x" * 43):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get("/api/state", token)
    found = json.loads(get("/api/state", good))
    assert (found["run"]["state"], found["run"]["step"]) == ("complete", 1)
    assert found["curves"]["loss"] == [[1, 2.5]]
    with pytest.raises(urllib.error.HTTPError, match="405"):
        get("/api/state", good, "POST")
    # Without its line in the file, a token is worth nothing.
    lines = (folder / "tokens.txt").read_text().splitlines(keepends=True)
    (folder / "tokens.txt").write_text("".join(lines[1:]))
    with pytest.raises(urllib.error.HTTPError, match="401"):
        get("/api/state", good)


def test_a_port_that_is_taken_is_told_before_training(cluster, run: Path) -> None:
    first = cluster.nursery.start("dashboard", str(run), "--listen", "0", cwd=cluster.folder)
    port = first.says(r"http://127.0.0.1:(\d+)/")[1]
    flags = ("--listen", "127.0.0.1:0", "--dashboard", port)
    second = cluster.nursery.start("serve", "--out", "new", *flags, cwd=cluster.folder)
    assert second.wait() == 1
    assert "another program listens there" in second.text
    assert "Traceback" not in second.text
    assert not (cluster.folder / "new").exists()
