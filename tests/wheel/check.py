"""`make wheel`: install a wheel in an empty environment, without a compiler and without PyTorch, and use it.

Golden frames must be encoded to the bit and decoded there.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).parent
GOLDEN = HERE.parent / "golden"


def environment(folder: Path, *packages: str) -> Path:
    """A fresh environment with these packages, built by nobody; its interpreter."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    no_compiler = {**os.environ, "CC": "/no/compiler", "CXX": "/no/compiler"}
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-q", "--only-binary", ":all:"]
    subprocess.run([*pip, *packages], check=True, env=no_compiler)
    return python


def run(python: Path, *command: str, cwd: Path) -> str:
    """What a command prints. It sees nothing of this project but the wheel."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run([str(python), *command], cwd=cwd, env=clean, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """Check one wheel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    wheel = parser.parse_args().wheel.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = environment(folder / "empty", str(wheel))
        absent = "from importlib.util import find_spec; assert not any(map(find_spec, ('torch', 'grpc')))"
        run(python, "-c", absent, cwd=folder)
        # Copied, so that nothing beside the golden frames can be imported.
        shutil.copytree(GOLDEN, folder / "golden")
        found, said = json.loads(run(python, "golden/without_torch.py", cwd=folder))
        if len(found) < 50 or not all("pip install 'cutlayer[train]'" in text for text in said):
            raise SystemExit(f"{len(found)} golden frames, and {said}")
        run(python, "-m", "cutlayer", "codecs", cwd=folder)
        site = run(python, "-c", "import site; print(site.getsitepackages()[0])", cwd=folder).strip()
        size = sum(file.stat().st_size for file in Path(site).rglob("*") if file.is_file())
        told = f"{len(found)} golden frames without compiler and PyTorch, {size / 1e6:.0f} MB installed"
        print(f"{wheel.name}: {told}")


if __name__ == "__main__":
    main()
