"""Push damaged frames through `decode`: only named errors may come out.

    python tests/fuzz/run.py --frames 20000 [--seed 0] [--native path/to/_native.so]

Prints one line of JSON with what was seen. Any other exception, or memory beyond the limit, ends it with
the frame in hex.
"""

import argparse
import collections
import importlib.util
import json
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

LIMIT = 1 << 16  # elements: what a frame may make us allocate
# Python, torch and caches grow a little by themselves; a single absurd allocation would be far above this.
ROOM = 256 << 10  # KiB


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--frames", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--native", help="the compiled kernels to test, instead of the installed ones")
    parser.add_argument("--implementation", default="native")
    parser.add_argument("--only", help="a codec; damage only its frames")
    options = parser.parse_args()
    if options.native:
        load(options.native)

    import torch
    from damage import corpus, damaged

    import cutlayer
    from cutlayer.codecs.kernels import dispatch as kernels
    from cutlayer.errors import FrameError

    torch.set_num_threads(2)
    outcomes: collections.Counter[str] = collections.Counter()
    supply = damaged(corpus(options.only, large=options.implementation == "native"), options.seed)
    started = time.monotonic()
    with kernels.using(options.implementation):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(options.frames):
            frame = next(supply)
            try:
                decoded = cutlayer.decode(frame, max_elements=LIMIT)
                if decoded.numel() > LIMIT or not torch.isfinite(decoded).all():
                    raise AssertionError("decoded to something that no encoder takes")
                outcomes["decoded"] += 1
            except FrameError as error:
                if type(error) is FrameError:
                    raise AssertionError("an error without a name of its own") from error
                outcomes[type(error).__name__] += 1
            except BaseException:
                print(f"seed {options.seed}, frame {frame.hex()}", file=sys.stderr)
                raise
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if grown > ROOM:
        print(f"memory grew by {grown} KiB", file=sys.stderr)
        return 1
    seconds = round(time.monotonic() - started, 1)
    print(json.dumps({"frames": options.frames, "seconds": seconds, "grown_kib": grown, **outcomes}))
    return 0


def load(path: str) -> None:
    """Put these kernels in the place of the installed ones."""
    spec = importlib.util.spec_from_file_location("cutlayer._native", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["cutlayer._native"] = module


if __name__ == "__main__":
    sys.exit(main())
