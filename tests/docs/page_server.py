"""Runs the programs of pages in processes of their own without loading PyTorch for each: it forks.

Started as a program, it loads everything once, then forks a child for each line of JSON on standard input:
{"script": path, "cwd": path, "output": path}. When the child has ended, it answers with its exit code.
"""

import atexit
import json
import os
import runpy
import signal
import sys
import traceback
import warnings
from pathlib import Path

SECONDS = 300


def preload() -> None:
    import sklearn.datasets  # noqa: F401
    import torch

    import cutlayer.api.train
    import cutlayer.cli

    cutlayer.cli.program()  # imports all commands
    torch.set_num_threads(1)
    # An optimizer's first step loads seconds' worth of PyTorch's compiler.
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    torch.optim.SGD([parameter], lr=0.1, momentum=0.9).step()


def child(script: str, cwd: str, output: str) -> None:
    os.setsid()
    signal.alarm(SECONDS)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT, 0o600), 1)
    os.dup2(os.open(f"{output}.errors", os.O_WRONLY | os.O_CREAT, 0o600), 2)
    sys.stdout, sys.stderr = (os.fdopen(fd, "w", encoding="utf-8") for fd in (1, 2))
    os.chdir(cwd)
    sys.path.insert(0, cwd)
    sys.argv = [script]
    warnings.simplefilter("error")
    code = 0
    try:
        runpy.run_path(script, run_name="__main__")
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    preload()
    sys.path.insert(0, str(Path(__file__).parent))
    print("ready", flush=True)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            child(**json.loads(line))
        print(os.waitpid(pid, 0)[1], flush=True)
    # Taking down PyTorch object by object would take a second.
    os._exit(0)


if __name__ == "__main__":
    main()
