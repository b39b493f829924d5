"""Fuzz `decode` with kernels built under AddressSanitizer and UndefinedBehaviorSanitizer.

    python tests/fuzz/sanitized.py --frames 1000000

Builds into build/sanitized (needs a C++ compiler and CMake), then runs `run.py` in two processes. Each
instruction set of this processor gets an equal share of the frames, unless CUTLAYER_ISA names one.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from cutlayer import _native
from cutlayer.codecs.kernels.instruction_set import VARIABLE

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "sanitized"


def build() -> Path:
    """The sanitized kernels."""
    cmake = shutil.which("cmake", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if not cmake or not shutil.which("c++"):
        sys.exit("fuzzing needs cmake and a C++ compiler")
    flags = ["-DCUTLAYER_SANITIZE=ON", "-DCMAKE_BUILD_TYPE=Debug", f"-DPython_EXECUTABLE={sys.executable}"]
    subprocess.run([cmake, "-S", ROOT, "-B", BUILD, *flags], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([cmake, "--build", BUILD, "--parallel", "2"], check=True, stdout=subprocess.DEVNULL)
    return next(BUILD.glob("_native*.so"))


def runtime() -> str:
    """The sanitizer's library, which must come before all others in a Python that was built without it.

    And that of C++, in which it looks for what throws exceptions before the kernels are loaded.
    """
    names = ("libasan.so", "libstdc++.so")
    found = [subprocess.check_output(["c++", f"-print-file-name={name}"], text=True) for name in names]
    return " ".join(str(Path(name.strip()).resolve()) for name in found)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", help="a codec; damage only its frames")
    options = parser.parse_args()
    native = build()
    environment = {
        **os.environ,
        "LD_PRELOAD": runtime(),
        # Python keeps memory to the end on purpose: leaks are not what this looks for.
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    sets = [os.environ[VARIABLE]] if os.environ.get(VARIABLE) else _native.instruction_sets()
    share = options.frames // (options.processes * len(sets))
    command = [sys.executable, Path(__file__).parent / "run.py", "--frames", str(share), "--native", native]
    command += ["--only", options.only] if options.only else []
    for k, isa in enumerate(sets):
        seeds = range(options.seed + k * options.processes, options.seed + (k + 1) * options.processes)
        runs = [
            subprocess.Popen(
                [*command, "--seed", str(seed)],
                env={**environment, VARIABLE: isa},
                stdout=subprocess.PIPE,
                text=True,
            )
            for seed in seeds
        ]
        told = [(run.communicate()[0].strip(), run.returncode) for run in runs]
        print(isa, file=sys.stderr)
        print(*(out for out, _ in told), sep="\n", flush=True)
        if any(code for _, code in told):
            return 1
    print(json.dumps({"frames": share * options.processes * len(sets), "sets": sets, "sanitizer_reports": 0}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
