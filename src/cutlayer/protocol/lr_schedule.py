"""The learning rate at a place in the run: a pure function, so that resuming needs no state of it."""

import math

from cutlayer.config.schema import TrainConfig


def learning_rate(train: TrainConfig, epoch: int, step: int, steps_per_epoch: int) -> float:
    """The learning rate of a step. It changes between epochs, in the linear warm-up at each step."""
    warmup = train.warmup_epochs * steps_per_epoch
    done = epoch * steps_per_epoch + step + 1
    rise = done / warmup if done <= warmup else 1.0
    return rise * train.lr * _SCHEDULES[train.schedule](train, epoch)


def _constant(train: TrainConfig, epoch: int) -> float:
    return 1.0


def _cosine(train: TrainConfig, epoch: int) -> float:
    return 0.5 * (1 + math.cos(math.pi * epoch / train.epochs))


def _steps(train: TrainConfig, epoch: int) -> float:
    return float(train.gamma ** sum(epoch >= milestone for milestone in train.milestones))


def _every(train: TrainConfig, epoch: int) -> float:
    return float(train.gamma ** (epoch // train.period))


_SCHEDULES = {"constant": _constant, "cosine": _cosine, "steps": _steps, "every": _every}
