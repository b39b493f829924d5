"""Spec strings, parameters and the table of codecs."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

import cutlayer
from cutlayer.codecs import codec_class, names
from cutlayer.codecs import fields as declared
from cutlayer.codecs.registry import BUILT_IN
from cutlayer.errors import ParameterError, SpecError, UnknownCodecError


@pytest.mark.parametrize(
    "spec",
    [
        "ms:ratio=0.99,bits=2",
        "sp:ratio=0.95875",
        "qu:bits=3",
        "rt:ratio=0.95875,alpha=0.1",
        "rk:ratio=0.5",
        "km:bits=4",
        "dense",
        "dense:dtype=float16",
        "ms:ratio=0.9,bits=4,rounding=nearest,values=bfloat16,scope=sample",
        "rt:ratio=0.9,alpha=0.2,draw=coin,store=keys,scope=tensor,seed=7",
        "ems:bpe=1.0",
        "ems:error=0.05,scope=sample",
        "ems:ratio=0.99,levels=3,rounding=nearest",
        "ems:step=2.0,rounding=stochastic",
        "ems:bpe=1.5,rounding=stochastic,scope=sample,seed=3",
        "splitfc:drop=0.9375,bpe=0.2",
        "fedlite:size=8,clusters=16",
        "slacc:low=2,high=6",
        "c3sl:merge=4",
        "uq:bpe=1.0",
    ],
)
def test_round_trip(spec: str) -> None:
    codec = cutlayer.codec(spec)
    assert str(codec) == spec
    assert cutlayer.codec(str(codec)) == codec
    assert hash(cutlayer.codec(spec)) == hash(codec)
    assert cutlayer.codec(codec) is codec


def test_defaults_are_the_papers_policies() -> None:
    assert str(cutlayer.codec("ms")) == "ms:ratio=0.99,bits=2"
    assert str(cutlayer.codec("sp")) == "sp:ratio=0.95875"
    assert str(cutlayer.codec("qu")) == "qu:bits=3"
    assert str(cutlayer.codec("ems")) == "ems:bpe=1.0"
    assert str(cutlayer.codec("ems:rounding=stochastic")) == "ems:step=2.0,rounding=stochastic"


def test_spaces_are_allowed() -> None:
    assert cutlayer.codec(" ms : ratio = 0.5 , bits = 3 ") == cutlayer.codec("ms:ratio=0.5,bits=3")


@pytest.mark.parametrize(
    ("spec", "error", "words"),
    [
        ("mss", UnknownCodecError, ["mss", "did you mean 'ms'", "dense"]),
        ("", UnknownCodecError, ["There are"]),
        ("ms:ration=0.9", ParameterError, ["ration", "did you mean 'ratio'", "bits"]),
        ("ms:bits=0", ParameterError, ["bits=0", "1 to 16"]),
        ("ms:bits=17", ParameterError, ["1 to 16"]),
        ("ms:bits=2.5", ParameterError, ["an integer"]),
        ("ms:ratio=1", ParameterError, ["ratio=1", "value < 1"]),
        ("ms:ratio=-0.1", ParameterError, ["0 <= value"]),
        ("ms:ratio=nan", ParameterError, ["ratio=nan"]),
        ("ms:rounding=nearst", ParameterError, ["floor, nearest", "did you mean 'nearest'"]),
        ("ms:bits", ParameterError, ["key=value"]),
        ("ms:bits=2,bits=3", ParameterError, ["twice"]),
        ("km:bits=9", ParameterError, ["1 to 8"]),
        ("rt:seed=-1", ParameterError, ["seed"]),
        ("ems:bpe=1,levels=3", ParameterError, ["one of bpe, error, levels and step"]),
        ("ems:rounding=floor", ParameterError, ["needs levels="]),
        ("ems:rounding=stochastic,error=0.1", ParameterError, ["step=, bpe= or levels="]),
        ("ems:rounding=stochastic,transform=dct", ParameterError, ["no transform"]),
        ("ems:step=1,transform=auto", ParameterError, ["not step="]),
        ("uq:bpe=1,step=1", ParameterError, ["one of bpe and step"]),
        ("slacc:low=5,high=3", ParameterError, ["more than high=3"]),
        ("ems:levels=128", ParameterError, ["0 to 127"]),
        ("ms,ratio=0.9", SpecError, ["colon", "ms:key=value"]),
        ("dense:float16", ParameterError, ["did you mean dtype=float16"]),
    ],
)
def test_a_wrong_spec_says_what_is_allowed(spec: str, error: type[SpecError], words: list[str]) -> None:
    with pytest.raises(error) as caught:
        cutlayer.codec(spec)
    for word in words:
        assert word in str(caught.value)


def test_wrong_types_are_refused() -> None:
    for wrong in (3, None, b"ms"):
        with pytest.raises(SpecError):
            cutlayer.codec(wrong)  # type: ignore[arg-type]
    with pytest.raises(ParameterError):
        replace(cutlayer.codec("ms"), bits=True)
    with pytest.raises(ParameterError):
        replace(cutlayer.codec("ms"), ratio="0.5")


def test_the_table_is_complete() -> None:
    """Every codec file stands in the table, and the table in FORMAT.md."""
    package = Path(declared.__file__).parent
    ids = [cls.id for cls in BUILT_IN.values()]
    assert len(set(ids)) == len(ids)
    assert list(BUILT_IN) == names()[: len(BUILT_IN)]
    text = (Path(__file__).parents[2] / "FORMAT.md").read_text()
    for name, cls in BUILT_IN.items():
        assert (package / f"{name}.py").is_file() or (package / "rivals" / f"{name}.py").is_file()
        assert codec_class(name) is cls
        assert cls.name == name
        assert cls.advice
        assert f"| {cls.id} | `{name}` |" in text
        assert all(f.name in declared.parameters(cls) for f in fields(cls))
