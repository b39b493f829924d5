"""Runs the commands of a page inside the page's process; `test_pages.py` puts calls of `sh` into its program.

`cutlayer` commands run in this process, which has PyTorch already; with a `&` behind, in one of their own.
Anything else is bash's. Training is cut to one epoch of 200 samples, so that a test takes seconds.
"""

import atexit
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from cutlayer import cli

SHORT = ["--epochs", "1", "--set", "data.limit=200"]
behind: list[int] = []


def lines(script: str) -> list[str]:
    """The commands of a block, one an entry; a line that ends with a backslash goes on in the next."""
    joined = script.replace("\\\n", " ").splitlines()
    return [line for line in joined if line.strip() and not line.lstrip().startswith("#")]


def words(line: str) -> list[str]:
    """A command in words, patterns of file names replaced by files."""
    found = []
    for word in shlex.split(line, comments=True):
        files = sorted(map(str, Path().glob(word))) if "*" in word else []
        found += files or [word]
    return found


def shortened(command: list[str]) -> list[str]:
    """The same command; if it trains, then not for long. A run that is resumed keeps its settings."""
    return [*command, *SHORT] if command[0] == "train" and "--resume" not in command else command


def cutlayer(command: list[str]) -> None:
    sys.argv = ["cutlayer", *shortened(command)]
    try:
        cli.main()
    except SystemExit as end:
        if end.code not in (0, None):
            raise RuntimeError(f"{shlex.join(sys.argv)} ended with {end.code}") from None
    sys.stdout.flush()


def start(command: list[str]) -> int:
    """A command in a process of its own, which has PyTorch already; its number."""
    pid = os.fork()
    if pid:
        return pid
    behind.clear()
    code = 1
    try:
        cutlayer(command)
        code = 0
    finally:
        os._exit(code)


def sh(script: str) -> None:
    for line in lines(script):
        program, *rest = words(line)
        if program == "wait":
            while behind:
                if os.waitpid(behind.pop(), 0)[1] != 0:
                    raise RuntimeError("a command in the background failed")
        elif program == "cutlayer" and rest[-1] == "&":
            behind.append(start(rest[:-1]))
        elif program == "cutlayer":
            cutlayer(rest)
        else:
            # The interpreter that has cutlayer is `python` in commands, too.
            line = line.replace("python ", f"{shlex.quote(sys.executable)} ", 1)
            subprocess.run(["bash", "-ec", line], check=True)


@atexit.register
def end() -> None:
    for pid in behind:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
