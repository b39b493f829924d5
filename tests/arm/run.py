"""`make arm`: the kernels for arm64, cross-compiled, run under qemu-user, compared bit for bit.

Needs Debian's g++-aarch64-linux-gnu, qemu-user and apt, not a board: an arm64 Python is unpacked under
build/arm (nothing is installed), NumPy for it comes as a wheel. Golden frames are encoded and decoded there,
and so are the frames that the PyTorch reference makes here.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
BUILD = ROOT / "build" / "arm"
SYSTEM = BUILD / "system"
PACKAGES = ("python3-minimal", "libpython3-stdlib", "libpython3-dev", "libstdc++6")
WHEELS = ("filelock", "numpy", "rich", "safetensors", "typer", "typing-extensions")
TOOLS = {
    "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu",
    "qemu-aarch64": "qemu-user",
    "dpkg-deb": "dpkg",
    "apt-get": "apt",
}


def missing() -> list[str]:
    """The packages of tools that are not here."""
    return [package for tool, package in TOOLS.items() if not shutil.which(tool)]


def run(*command: str | Path, **environment: str) -> str:
    """What a command prints. If it fails, so does this program."""
    done = subprocess.run(
        [str(part) for part in command], env={**os.environ, **environment}, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{' '.join(str(part) for part in command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def unpack_system() -> None:
    """An arm64 Python and its headers, from Debian, in a folder. apt works in folders of its own."""
    if SYSTEM.exists():
        return
    apt = BUILD / "apt"
    for folder in ("lists/partial", "archives/partial"):
        (apt / folder).mkdir(parents=True, exist_ok=True)
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures::": "arm64",
        "APT::Sandbox::User": "",
        "Dir::State::lists": f"{apt}/lists",
        "Dir::State::status": "/dev/null",  # as if nothing were installed: all that is needed is downloaded
        "Dir::Cache": str(apt),
        "Dir::Cache::archives": f"{apt}/archives",
        "Debug::NoLocking": "true",
    }
    get = ["apt-get", *(part for key, value in settings.items() for part in ("-o", f"{key}={value}")), "-qq"]
    run(*get, "update")
    run(*get, "-y", "--no-install-recommends", "--download-only", "install", *PACKAGES)
    fresh = BUILD / "fresh"
    shutil.rmtree(fresh, ignore_errors=True)
    for archive in sorted((apt / "archives").glob("*.deb")):
        run("dpkg-deb", "-x", archive, fresh)
    fresh.rename(SYSTEM)


def version() -> str:
    """The version of the arm64 Python, as in 3.11."""
    return next((SYSTEM / "usr" / "bin").glob("python3.*[0-9]")).name.removeprefix("python")


def unpack_wheels() -> Path:
    """NumPy and what else codecs need, for arm64."""
    wheels, site = BUILD / "wheels", BUILD / "site"
    if not site.exists():
        platforms = [
            part for tag in ("2014", "_2_17", "_2_28") for part in ("--platform", f"manylinux{tag}_aarch64")
        ]
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps"]
        where = ["--only-binary=:all:", "--python-version", version(), "-d", wheels]
        run(*pip, *platforms, *where, *WHEELS)
        for wheel in wheels.glob("*.whl"):
            shutil.unpack_archive(wheel, site, "zip")
    return site


def compile_kernels() -> Path:
    """The package for arm64: this project's Python, and its kernels by the cross compiler."""
    include = SYSTEM / "usr" / "include"
    flags = [
        "-DCMAKE_SYSTEM_NAME=Linux",
        "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
        "-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++",
        f"-DCMAKE_CXX_FLAGS=-isystem {include}",
        f"-DPython_EXECUTABLE={sys.executable}",
        f"-DPython_INCLUDE_DIR={include / f'python{version()}'}",
    ]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    cmake = shutil.which("cmake", path=path) or sys.exit("make arm needs cmake: pip install cmake")
    run(cmake, "-S", ROOT, "-B", BUILD / "kernels", *flags)
    run(cmake, "--build", BUILD / "kernels", "--parallel", str(os.cpu_count() or 1))
    package = BUILD / "package"
    shutil.rmtree(package, ignore_errors=True)
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "src" / "cutlayer", package / "cutlayer", ignore=ignored)
    (built,) = (BUILD / "kernels").glob("_native*.so")
    shutil.copy(built, package / "cutlayer" / "_native.so")
    return package


def main() -> None:
    """See the module."""
    if lacking := missing():
        sys.exit(f"arm64 cannot be tested here: apt-get install {' '.join(lacking)}")
    unpack_system()
    site, package = unpack_wheels(), compile_kernels()
    run(sys.executable, HERE / "vectors.py", BUILD)
    arm = {
        "QEMU_LD_PREFIX": str(SYSTEM),
        "PYTHONHOME": str(SYSTEM / "usr"),
        "PYTHONPATH": f"{package}{os.pathsep}{site}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "2",
        # A processor without SVE: with it, matrix products of NumPy (OpenBLAS) are wrong under qemu.
        "QEMU_CPU": "cortex-a72",
    }
    python = ["qemu-aarch64", SYSTEM / "usr" / "bin" / f"python{version()}"]
    machine = run(*python, "-c", "import platform; print(platform.machine())", **arm).strip()
    if machine != "aarch64":
        sys.exit(f"this should have run as aarch64, not {machine}")
    golden = ROOT / "tests" / "golden" / "without_torch.py"
    (there, _), (here, _) = (
        json.loads(text) for text in (run(*python, golden, **arm), run(sys.executable, golden, "blocked"))
    )
    if there != here:
        sys.exit(f"decoded to other values: {sorted(name for name in here if there.get(name) != here[name])}")
    told = run(*python, HERE / "check.py", BUILD, **arm).strip()
    print(f"{machine}: {len(there)} golden frames equal; {told}")


if __name__ == "__main__":
    main()
