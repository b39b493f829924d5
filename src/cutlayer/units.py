"""Numbers for people: sizes, counts and durations with units."""

import math


def size(nbytes: float) -> str:
    """Bytes with a unit: 12.3 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(nbytes) < 999.5:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:.4g} TB"


def count(number: float) -> str:
    """A number with a unit: 11.2 M."""
    for unit in ("", " k", " M"):
        if abs(number) < 999.5:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.4g} G"


def duration(seconds: float) -> str:
    """Seconds as a duration: 1:02:03, 2:03, or 4.5 s."""
    if math.isnan(seconds):
        return "?"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
