"""The rehearsal on the deployment page runs as printed: TLS, tokens, two clients, and a model at the end."""

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "deployment.md"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_the_rehearsal_runs_as_printed(tmp_path: Path) -> None:
    block = re.search(r"^```sh\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert block is not None
    assert block[1].count("50551") == 3
    # All but the port, which may be taken on this machine.
    script = block[1].replace("50551", str(free_port()))
    tools, here = tmp_path / "bin", tmp_path / "here"
    tools.mkdir()
    here.mkdir()
    program = tools / "cutlayer"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from cutlayer.cli import main; main()" "$@"\n')
    program.chmod(0o755)
    paths = [str(Path(p).resolve()) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    environment = {
        **os.environ,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": "1",
    }
    with subprocess.Popen(
        ["bash", "-eu", "-c", script], cwd=here, env=environment, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate(timeout=240)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, output
    assert "top-1" in output, output
    assert len(re.findall(r"client [01] did \d+ steps", output)) == 2, output
    secrets = [path.read_text().strip() for path in here.glob("certs/*.token")]
    assert len(secrets) == 2
    for path in here.glob("runs/**/*"):
        if path.is_file():
            assert not any(secret.encode() in path.read_bytes() for secret in secrets), path
    assert not any(secret in output for secret in secrets)
