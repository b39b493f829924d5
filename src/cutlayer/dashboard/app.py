"""The dashboard as an ASGI application: one page, its data, and a stream of server-sent events. GET only."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.resources import files

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from cutlayer.dashboard.access import HEADERS, Access
from cutlayer.dashboard.live import Live

_FILES = {
    "/": ("index.html", "text/html"),
    "/style.css": ("style.css", "text/css"),
    "/chart.js": ("chart.js", "text/javascript"),
    "/script.js": ("script.js", "text/javascript"),
}
#: Pages that may be open at the same time.
VIEWERS = 32
# Without news, a sign of life.
_BEAT = 5.0

Endpoint = Callable[[Request], Awaitable[Response]]


def dashboard_app(live: Live, access: Access) -> Starlette:
    """The application. Whoever has no token gets the empty page, which asks for one, and no data."""

    async def state(_: Request) -> Response:
        await live.look()
        return _reply(json.dumps(live.everything()), "application/json")

    async def stream(_: Request) -> Response:
        if live.viewers >= VIEWERS:
            return _reply("too many pages are open", "text/plain", 503)
        return StreamingResponse(_events(live), headers=HEADERS, media_type="text/event-stream")

    routes = [Route(path, _guarded(_static(*about), access, False)) for path, about in _FILES.items()]
    routes += [
        Route("/api/state", _guarded(state, access, True)),
        Route("/api/stream", _guarded(stream, access, True)),
    ]
    return Starlette(routes=routes)


def _static(name: str, kind: str) -> Endpoint:
    content = files("cutlayer.dashboard").joinpath("static", name).read_text(encoding="utf-8")

    async def reply(_: Request) -> Response:
        return _reply(content, kind)

    return reply


def _guarded(endpoint: Endpoint, access: Access, data: bool) -> Endpoint:
    async def reply(request: Request) -> Response:
        if not access.right_host(request.headers):
            return _reply("this dashboard is for its own machine: use http://127.0.0.1", "text/plain", 421)
        if data and not access.own_page(request.headers):
            return _reply("only the dashboard's own page may ask", "text/plain", 403)
        if data and not access.may_read(request.headers):
            refused = _reply("a token is needed", "text/plain", 401)
            refused.headers["WWW-Authenticate"] = "Bearer"
            return refused
        return await endpoint(request)

    return reply


def _reply(content: str, kind: str, code: int = 200) -> Response:
    return Response(content, code, headers=HEADERS, media_type=kind)


async def _events(live: Live) -> AsyncIterator[str]:
    """What one page gets: everything at first, then what changes."""
    sent: dict[str, str] = {}
    rows: dict[int, str] = {}
    last_event = 0
    spoke = time.monotonic()
    async for everything in live.changes():
        texts = []
        for name in ("run", "curves"):
            text = json.dumps(everything[name])
            if sent.get(name) != text:
                sent[name] = text
                texts.append(_event(name, text))
        changed = [c for c in everything["clients"] if rows.get(c["client"]) != json.dumps(c)]
        if changed or "clients" not in sent:
            sent["clients"] = ""
            rows |= {c["client"]: json.dumps(c) for c in changed}
            texts.append(_event("clients", json.dumps(changed)))
        new = [event for event in everything["events"] if event["id"] > last_event]
        if new:
            last_event = new[-1]["id"]
            texts.append(_event("events", json.dumps(new)))
        if texts or time.monotonic() - spoke > _BEAT:
            spoke = time.monotonic()
            yield "".join(texts) or ": still here\n\n"


def _event(name: str, data: str) -> str:
    return f"event: {name}\ndata: {data}\n\n"
