"""Trace a model's forward pass with torch.fx into a graph that records where each module was called.

`trace_around` traces into the modules that enclose a cut only, and calls all others whole, so that what
happens inside them (control flow, hooks, dropout) stays exactly as written. `trace_all` traces into every
module that it can, to find where cuts are valid.
"""

import inspect
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn

from cutlayer.errors import CutError
from cutlayer.seeding import undisturbed
from cutlayer.split.tracing.sizes import SizeCheck


@dataclass(frozen=True)
class Call:
    """One call of a module: the last node before it, the last node in it, and what it returned."""

    before: fx.Node
    last: fx.Node
    output: fx.Node | None  # None when it returned something else than one traced value


@dataclass(frozen=True)
class Trace:
    """A model's forward pass as a graph, with all calls of each module in it."""

    graph: fx.Graph
    calls: dict[str, list[Call]]
    constants: dict[str, torch.Tensor]  # tensors that forward makes without looking at its input
    # Known if the model was run on an example:
    form: Any = None  # how outputs that are not one tensor are put together
    check: SizeCheck | None = None  # what was assumed of the inputs' sizes


class _Tracer(fx.Tracer):
    # Buffers become nodes, too: arithmetic on a buffer is then traced, and not evaluated while tracing.
    proxy_buffer_attributes = True

    def __init__(self, is_leaf: Callable[[nn.Module, str], bool]) -> None:
        super().__init__()
        self.calls: dict[str, list[Call]] = {}
        self.failed: type[nn.Module] | None = None
        self._is_leaf = is_leaf
        self._mode = global_mode()
        self._thread = threading.get_ident()

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return self._is_leaf(m, module_qualified_name)

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Any, list[Any]]:
        # Optional arguments keep their defaults: traced as values, a default of None would be
        # taken for "given" by every `if mask is not None`.
        parameters = list(inspect.signature(root_fn).parameters.values())[1:]
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        required = [p for p in parameters if p.default is p.empty and p.kind in positional]
        names = [p.name for p in required or parameters[:1]]
        return root_fn, [self.root, *(self.create_proxy("placeholder", n, (), {}) for n in names)]

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        # A graph does not record `with torch.no_grad()` or autocast. Refuse, rather than lose it silently.
        if global_mode() != self._mode:
            raise fx.proxy.TraceError("forward switches gradients or autocast on or off")
        return super().create_node(*args, **kwargs)

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        if self._elsewhere():
            return forward(*args, **kwargs)
        before = self._last_node()
        try:
            result = super().call_module(m, forward, args, kwargs)
        except Exception:
            self.failed = self.failed or type(m)  # the innermost module fails first
            raise
        output = result.node if isinstance(result, fx.Proxy) else None
        call = Call(before, self._last_node(), output)
        self.calls.setdefault(self.path_of_module(m), []).append(call)
        return result

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, fx.Proxy]) -> Any:
        return attr_val if self._elsewhere() else super().getattr(attr, attr_val, parameter_proxy_cache)

    def _elsewhere(self) -> bool:
        """Whether another thread runs a model meanwhile: torch.fx changes nn.Module for all threads."""
        return threading.get_ident() != self._thread

    def _last_node(self) -> fx.Node:
        last: fx.Node = next(iter(reversed(self.graph.nodes)))
        return last


def trace_around(model: nn.Module, names: Iterable[str], *, training: bool) -> Trace:
    """Trace into the model and the modules that enclose the named ones only."""
    opened = {".".join(name.split(".")[:depth]) for name in names for depth in range(name.count(".") + 1)}
    return _trace(model, _Tracer(lambda _, name: name not in opened), training)


def trace_all(model: nn.Module) -> Trace:
    """Trace into all modules but PyTorch's own layers and those that cannot be traced."""
    opaque: set[type[nn.Module]] = set()
    default = fx.Tracer()
    while True:
        tracer = _Tracer(lambda m, name: type(m) in opaque or default.is_leaf_module(m, name))
        try:
            return _trace(model, tracer, training=False)
        except CutError:
            if tracer.failed is None or tracer.failed in opaque:
                raise
            opaque.add(tracer.failed)


def _trace(model: nn.Module, tracer: _Tracer, training: bool) -> Trace:
    if model._forward_hooks or model._forward_pre_hooks or "forward" in vars(model):
        raise CutError(
            f"{type(model).__name__} has forward hooks or a replaced forward, which belong to no "
            "part. Remove them, or put them on modules inside of it."
        )
    with undisturbed(), unchanged(model):
        attributes = set(model.__dict__)
        set_mode(model, training)
        try:
            graph = tracer.trace(model)
        except Exception as error:  # user code runs on proxies here: anything can be raised
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            where = f" (in {tracer.failed.__name__})" if tracer.failed else ""
            reason += source_line(error)
            raise CutError(
                f"{type(model).__name__} cannot be traced{where}: {reason}. A cut needs a forward "
                "that takes the same path for every input: move what decides into a module of its "
                "own, away from the cut, or arrange the parts in an nn.Sequential. If it decides by shapes, "
                "give an example of the input."
            ) from error
        made = model.__dict__.keys() - attributes
        targets = {str(node.target) for node in graph.nodes if node.op == "get_attr"}
        constants = {name: model.__dict__[name] for name in made & targets}
    return Trace(graph, tracer.calls, constants)


def source_line(error: BaseException) -> str:
    """Where in the model's code an error was raised, for a message; empty if that is not known."""
    frames = traceback.extract_tb(error.__traceback__)
    libraries = (Path(torch.__file__).parent, Path(__file__).parents[2])
    own = [f for f in frames if not any(Path(f.filename).is_relative_to(root) for root in libraries)]
    if not own or not own[-1].line:
        return ""
    return f", at `{own[-1].line}` ({Path(own[-1].filename).name}, line {own[-1].lineno})"


def set_mode(model: nn.Module, training: bool) -> None:
    """Put every module in training or evaluation mode, whatever its own `train` method does."""
    for module in model.modules():
        module.training = training


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Restore all attributes of a model's modules, such as modes and stored values, afterwards."""
    saved = [(module, dict(module.__dict__)) for module in model.modules()]
    try:
        yield
    finally:
        for module, attributes in saved:
            module.__dict__.clear()
            module.__dict__.update(attributes)


def global_mode() -> tuple[bool, ...]:
    """Whether gradients are on, and autocast on each kind of device."""
    devices = ("cpu", "cuda")
    return (torch.is_grad_enabled(), *(torch.is_autocast_enabled(d) for d in devices))
