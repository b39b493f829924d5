"""Whether a client's data fit the run: what it said of them is possible, and is what the others said.

A Ready comes from a peer. Everything in it is checked here, before the server makes anything of it.
"""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from cutlayer.config.schema import Config
from cutlayer.data.augment import AUGMENTATIONS
from cutlayer.data.form import DTYPES, DataForm, TensorForm
from cutlayer.data.spec import DataSpec
from cutlayer.errors import CutlayerError, NotNowError, RefusedError, UnreachableError
from cutlayer.models import AllowedModels
from cutlayer.protocol.build import prepare_model
from cutlayer.protocol.client_memory import check_memory
from cutlayer.protocol.handshake import data_spec_of
from cutlayer.protocol.tensor_forms import Forms, forms_at_cuts
from cutlayer.wire.address import parse_address

# A server builds the model for a sample of that shape and that many classes, and runs it once. These bounds
# keep what that takes to some hundred megabytes for the built-in models.
MOST_VALUES = 1 << 22
MOST_CLASSES = 1 << 16
# Of one client. A run in mode relay keeps eight bytes for each batch.
MOST_SAMPLES = 1 << 24
MOST_DIMENSIONS = 8
MOST_INPUTS = 16
# Of a vocabulary: a model has a row of weights for each.
MOST_TOKENS = 1 << 18
# Of a sequence of tokens: attention compares each with each.
LONGEST_SEQUENCE = 1 << 14
LONGEST_NAME = 256
# Far below what any image has, and far above what float32 cannot divide by.
SMALLEST_STD = 1e-9
# Of float features, which need not be small.
LARGEST_FEATURE = 1e12


def problem(spec: DataSpec) -> str | None:
    """What is impossible in a description of data that came from somebody else; None if nothing is."""
    shape = spec.shape
    images = len(shape) == 3
    if not 0 < len(shape) <= MOST_DIMENSIONS or min(shape) < 1 or (spec.pixels and not images):
        return f"samples cannot have the shape {_short(shape)}"
    if math.prod(shape) > MOST_VALUES:
        return f"samples of shape {_short(shape)} have more than {MOST_VALUES:,} values"
    if not 1 <= spec.classes <= MOST_CLASSES:
        return f"{spec.classes} classes; a run has 1 to {MOST_CLASSES:,}"
    wrong = form_problem(spec)
    if wrong is not None:
        return wrong
    if spec.class_names is not None and len(spec.class_names) != spec.classes:
        return f"{len(spec.class_names)} class names for {spec.classes} classes"
    if not all(map(_is_name, spec.class_names or ())):
        return f"class names have at most {LONGEST_NAME} characters, and no control characters"
    if not _is_name(spec.name):
        return f"the name of a data set has at most {LONGEST_NAME} characters, and no control characters"
    if spec.augment not in AUGMENTATIONS:
        return f"no augmentation has that name; there are: {', '.join(AUGMENTATIONS)}"
    if spec.size is not None and not (images and 1 <= spec.size <= min(shape[1:])):
        return f"samples of shape {_short(shape)} cannot be cut to a side of {spec.size}"
    if max(spec.samples, default=0) > MOST_SAMPLES:
        return f"{max(spec.samples):,} samples; a client has at most {MOST_SAMPLES:,}"
    return statistics_problem(spec.mean, spec.std, spec.form)


def form_problem(spec: DataSpec) -> str | None:
    """What is impossible in the inputs and the target that somebody else described; None if nothing is."""
    if spec.target is None:
        return "inputs without a target" if spec.inputs else None
    if spec.container not in ("tensor", "tuple", "dict"):
        return "inputs are a tensor, a tuple or a dict"
    count = len(spec.inputs)
    if not 1 <= count <= MOST_INPUTS or (spec.container == "tensor" and count > 1):
        return f"{count} inputs; a sample has 1 to {MOST_INPUTS}, and a single tensor is one"
    if len({tensor.name for tensor in spec.inputs}) != count:
        return "two inputs have the same name"
    for tensor in (*spec.inputs, spec.target):
        if tensor.dtype not in DTYPES:
            return f"no tensor has such a dtype; there are: {', '.join(DTYPES)}"
        if len(tensor.shape) > MOST_DIMENSIONS or min(tensor.shape, default=1) < 1:
            return f"a tensor cannot have the shape {_short(tensor.shape)}"
        if math.prod(tensor.shape) > MOST_VALUES:
            return f"a tensor of shape {_short(tensor.shape)} has more than {MOST_VALUES:,} values"
        if not 0 <= tensor.values <= MOST_TOKENS or not _is_name(tensor.name):
            return "the name or the number of values of an input is impossible"
    if any(not tensor.shape for tensor in spec.inputs) or spec.inputs[0].shape != spec.shape:
        return f"the first input has another shape than {_short(spec.shape)}"
    longest = max((t.shape[0] for t in spec.inputs if t.dtype == "int64" and len(t.shape) == 1), default=0)
    if longest > LONGEST_SEQUENCE:
        return f"sequences of {longest:,} tokens; a sample has at most {LONGEST_SEQUENCE:,}"
    if spec.classes != spec.form.outputs:
        return f"{spec.classes} classes, but targets that need {spec.form.outputs} outputs"
    return _target_problem(spec.target, spec.form)


def _target_problem(target: TensorForm, form: DataForm) -> str | None:
    if target.dtype not in ("int64", "bool", "float32"):
        return "targets are int64, bool or float32"
    if target.dtype == "int64" and not 1 <= target.values <= MOST_CLASSES:
        return f"targets of {target.values} values; there can be 1 to {MOST_CLASSES:,}"
    if not 1 <= form.outputs <= MOST_CLASSES:
        return f"targets need {form.outputs} outputs; a run has 1 to {MOST_CLASSES:,}"
    return "images or features with class numbers need no further description" if form.plain else None


def statistics_problem(mean: tuple[float, ...], std: tuple[float, ...], form: DataForm) -> str | None:
    """What is impossible in the statistics of channels; None if nothing. Those of images are from 0 to 1."""
    channels = form.channels
    low, high = (0.0, 1.0) if form.pixels else (-LARGEST_FEATURE, LARGEST_FEATURE)
    if not len(mean) == len(std) == channels:
        return f"{len(mean)} means and {len(std)} standard deviations for {channels} channels"
    if not all(low <= value <= high for value in mean):
        return f"the mean of a channel is a number from {low:g} to {high:g}"
    if not all(SMALLEST_STD <= value <= high for value in std):
        return f"the standard deviation of a channel is a number from {SMALLEST_STD:g} to {high:g}"
    return None


class _Form(NamedTuple):
    """What all clients of a run have in common."""

    shape: tuple[int, ...]
    classes: int
    pixels: bool
    class_names: tuple[str, ...] | None
    inputs: tuple[TensorForm, ...]
    container: str
    target: TensorForm | None

    @staticmethod
    def of(spec: DataSpec) -> "_Form":
        about = (spec.shape, spec.classes, spec.pixels, spec.class_names)
        return _Form(*about, spec.inputs, spec.container, spec.target)

    def difference(self, other: "_Form", whose: str) -> str:
        names = ("shape", "number of classes", "being images", "class names", "inputs", "container", "target")
        name, a, b = next(found for found in zip(names, self, other, strict=True) if found[1] != found[2])
        return f"their {name} is {_short(a)}, {whose} {_short(b)}"


class Fits:
    """Refuses clients whose data do not fit the run. See `Membership` for when it is asked.

    When a run has begun, its data decide. Before, each client has one vote, its latest word: a form that more
    than half of all clients have counts, and who was ready with another one has to go. While there is none,
    those who are there count, and others may come again later. Who was ready and has left has no vote.
    """

    def __init__(
        self,
        config: Config,
        spec: DataSpec | None = None,
        *,
        evaluator: bool = True,
        elastic: bool = False,
        models: AllowedModels | None = None,
    ) -> None:
        """`spec` are the data of a run that has begun. `evaluator`: client 0 needs a test part.

        `elastic`: clients may come of whom nothing was known when the run began. `models`: which the run may
        have, where samples are remembered and what one takes has to be known.
        """
        self._config = config
        self._evaluator = evaluator
        self._elastic = elastic
        self._spec = spec
        self._models = models
        self._smashed: tuple[_Form, Forms] | None = None
        self._votes: dict[int, _Form] = {}
        self._ready: set[int] = set()

    def settle(self, spec: DataSpec | None) -> None:
        """The run begins with these data; None: it does not begin yet."""
        self._spec = spec

    def __call__(self, client: int, ready: Any, others: Mapping[int, Any]) -> Mapping[int, str]:
        """Check one client while others are there; who of these has to go because of it, and why."""
        spec = data_spec_of([ready])
        self._check(client, spec, ready)
        form = _Form.of(spec)
        if self._spec is None:
            # Whoever is there has been here. To read each again for each who comes takes too long for many.
            known = {
                c: self._votes[c] if c in self._ready and c in self._votes else _Form.of(data_spec_of([r]))
                for c, r in others.items()
            }
            return self._vote(client, form, known)
        settled = _Form.of(self._spec)
        if form != settled:
            raise RefusedError(_misfit(client, form, settled, "the run's"))
        before = self._spec.samples[client]
        if before != ready.samples and not (self._elastic and before == 0):
            raise RefusedError(
                f"client {client} has {ready.samples} samples, but had {before} when the run began; "
                "give it the same data, or start a new run"
            )
        return {}

    def _check(self, client: int, spec: DataSpec, ready: Any) -> None:
        wrong = problem(spec)
        if wrong is None and ready.test_samples > MOST_SAMPLES:
            wrong = f"{ready.test_samples:,} test samples; a client has at most {MOST_SAMPLES:,}"
        if wrong is not None:
            raise RefusedError(f"client {client} describes data that cannot be: {wrong}")
        train = self._config.train
        size = train.batch_size if train.drop_last else 1
        if ready.samples < size:
            raise RefusedError(
                f"client {client} has {ready.samples} samples; it needs at least {size}, one batch"
            )
        if self._config.codec.memory != "none":
            self._check_memory(client, spec)
        if self._evaluator and client == 0 and not ready.test_samples:
            raise RefusedError("client 0 evaluates the model, and its data have no test part; add one")
        if train.aggregation != "server" and client == 0:
            _check_meeting(ready.meeting)

    def _check_memory(self, client: int, spec: DataSpec) -> None:
        """A client that claims more samples than its equal share of the server's memory has to go."""
        form, config = _Form.of(spec), self._config
        try:
            if self._smashed is None or self._smashed[0] != form:
                parts = prepare_model(config, spec.placeholder_data().train, self._models)[1]
                self._smashed = form, forms_at_cuts(spec, parts)[0]
            share = config.codec.memory_limit / config.train.clients
            check_memory(config, sum(spec.samples), self._smashed[1], share)
        except CutlayerError as error:
            raise RefusedError(f"client {client}: {error}") from None

    def _vote(self, client: int, form: _Form, others: Mapping[int, _Form]) -> Mapping[int, str]:
        for left in self._ready - others.keys():
            self._ready.discard(left)
            self._votes.pop(left, None)
        self._votes[client] = form
        first, votes = Counter(self._votes.values()).most_common(1)[0]
        if 2 * votes > self._config.train.clients:
            if form != first:
                raise RefusedError(_misfit(client, form, first, "most clients'"))
            leaving = {
                c: _misfit(c, theirs, first, "most clients'")
                for c, theirs in others.items()
                if theirs != first
            }
        else:
            for other, theirs in others.items():
                if theirs != form:
                    raise NotNowError(_misfit(client, form, theirs, f"client {other}'s"))
            leaving = {}
        self._ready = (self._ready | {client}) - leaving.keys()
        return leaving


def _misfit(client: int, form: _Form, other: _Form, whose: str) -> str:
    return f"client {client}'s data do not fit: {form.difference(other, whose)}"


def _check_meeting(meeting: str) -> None:
    if not meeting:
        raise RefusedError("client 0 has opened no place for clients to meet; give --allreduce-listen")
    try:
        if not _is_name(meeting):
            raise UnreachableError("it is no name")
        parse_address(meeting)
    except UnreachableError:
        raise RefusedError(
            "client 0 says that clients meet where no address is; give --allreduce-listen HOST:PORT"
        ) from None


def _is_name(text: str) -> bool:
    """Whether a text is short, and cannot move the cursor of a terminal that shows it."""
    return len(text) <= LONGEST_NAME and not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in text)


def _short(value: Any) -> str:
    text = str(list(value) if isinstance(value, tuple) else value)
    return text if len(text) < 80 else text[:77] + "..."
