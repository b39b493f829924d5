"""A run logged to trackio, beside the run's own records.

python docs/examples/track_run.py
"""

import tempfile
from pathlib import Path

from cutlayer.config.schema import load
from cutlayer.integrations.tracker import Tracker
from cutlayer.training.train import train

with tempfile.TemporaryDirectory() as folder:
    settings = ["train.epochs=1", "train.clients=2", "data.limit=200", "output.tensorboard=false"]
    config = load(None, [*settings, f"output.dir={Path(folder, 'digits')}"])
    tracker = Tracker("trackio", config, project="cutlayer-example")
    try:
        result = train(config, listeners=[tracker])
    finally:
        tracker.close()
    print("steps:", result.steps)
