"""Files that another process writes: each line once, and from the beginning when the file is another one."""

import json
import os
from pathlib import Path

from cutlayer.dashboard import follow
from cutlayer.dashboard.follow import Follower, News


def line(number: int) -> str:
    return json.dumps({"global_step": number}) + "\n"


def test_each_line_comes_once_and_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    follower = Follower(path)
    assert follower.read() == News()
    path.write_text(line(1) + line(2)[:-1])
    assert follower.read().lines == [{"global_step": 1}]
    with path.open("a") as file:
        file.write("\nno json\n[1]\n" + line(3))
    assert follower.read().lines == [{"global_step": 2}, {"global_step": 3}]
    assert follower.read() == News()


def test_a_file_that_is_cut_back_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text("".join(map(line, range(5))))
    follower = Follower(path)
    follower.read()
    os.truncate(path, len(line(0)))
    assert follower.read() == News([{"global_step": 0}], restarted=True)


def test_a_file_that_was_cut_back_and_has_grown_since_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text("".join(map(line, range(5))))
    follower = Follower(path)
    follower.read()
    path.write_text("".join(map(line, (0, 1, 7, 8, 9, 10, 11, 12))))
    found = follower.read()
    assert found.restarted
    assert [r["global_step"] for r in found.lines] == [0, 1, 7, 8, 9, 10, 11, 12]


def test_a_file_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    path, other = tmp_path / "records.jsonl", tmp_path / "other"
    path.write_text(line(1))
    follower = Follower(path)
    follower.read()
    assert follower.read() == News()
    other.write_text(line(1) + line(2))
    other.replace(path)
    assert follower.read() == News([{"global_step": 1}, {"global_step": 2}], restarted=True)
    path.unlink()
    assert follower.read() == News(restarted=True)


def test_a_large_file_comes_in_pieces(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(follow, "_CHUNK", 64)
    path = tmp_path / "records.jsonl"
    path.write_text("".join(map(line, range(10))) + "x" * 200 + "\n" + line(10))
    follower, found = Follower(path), []
    while (news := follower.read()).more:
        found += news.lines
    assert [r["global_step"] for r in found + news.lines] == list(range(11))
