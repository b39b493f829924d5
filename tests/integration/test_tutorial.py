"""The commands of the tutorial "Between machines" run as printed: TLS, tokens, two clients."""

import re
import shlex
from pathlib import Path

from tests.ports import free_port
from website.pages import DOCS, blocks

PAGE = DOCS / "tutorials" / "between-machines.md"


def commands(script: str) -> list[str]:
    """The lines of a script, those that go on with a backslash joined."""
    return [line for line in script.replace("\\\n", " ").splitlines() if line.strip()]


def test_the_tutorial_runs_as_printed(nursery, tmp_path: Path) -> None:
    page = "".join(block.code for block in blocks(PAGE.read_text("utf-8")) if block.language == "sh")
    assert page.count("50551") == 3
    # All but the port, which may be taken on this machine.
    script = page.replace("50551", str(free_port()))
    behind, all_of_them = [], []
    try:
        for line in commands(script):
            if line == "wait":
                for process in behind:
                    assert process.wait() == 0, process.text
                continue
            program, *words = shlex.split(line)
            assert program == "cutlayer"
            waits = words[-1] != "&"
            process = nursery.start(*(words if waits else words[:-1]), cwd=tmp_path)
            all_of_them.append(process)
            if waits:
                assert process.wait() == 0, process.text
            else:
                behind.append(process)
    finally:
        for process in all_of_them:
            process.kill()
    output = "".join(process.text for process in all_of_them)
    assert "accuracy top5" in all_of_them[-1].text, output
    assert len(re.findall(r"client [01] did [1-9]\d* steps", output)) == 2, output
    secrets = [path.read_text().strip() for path in tmp_path.glob("certs/*.token")]
    assert len(secrets) == 2
    for path in tmp_path.glob("runs/**/*"):
        if path.is_file():
            assert not any(secret.encode() in path.read_bytes() for secret in secrets), path
    assert not any(secret in output for secret in secrets)
