"""Trace a model by running its own forward on fake tensors of an example's form, with symbolic sizes.

torch.fx gives forward stand-ins (proxies) that are no tensors, and many models, those of transformers among
them, ask more of their inputs than a proxy can answer. Here forward gets fake tensors: they have a dtype, a
device and a shape of symbols, and no values. So it takes the path that it takes for real tensors of that
form, it cannot decide by values unnoticed (that raises), and what it assumes of sizes is known and checked
later. What happens between modules is recorded as the torch functions that were called. Modules that do not
enclose the cut are called whole, as in `cutlayer.split.tracing.symbolic`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    GuardOnDataDependentSymNode,
    ShapeEnv,
    StatelessSymbolicContext,
)
from torch.utils import _pytree as pytree

from cutlayer.errors import CutError
from cutlayer.seeding import undisturbed
from cutlayer.split.tracing.examples import Example
from cutlayer.split.tracing.record import Recorder
from cutlayer.split.tracing.sizes import DEVICE, SizeCheck, dimension
from cutlayer.split.tracing.symbolic import Call, Trace, set_mode, source_line, unchanged

IsLeaf = Callable[[nn.Module, str], bool]


def trace_by_example(model: nn.Module, names: list[str], example: Example, *, training: bool) -> Trace:
    """Trace into the model, the modules that enclose the named ones, and those that have nothing to train."""
    opened = {".".join(name.split(".")[:depth]) for name in names for depth in range(name.count(".") + 1)}
    opaque: set[str] = set()
    while True:
        tracer = _Tracer(
            model, example, lambda m, name: name not in opened and (name in opaque or not _plain(m))
        )
        try:
            return tracer.trace(example, training)
        except CutError:
            failed = tracer.failed
            if failed is None or failed in opened or failed in opaque:
                raise
            opaque.add(failed)


def trace_blocks_by_example(model: nn.Module, example: Example) -> Trace:
    """Trace into all modules that hold a list of blocks, to find where cuts are valid."""
    blocks = [
        f"{name}.{child}".removeprefix(".")
        for name, module in model.named_modules()
        if isinstance(module, (nn.ModuleList, nn.Sequential))
        for child in module._modules
    ]
    # Only the outer lists: what is inside of a block is called whole.
    outer = [name for name in blocks if not any(name.startswith(f"{other}.") for other in blocks)]
    return trace_by_example(model, outer, example, training=False)


def _plain(module: nn.Module) -> bool:
    """Whether a module has neither weights nor saved state: what it computes can be computed anywhere.

    Such are rotary position embeddings, which take the hidden states for their dtype alone.
    """
    own = type(module).__module__.startswith("torch.")
    return not own and not any(True for _ in module.parameters()) and not module.state_dict()


class _Tracer:
    def __init__(self, model: nn.Module, example: Example, is_leaf: IsLeaf) -> None:
        self.model = model
        self.is_leaf = is_leaf
        self.graph = fx.Graph()
        self.calls: dict[str, list[Call]] = {}
        self.failed: str | None = None
        self.ran: dict[Any, Any] = {}
        self.paths = {module: name for name, module in model.named_modules()}
        self.sizes = ShapeEnv(
            duck_shape=False, allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False
        )
        self.record = Recorder(model, self.graph, next(iter(example.tensors.values())).device)

    def trace(self, example: Example, training: bool) -> Trace:
        fake = FakeTensorMode(shape_env=self.sizes, allow_non_fake_inputs=True)
        inputs = {name: self._input(fake, name, tensor) for name, tensor in example.tensors.items()}
        # `nn.Module.__call__` is the process's, not a thread's: two traces at a time would mix.
        alone = undisturbed()
        with alone, unchanged(self.model), torch.enable_grad(), fake, self.record, self._calls_recorded():
            set_mode(self.model, training)
            try:
                output = example.call(self.model, inputs)
                leaves, form = pytree.tree_flatten(output)
                found = self.record.argument(leaves, "the model's output")
            except CutError as error:
                raise CutError(
                    f"{type(self.model).__name__} cannot be traced{self._where()}: {error}"
                ) from error
            except Exception as error:  # user code runs on fake tensors here: anything can be raised
                reason = _reason(error, source_line(error))
                raise CutError(
                    f"{type(self.model).__name__} cannot be traced{self._where()}: {reason}"
                ) from error
        single = isinstance(output, torch.Tensor)
        self.graph.output(found[0] if single else found)
        return self._finish(inputs, None if single else form)

    def _input(self, fake: FakeTensorMode, name: str, tensor: torch.Tensor) -> torch.Tensor:
        # Batches may have any size, and so may sequences of tokens; images and features are as in the
        # example.
        varies = [i == 0 or not tensor.is_floating_point() for i in range(tensor.dim())]
        shape = [max(2, size) if vary else size for size, vary in zip(tensor.shape, varies, strict=True)]
        blank = torch.zeros(shape, dtype=tensor.dtype, device=tensor.device)
        dynamic = [DimDynamic.DYNAMIC if vary else DimDynamic.STATIC for vary in varies]
        made = fake.from_tensor(blank, symbolic_context=StatelessSymbolicContext(dynamic_sizes=dynamic))
        node = self.graph.placeholder(name)
        self.record.bind(made, node)
        for i, size in enumerate(made.shape):
            if isinstance(size, torch.SymInt):
                asked = self.graph.call_function(dimension, (node, i))
                asked.meta["size"] = size.node.expr
                self.record.symbols[size.node.expr] = asked
        return made

    @contextmanager
    def _calls_recorded(self) -> Iterator[None]:
        original = nn.Module.__call__

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            name = self.paths.get(module)
            if name is None or self.record.paused:
                return original(module, *args, **kwargs)
            before = self._last_node()
            try:
                result = self._call(original, module, name, args, kwargs)
            except Exception:
                self.failed = self.failed if self.failed is not None else name  # the innermost fails first
                raise
            output = self.record.nodes.get(id(result)) if isinstance(result, torch.Tensor) else None
            self.calls.setdefault(name, []).append(Call(before, self._last_node(), output))
            return result

        nn.Module.__call__ = call  # type: ignore[method-assign]
        try:
            yield
        finally:
            nn.Module.__call__ = original  # type: ignore[method-assign]

    def _call(self, original: Any, module: nn.Module, name: str, args: Any, kwargs: Any) -> Any:
        if not name or not self.is_leaf(module, name):
            return original(module, *args, **kwargs)
        self.record.check_mode(f"the call of '{name}'")
        where = f"'{name}'"
        node = self.graph.call_module(
            name, tuple(self.record.argument(list(args), where)), self.record.argument(kwargs, where)
        )
        with self.record.pause():
            result = self._run(original, module, args, kwargs)
        self.record.bind(result, node)
        return result

    def _run(self, original: Any, module: nn.Module, args: Any, kwargs: Any) -> Any:
        """What a module gives that is called whole. Of many equal blocks, one is run for all.

        Running with symbolic sizes takes long. Blocks are equal if they print alike, have weights of the same
        shapes and take tensors of the same forms. `verify` would notice if that were not enough.
        """
        weights = tuple((name, tuple(p.shape), p.dtype) for name, p in module.named_parameters())
        taken = pytree.tree_leaves((args, kwargs))
        key = (type(module), repr(module), weights, str([_form(x) for x in taken]))
        if key not in self.ran:
            result = original(module, *args, **kwargs)
            given = {id(x) for x in taken if isinstance(x, torch.Tensor)}
            made = pytree.tree_leaves(result)
            plain = all(isinstance(x, (torch.Tensor, type(None))) and id(x) not in given for x in made)
            if weights and plain:
                self.ran[key] = result
            return result
        return pytree.tree_map(lambda x: None if x is None else torch.empty_like(x), self.ran[key])

    def _finish(self, inputs: dict[str, torch.Tensor], form: Any) -> Trace:
        def shape(tensor: torch.Tensor) -> tuple[Any, ...]:
            return tuple(
                self.sizes.replace(s.node.expr) if isinstance(s, torch.SymInt) else s for s in tensor.shape
            )

        for node, value in self.record.values.items():
            node.meta["shape"] = shape(value)
            node.meta["dtype"] = value.dtype
            node.meta["elements"] = _hint(value.numel())
            node.meta["storage"] = value.untyped_storage()._cdata
        for node in self.graph.nodes:
            if "size" in node.meta and node.meta["size"] != DEVICE:
                node.meta["size"] = self.sizes.replace(node.meta["size"])
        assumed = {self.sizes.replace(guard.expr) for guard in self.sizes.guards}
        check = SizeCheck(
            tuple(inputs),
            tuple(shape(tensor) for tensor in inputs.values()),
            tuple(condition for condition in assumed if condition.free_symbols),
        )
        return Trace(self.graph, self.calls, self.record.constants, form=form, check=check)

    def _last_node(self) -> fx.Node:
        last: fx.Node = next(iter(reversed(self.graph.nodes)))
        return last

    def _where(self) -> str:
        return f" (in '{self.failed}')" if self.failed else ""


def _form(x: Any) -> Any:
    return (tuple(x.shape), x.stride(), x.dtype, x.device) if isinstance(x, torch.Tensor) else x


def _hint(count: Any) -> int:
    return int(count.node.hint) if isinstance(count, torch.SymInt) else int(count)


def _reason(error: Exception, where: str) -> str:
    if isinstance(error, (DataDependentOutputException, DynamicOutputShapeException)):
        return (
            f"{error.func} needs the values of a tensor{where}, so what follows depends on the data. Move "
            "what decides by values into a module of its own that lies on one side of the cut."
        )
    if isinstance(error, GuardOnDataDependentSymNode):
        return (
            f"it decides by a size that depends on the data ({error.cond}){where}. Move that into a "
            "module of its own."
        )
    reason = str(error).strip().partition("\n")[0] or type(error).__name__
    return (
        f"{type(error).__name__}: {reason}{where}. It was run on tensors without values: see whether it runs "
        "on the example, and move what needs values into a module of its own."
    )
