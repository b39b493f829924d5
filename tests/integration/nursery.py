"""Runs `cutlayer` commands as processes of their own without loading PyTorch for each: it forks.

Started as a program, it loads everything once and then forks a child for each line of JSON on standard
input: {"args": [...], "output": path, "cwd": path, "env": {...}}. It answers with the child's process id. A
child writes its exit code beside its output. When the input ends, all children are killed.
"""

import atexit
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path


def preload() -> None:
    import sklearn.datasets  # noqa: F401
    import torch

    torch.set_num_threads(1)

    # An optimizer's first step loads seconds' worth of PyTorch's compiler.
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    torch.optim.SGD([parameter], lr=0.1, momentum=0.9).step()


def child(request: dict) -> None:
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    output = Path(request["output"])
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(fd, mode) for fd, mode in ((0, "r"), (1, "w"), (2, "w")))
    os.chdir(request["cwd"])
    os.environ.update(request["env"])
    sys.path[:0] = [path for path in request["env"].get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.argv = ["cutlayer", *request["args"]]
    code: object = 0
    try:
        from cutlayer.cli import main

        main()
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    Path(f"{output}.exit").write_text(str(int(code or 0)))  # type: ignore[call-overload]
    # What is registered for the end runs; taking down PyTorch object by object would take a second.
    atexit._run_exitfuncs()
    os._exit(int(code or 0))  # type: ignore[call-overload]


def main() -> None:
    preload()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    children = []
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            child(request)
        children.append(pid)
        print(pid, flush=True)
    for pid in children:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
