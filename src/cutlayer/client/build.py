"""A client of a run from its settings, its data and its half of the model."""

from cutlayer.client.evaluator import Evaluator
from cutlayer.client.split_client import SplitClient
from cutlayer.config.schema import Config
from cutlayer.data import Sampler
from cutlayer.data.federated import FederatedData
from cutlayer.data.spec import DataSpec
from cutlayer.protocol.build import make_codecs, make_task
from cutlayer.protocol.client_memory import make_memory
from cutlayer.protocol.tensor_forms import Forms, forms_at_cuts
from cutlayer.rates.base import Rate
from cutlayer.split.client import ClientHalf
from cutlayer.tasks import Task


def build_client(
    config: Config,
    data: FederatedData,
    client: int,
    half: ClientHalf,
    *,
    task: Task | None = None,
    evaluator: bool = False,
    rate: Rate | None = None,
    features: Forms | None = None,
) -> SplitClient:
    """The client of that number. Of all data it keeps its own part, and the test set as evaluator.

    Without `task`, it is a built-in one. `features` are the forms of a server's activations in a U-shape.
    """
    codecs, task = make_codecs(config), task or make_task(config, data.train)
    sampler = Sampler(
        data.parts[client],
        config.train.batch_size,
        seed=config.seed,
        client=client,
        drop_last=config.train.drop_last,
    )
    smashed: Forms = forms_at_cuts(DataSpec.of(data), half.model.parts)[0] if codecs.remembers else ()
    return SplitClient(
        client,
        half,
        task,
        codecs,
        data.train,
        sampler,
        data.augment,
        evaluator=Evaluator(half, task, codecs, data.test, data.augment, features) if evaluator else None,
        rate=rate,
        features=features,
        memory=make_memory(config, client, len(data.parts[client]), smashed),
    )
