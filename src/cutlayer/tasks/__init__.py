"""What a model is trained for: what targets are and how they travel, the loss, and the metrics.

Built in are classification, multilabel, regression, segmentation and language; a user's own task is a
subclass of `Task`. A task knows outputs and targets. It must not know models, clients, servers or files.
"""

from cutlayer.tasks.allowed import ANY_TASK, AllowedTasks
from cutlayer.tasks.base import Floats, Integers, Target, Task
from cutlayer.tasks.metric import Metric
from cutlayer.tasks.registry import TASKS, build, chosen

__all__ = [
    "ANY_TASK",
    "TASKS",
    "AllowedTasks",
    "Floats",
    "Integers",
    "Metric",
    "Target",
    "Task",
    "build",
    "chosen",
]
