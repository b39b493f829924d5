"""Fuzz `decode` with kernels built under AddressSanitizer and UndefinedBehaviorSanitizer.

    python tests/fuzz/sanitized.py --frames 1000000
    python tests/fuzz/sanitized.py --frames 1000000 --only ms sp --isa avx2 --seed 7   a part of it
    python tests/fuzz/sanitized.py --frames 1000000 --each                             so many of every codec

Builds into build/sanitized (needs a C++ compiler and CMake), then runs `run.py` in two processes. Each
instruction set of this processor gets an equal share of the frames, unless `--isa` or CUTLAYER_ISA names
some. Every share prints a line of JSON when it is done, so a long run can be stopped and continued.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from cutlayer import _native
from cutlayer.codecs.kernels.instruction_set import NAMES, VARIABLE
from cutlayer.codecs.registry import BUILT_IN

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "sanitized"
CODECS = list(BUILT_IN)


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
    parser.add_argument("--only", nargs="+", help="codecs; so many frames of each of them, damaged alone")
    parser.add_argument("--each", action="store_true", help="so many frames of every codec, as --only")
    parser.add_argument("--isa", nargs="+", choices=NAMES, help="instruction sets; all of this processor")
    options = parser.parse_args()
    native = build()
    environment = {
        **os.environ,
        "LD_PRELOAD": runtime(),
        # Python keeps memory to the end on purpose: leaks are not what this looks for.
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    named = os.environ.get(VARIABLE)
    sets = options.isa or ([named] if named else _native.instruction_sets())
    codecs = CODECS if options.each else options.only or [None]
    share, frames, seed = options.frames // (options.processes * len(sets)), 0, options.seed
    command = [sys.executable, Path(__file__).parent / "run.py", "--frames", str(share), "--native", native]
    for codec in codecs:
        for isa in sets:
            only = ["--only", codec] if codec else []
            runs = [
                subprocess.Popen(
                    [*command, *only, "--seed", str(seed + k)],
                    env={**environment, VARIABLE: isa},
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for k in range(options.processes)
            ]
            told = [(run.communicate()[0].strip(), run.returncode) for run in runs]
            print(isa, codec or "all codecs", f"from seed {seed}", file=sys.stderr, flush=True)
            print(*(out for out, _ in told), sep="\n", flush=True)
            if any(code for _, code in told):
                return 1
            seed, frames = seed + options.processes, frames + share * options.processes
    print(json.dumps({"frames": frames, "sets": sets, "sanitizer_reports": 0}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
