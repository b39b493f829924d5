import pytest

from cutlayer.reproduce.results import Axis, Claim, Plot, Result, Series, Table

HOSTILE = "</title></script><script>alert(1)</script><img src=http://example.org/x onerror=alert(2)>\x00&'\""


def example(name: str = "MS(0.99, 2)") -> Result:
    """A result with every kind of plot, and values that are missing."""
    x = Axis("smashed data up, MB", log=True)
    y = Axis("test accuracy, %")
    line = [
        Series(name, [1.0, 2.0, 4.0], [50.0, None, 70.0], [49.0, None, 69.0], [51.0, None, 71.0]),
        Series("none", [14.0, 28.0, 56.0], [52.0, 61.0, 71.5]),
    ]
    bars = [Series("encode", ["sp", "ms"], [1.5, 2.5], [1.4, 2.0], [1.6, 3.0])]
    return Result(
        name="example",
        scale="smoke",
        title=f"A result of {name}",
        claims=[Claim(f"{name} is good", "partly", "as told")],
        tables=[Table("t", f"Table of {name}", ("policy", "accuracy", "saved"), [[name, 70.0, None]])],
        plots=[
            Plot("bytes-shallow", "Accuracy against bytes", "line", x, y, line),
            Plot("bars", "Times", "bar", Axis("codec"), Axis("ms"), bars),
            Plot("cloud", "Bounds", "scatter", Axis("measured", True), Axis("bound", True), line),
        ],
        commands=[f"cutlayer reproduce example --codec {name}"],
        provenance={"cpu": name},
    )


@pytest.fixture
def result() -> Result:
    return example()


@pytest.fixture
def hostile() -> Result:
    return example(HOSTILE)
