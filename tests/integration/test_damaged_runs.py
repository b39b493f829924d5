"""What crashes and full disks leave in the directory of a run: it is cleared away, or named with a remedy."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cutlayer.training.records import read

KILLED = """
import resource, signal, sys, torch
from cutlayer.training import checkpoint

# As kill -9 would, the system ends the process within the write: at the first byte beyond the limit.
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
checkpoint.save(sys.argv[1], 999, {"x": torch.zeros(1_000_000)}, {})
"""


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def train(cluster, *flags: str):
    small = ("model.width=4", "data.limit=60", "train.clients=2", "train.epochs=2")
    small = (*small, "output.tensorboard=false", "train.checkpoint_every=2")
    sets = [part for setting in small for part in ("--set", setting)]
    return cluster.nursery.start("train", *sets, "--out", "run", "--threads", "1", *flags, cwd=cluster.folder)


def test_a_kill_within_a_checkpoint_leaves_nothing_behind_for_ever(cluster) -> None:
    assert train(cluster).wait() == 0
    run = cluster.folder / "run"
    before = files(run)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(run / "checkpoints")], check=False)
    assert killed.returncode == -signal.SIGXFSZ
    assert files(run) > before
    # The run is complete, so that no further checkpoint is written.
    resumed = train(cluster, "--resume")
    assert resumed.wait() == 0, resumed.text
    assert files(run) == before


@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_a_damaged_line_in_the_records_does_not_block_a_resumption(cluster, where: str) -> None:
    assert train(cluster).wait() == 0
    path = cluster.folder / "run" / "records.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    bad = {"first": 0, "middle": len(lines) // 2, "last": len(lines) - 1}[where]
    damaged = b"".join(b"\0" * 20 + b"\n" if n == bad else line for n, line in enumerate(lines))
    path.write_bytes(damaged)
    resumed = train(cluster, "--resume")
    assert resumed.wait() == 0, resumed.text
    assert "records.jsonl.damaged" in resumed.text
    assert path.with_name("records.jsonl.damaged").read_bytes() == damaged
    # What could be kept is kept.
    assert path.read_bytes().splitlines(keepends=True) == [x for n, x in enumerate(lines) if n != bad]
    # And it is not damaged any more.
    again = train(cluster, "--resume")
    assert again.wait() == 0
    assert "damaged" not in again.text


def test_damage_behind_the_checkpoint_is_repeated_by_the_run(cluster) -> None:
    assert train(cluster).wait() == 0
    run = cluster.folder / "run"
    path = run / "records.jsonl"
    steps = [(r["kind"], r["global_step"], r.get("loss")) for r in read(path)]
    newest = sorted((run / "checkpoints").glob("step-*"))[-1]
    newest.unlink()
    path.write_bytes(path.read_bytes() + b"{broken\n" + b"{broken again\n")
    resumed = train(cluster, "--resume")
    assert resumed.wait() == 0, resumed.text
    assert [(r["kind"], r["global_step"], r.get("loss")) for r in read(path)] == steps


def test_records_without_settings_are_named_with_a_remedy(cluster) -> None:
    assert train(cluster).wait() == 0
    run = cluster.folder / "run"
    settings = (run / "config.toml").read_text()
    (run / "config.toml").unlink()
    for flags in ((), ("--resume",)):
        # As `--out` alone would be resumed: without the settings.
        words = ("train", "--out", "run", "--threads", "1", *flags)
        refused = cluster.nursery.start(*words, cwd=cluster.folder)
        assert refused.wait() == 1
        assert "config.toml" in refused.text
        assert "--resume" in refused.text
        assert "another --out" in refused.text
        assert "Traceback" not in refused.text
    # The remedy works.
    (cluster.folder / "mine.toml").write_text(settings)
    words = ("train", "mine.toml", "--resume", "--out", "run", "--threads", "1")
    resumed = cluster.nursery.start(*words, cwd=cluster.folder)
    assert resumed.wait() == 0, resumed.text


def test_a_run_that_never_wrote_anything_can_be_started_again(cluster) -> None:
    run = cluster.folder / "run"
    run.mkdir()
    (run / "records.jsonl").touch()
    (run / "records.jsonl.lock").touch()
    started = train(cluster)
    assert started.wait() == 0, started.text


CURVES = """
import resource, sys
from pathlib import Path
from cutlayer.errors import FileError
from cutlayer.training.tensorboard import TensorBoard

log = TensorBoard(sys.argv[1])
log.step({"global_step": 1, "loss": 0.5})
size = max(path.stat().st_size for path in Path(sys.argv[1]).iterdir())
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1000, resource.RLIM_INFINITY))
try:
    for step in range(2, 10_000):
        log.step({"global_step": step, "loss": 0.5})
except FileError as error:
    print(error)
log.close()
"""


def test_curves_on_a_full_disk_are_an_error_and_no_traceback(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    done = subprocess.run(
        [sys.executable, "-c", CURVES, str(tmp_path / "curves")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "curves: cannot be written" in done.stdout
    assert "output.tensorboard=false" in done.stdout
    assert done.stderr == ""
