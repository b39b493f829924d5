"""`train`: a configuration in, a run directory and a result out.

The directory holds `config.toml`, `data.json`, `provenance.json`, `records.jsonl`, `checkpoints/` and,
unless switched off, TensorBoard events in `tensorboard/`. It can be resumed at any time, also after
SIGKILL.
"""

from pathlib import Path

import torch

from cutlayer.config.resolve import refuse_existing_run
from cutlayer.config.schema import Config
from cutlayer.data.federated import FederatedData
from cutlayer.interrupt import Interrupt
from cutlayer.tasks import Task
from cutlayer.training.build import build_trainer
from cutlayer.training.gradient_bias import BiasTracker
from cutlayer.training.local_run import local_run
from cutlayer.training.progress import Display, Quiet
from cutlayer.training.trainer import Result


def train(
    config: Config,
    *,
    progress: Display | None = None,
    resume: bool = False,
    data: FederatedData | None = None,
    task: Task | None = None,
) -> Result:
    """Train as configured. With `resume`, continue from the newest whole checkpoint, if there is one.

    `data` can be given by a caller who has loaded it already, and `task` by one who has a task of its own.
    The global random state of PyTorch is the same afterwards as before. Ctrl-C lets the step end and be
    saved, then raises KeyboardInterrupt.
    """
    directory = Path(config.output.dir)
    refuse_existing_run(directory, resume)
    with torch.random.fork_rng(devices=[]):
        run = local_run(config, data, task)
        tracker = BiasTracker(run, every=config.train.track_bias)
        trainer = build_trainer(config, lambda: run.server, progress or Quiet(), before_step=tracker)
        try:
            trainer.begin(resume)
            with Interrupt() as interrupt:
                return trainer.complete(interrupt)
        finally:
            trainer.close()
