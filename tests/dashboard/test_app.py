"""The application: read-only, no data without a token, and a stream that tells what changes."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra dashboard is not installed")

from cutlayer.dashboard.access import Access
from cutlayer.dashboard.app import VIEWERS, dashboard_app
from cutlayer.dashboard.http_server import Place
from cutlayer.dashboard.live import Live
from cutlayer.dashboard.watcher import Watcher
from cutlayer.errors import CredentialError, UnreachableError
from cutlayer.wire.security.tokens import Tokens, digest


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "records.jsonl").write_text('{"kind": "step", "global_step": 1, "loss": 2.5}\n')
    return tmp_path


def ask(
    live: Live,
    path: str,
    method: str = "GET",
    access: Access | None = None,
    enough: Callable[[bytes], bool] = lambda body: False,
    **headers: str,
) -> tuple[int, dict[str, str], bytes]:
    """One request to the application itself, until its answer ends or is enough."""
    app = dashboard_app(live, access or Access())
    lines = [(b"host", b"localhost")] if "host" not in headers else []
    lines += [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "headers": lines, "query_string": b""}
    answer: dict[str, Any] = {"body": b""}
    ended = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if "asked" in answer:
            await ended.wait()
            return {"type": "http.disconnect"}
        answer["asked"] = True
        return {"type": "http.request", "body": b""}

    async def send(message: dict[str, Any]) -> None:
        answer.update({k: v for k, v in message.items() if k in ("status", "headers")})
        answer["body"] += message.get("body", b"")
        if enough(answer["body"]):
            ended.set()

    asyncio.run(app(scope | {"http_version": "1.1", "scheme": "http", "root_path": ""}, receive, send))
    found = {name.decode(): value.decode() for name, value in answer["headers"]}
    return answer["status"], found, answer["body"]


@pytest.mark.parametrize("path", ["/", "/style.css", "/script.js", "/chart.js", "/api/state"])
def test_everything_is_read_only_and_loads_nothing_from_elsewhere(run: Path, path: str) -> None:
    live = Live(Watcher(run))
    code, headers, body = ask(live, path)
    assert code == 200
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"
    assert b"http://" not in body.replace(b"http://www.w3.org/2000/svg", b"")
    assert b"https://" not in body
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
        assert ask(live, path, method)[0] == 405


def test_unknown_paths_do_not_lead_into_the_folder_of_the_run(run: Path) -> None:
    for path in ("/records.jsonl", "/../records.jsonl", "/static/../app.py", "//etc/passwd"):
        assert ask(Live(Watcher(run)), path)[0] == 404


@pytest.mark.parametrize(
    ("host", "code"),
    [("localhost:8080", 200), ("127.0.0.1:8080", 200), ("[::1]:8080", 200), ("evil.example", 421), ("", 421)],
)
def test_a_foreign_name_that_points_to_loopback_gets_nothing(run: Path, host: str, code: int) -> None:
    assert ask(Live(Watcher(run)), "/api/state", host=host)[0] == code
    beyond = Access("0.0.0.0:8080", Tokens({"ann": digest("secret")}))
    assert ask(Live(Watcher(run)), "/", access=beyond, host=host)[0] == 200


@pytest.mark.parametrize(
    ("site", "code"), [("same-origin", 200), ("none", 200), ("cross-site", 403), ("same-site", 403)]
)
def test_a_page_of_another_site_gets_no_data_and_no_place(run: Path, site: str, code: int) -> None:
    assert ask(Live(Watcher(run)), "/api/state", **{"sec-fetch-site": site})[0] == code


@pytest.mark.parametrize("path", ["/api/state", "/api/stream"])
def test_data_are_for_those_who_have_a_token(run: Path, path: str) -> None:
    access = Access("0.0.0.0:8080", Tokens({"ann": digest("secret")}))
    live = Live(Watcher(run))
    for given in ({}, {"authorization": "secret"}, {"authorization": "Bearer wrong"}):
        code, headers, body = ask(live, path, access=access, **given)
        assert (code, headers["www-authenticate"]) == (401, "Bearer")
        assert b"2.5" not in body
    good = {"authorization": "Bearer secret"}
    code, _, body = ask(live, path, access=access, enough=lambda body: b"curves" in body, **good)
    assert code == 200
    assert b"2.5" in body


def test_the_stream_tells_everything_once_and_then_what_changes(run: Path) -> None:
    live = Live(Watcher(run))
    seen: list[bytes] = []

    def enough(body: bytes) -> bool:
        if len(seen) == 0 and b'"loss": 2.5' in body:
            seen.append(body)
            event = {"time": "", "level": "warning", "event": "rollback", "step": 9, "reason": "test"}
            (run / "events.jsonl").write_text(json.dumps(event) + "\n")
        return b"going back to step 9: test" in body

    code, headers, body = ask(live, "/api/stream", enough=enough)
    assert (code, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    blocks = [block.split("\n", 1) for block in body.decode().split("\n\n") if block.startswith("event")]
    names = [name.removeprefix("event: ") for name, _ in blocks]
    assert names[:3] == ["run", "curves", "clients"]
    assert names.count("curves") == names.count("clients") == names.count("events") == 1
    assert live.viewers == 0


def test_too_many_pages_are_refused(run: Path) -> None:
    live = Live(Watcher(run))
    live.viewers = VIEWERS
    assert ask(live, "/api/stream")[0] == 503
    assert ask(live, "/api/state")[0] == 200


def test_places_to_listen(tmp_path: Path) -> None:
    some = tmp_path / "file"
    assert Place.parse("8080").address == "127.0.0.1:8080"
    assert Place.parse("[::1]:80").url(80) == "http://[::1]:80/"
    assert Place.parse("0.0.0.0:443", some, some, some).url(443).startswith("https://")
    for lacking in ((None, None, None), (some, some, None), (None, None, some)):
        with pytest.raises(CredentialError, match="will not show the dashboard"):
            Place.parse("0.0.0.0:8080", *lacking)
    with pytest.raises(CredentialError, match="belong together"):
        Place.parse("8080", some)
    with pytest.raises(UnreachableError, match="not an address"):
        Place.parse("somewhere")
    with Place.parse("0").listen() as taken, pytest.raises(UnreachableError, match="another program"):
        Place.parse(str(taken.getsockname()[1])).listen()
