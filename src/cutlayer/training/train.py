"""`train`: a configuration in, a run directory and a result out.

The directory holds `config.toml`, `data.json`, `provenance.json`, `records.jsonl`, `checkpoints/`,
`status.json` and `events.jsonl` for whoever watches the run and, unless switched off, TensorBoard events in
`tensorboard/`. It can be resumed at any time, also after SIGKILL.
"""

from collections.abc import Sequence
from pathlib import Path

from cutlayer.config.resolve import refuse_existing_run
from cutlayer.config.schema import Config
from cutlayer.data.federated import FederatedData
from cutlayer.interrupt import Interrupt
from cutlayer.protocol.objects import BY_NAME, RunObjects
from cutlayer.tasks import Task
from cutlayer.training.build import build_trainer
from cutlayer.training.gradient_bias import BiasTracker
from cutlayer.training.local_run import LocalRun, local_run
from cutlayer.training.progress import Display, Quiet
from cutlayer.training.result import Result
from cutlayer.training.status.run_status import RunStatus
from cutlayer.training.status.watched_display import WatchedDisplay
from cutlayer.training.trainer import Listener


def train(
    config: Config,
    *,
    progress: Display | None = None,
    resume: bool = False,
    data: FederatedData | None = None,
    listeners: Sequence[Listener] = (),
    task: Task | None = None,
) -> Result:
    """Train as configured. With `resume`, continue from the newest whole checkpoint, if there is one.

    `data` can be given by a caller who has loaded it already, and `task` by one who has a task of its own.
    `listeners` are told each step and epoch. The global random state of PyTorch is the same afterwards as
    before, and runs in other threads do not matter. Ctrl-C lets the step end and be saved, then raises
    KeyboardInterrupt.
    """
    objects = BY_NAME if task is None else RunObjects(make_task=lambda train: task)
    return train_objects(
        config, progress=progress, resume=resume, data=data, objects=objects, listeners=listeners
    )[0]


def train_objects(
    config: Config,
    *,
    progress: Display | None = None,
    resume: bool = False,
    data: FederatedData | None = None,
    objects: RunObjects = BY_NAME,
    listeners: Sequence[Listener] = (),
    interrupt: Interrupt | None = None,
) -> tuple[Result, LocalRun]:
    """As `train`, with objects in place of names; the run is given, too.

    `listeners` are told steps and epochs, and may stop the run by `interrupt`.
    """
    directory = Path(config.output.dir)
    refuse_existing_run(directory, resume)
    run = local_run(config, data, objects=objects)
    tracker = BiasTracker(run, every=config.train.track_bias)
    status = RunStatus(directory)
    shown = WatchedDisplay(status, progress or Quiet())
    trainer = build_trainer(config, lambda: run.server, shown, listeners=listeners, before_step=tracker)
    try:
        with status:
            trainer.begin(resume)
            with interrupt or Interrupt() as interrupt:
                return trainer.complete(interrupt), run
    finally:
        trainer.close()
