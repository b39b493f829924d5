"""The page in a real browser: it renders in light and dark, without complaints, and fetches nothing."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from cutlayer.report.page import page
from cutlayer.reproduce.results import Result

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    # The browser itself has questions to its makers; they shall not leave this machine.
    "--host-resolver-rules=MAP * ~NOTFOUND",
]
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here; apt-get install chromium")


def browse(url: Path, profile: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    assert BROWSER is not None
    return subprocess.run(
        [BROWSER, *FLAGS, f"--user-data-dir={profile}", *flags, url.as_uri()],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=True,
    )


def background(picture: Path) -> tuple[int, ...]:
    with Image.open(picture) as image:
        colour = image.convert("RGB").getpixel((2, 2))
    assert isinstance(colour, tuple)
    return colour


def requests(net: Path) -> list[str]:
    """What the page, and not the browser itself, asked for."""
    found = []
    for event in json.loads(net.read_text())["events"]:
        about = event.get("params", {})
        if "url" in about and about.get("initiator", "not an origin") != "not an origin":
            found.append(about["url"])
    return [url for url in found if not url.startswith("data:")]


def test_what_is_looked_for_would_be_seen(tmp_path: Path) -> None:
    path, net = tmp_path / "bad.html", tmp_path / "net.json"
    path.write_text("<img src='http://example.org/x'><script>nothing()</script>")
    seen = browse(path, tmp_path / "a", f"--log-net-log={net}", "--enable-logging=stderr", "--dump-dom")
    assert "CONSOLE" in seen.stderr
    assert "http://example.org/x" in requests(net)


def test_renders_in_light_and_dark_without_errors_or_requests(
    result: Result, hostile: Result, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    path.write_text(page([result, hostile]), encoding="utf-8")
    net = tmp_path / "net.json"
    shot = [f"--screenshot={tmp_path / 'light.png'}", "--window-size=1200,900", f"--log-net-log={net}"]
    light = browse(path, tmp_path / "a", *shot, "--enable-logging=stderr")
    assert "CONSOLE" not in light.stderr, light.stderr
    assert requests(net) == []
    assert background(tmp_path / "light.png") == (255, 255, 255)

    dark = [f"--screenshot={tmp_path / 'dark.png'}", "--window-size=1200,900"]
    browse(path, tmp_path / "b", *dark, "--blink-settings=preferredColorScheme=0")
    assert background(tmp_path / "dark.png") == (0x16, 0x18, 0x1C)
    with Image.open(tmp_path / "dark.png") as image:
        assert len(image.convert("RGB").getcolors(1 << 20) or []) > 100, "plots and text are drawn"


def test_the_script_shows_values_under_the_pointer(result: Result, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    # What a pointer does, and then what there is to see.
    probe = (
        "<script>const m=document.querySelectorAll('.mark[data-tip]')[1];"
        "m.dispatchEvent(new MouseEvent('mouseover',{bubbles:true}));"
        "const t=document.getElementById('tip');document.body.dataset.shown=t.style.opacity;</script></body>"
    )
    path.write_text(page([result]).replace("</body>", probe), encoding="utf-8")
    dom = browse(path, tmp_path / "a", "--dump-dom").stdout
    assert 'data-shown="1"' in dom
    told = re.search(r'<div id="tip"[^>]*>([^<]*)</div>', dom)
    assert told is not None
    assert told[1].splitlines() == [
        "MS(0.99, 2)",
        "smashed data up, MB: 4",
        "test accuracy, %: 70",
        "from 69 to 71",
    ]
    assert dom.count("<title>") == 1, "no second tip of the browser's own"
