"""The options of `load`: split, image size, held-out share, limit, cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cutlayer.errors import DataError

Split = Literal["train", "test"]

#: What the target columns of a table hold. `auto`: words are classes, numbers are floats.
TargetKind = Literal["auto", "classes", "bits", "floats"]

#: Called with (records decoded so far, records in all), from the thread that loads.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class LoadOptions:
    """The settings of `load`, in one value that every loader takes.

    `size` gives square images of that side (shortest side scaled, centre cut out); without it all
    images must share one size. `channels` is 1 or 3; without it, grey only if all images are.
    `test_fraction` and `split_seed` say what is held out where the data have no test part of
    their own. `limit` keeps that many samples, each class in proportion.

    `lazy` reads samples from their files each time they are asked for. Tables have `target` and `features`
    columns, and `target_kind` says what targets are. Text has `tokens` and `context`. `classes` is the number
    of classes where the data do not tell, `ignore` a value of masks that is none.
    """

    split: Split = "train"
    size: int | None = None
    channels: int | None = None
    test_fraction: float = 0.1
    split_seed: int = 0
    limit: int | None = None
    cache_dir: Path | None = None
    workers: int | None = None
    progress: Progress | None = None
    lazy: bool = False
    target: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    target_kind: TargetKind = "auto"
    tokens: Literal["characters", "bytes"] = "characters"
    context: int = 128
    classes: int | None = None
    ignore: int | None = None

    def __post_init__(self) -> None:
        """Check the settings before any file is touched."""
        if self.split not in ("train", "test"):
            raise DataError(f"split must be 'train' or 'test', not {self.split!r}")
        if self.channels not in (None, 1, 3):
            raise DataError(f"channels must be 1 or 3, not {self.channels}")
        if not 0 < self.test_fraction < 1:
            raise DataError(f"test_fraction must lie between 0 and 1, not be {self.test_fraction}")
        for name in ("size", "limit", "workers", "context", "classes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise DataError(f"{name} must be at least 1, not {value}")
