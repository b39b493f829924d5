"""`Recorder`: writes the torch functions that a model calls, on fake tensors, into a torch.fx graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode

from cutlayer.errors import CutError
from cutlayer.split.tracing.sizes import DEVICE, device_of, write_size
from cutlayer.split.tracing.symbolic import global_mode

_PLAIN = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    type(...),
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)


class WithoutGradient:
    """A torch function as forward called it under `torch.no_grad`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        # A graph's code names a function by these.
        self.__name__ = self.__qualname__ = f"no_grad_{function.__name__}"
        self.__module__ = __name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it in the same way."""
        with torch.no_grad():
            return self.function(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WithoutGradient) and other.function == self.function

    def __hash__(self) -> int:
        return hash(self.function)


class Recorder(TorchFunctionMode):
    """Records while it is active and not paused, as it is inside of modules that are called whole."""

    def __init__(self, model: nn.Module, graph: fx.Graph, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.graph = graph
        self.paused = False
        self.nodes: dict[int, fx.Node] = {}
        self.values: dict[fx.Node, torch.Tensor] = {}
        self.symbols: dict[Any, fx.Node] = {}
        self.constants: dict[str, torch.Tensor] = {}
        self._mode = global_mode()
        self._sizes: dict[Any, Any] = {}
        self._alive: list[Any] = []  # an identity is only good as long as its object lives
        self._attributes: dict[int, str] = {}
        for prefix, module in model.named_modules():
            held = {**module.__dict__, **module._buffers, **module._parameters}
            for name, value in held.items():
                if isinstance(value, torch.Tensor):
                    self._attributes.setdefault(id(value), f"{prefix}.{name}".removeprefix("."))
        self._saved = {id(value) for value in model.state_dict(keep_vars=True).values()}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.paused:
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        if _mutates(func) or _holds_tensor(result):
            self._record(func, args, kwargs, result)
        return result

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Record nothing inside."""
        before, self.paused = self.paused, True
        try:
            yield
        finally:
            self.paused = before

    def check_mode(self, where: str) -> bool:
        """Whether gradients are as they were at the beginning; raises if autocast is not."""
        now = global_mode()
        if now[1:] != self._mode[1:]:
            raise CutError(
                f"forward switches autocast on or off around {where}, which a graph does not record. Move "
                "that into a module of its own."
            )
        if now != self._mode and where.startswith("the call of"):
            raise CutError(
                f"forward switches gradients on or off around {where}, which a graph does not record. Move "
                "that into a module of its own."
            )
        return now == self._mode

    def bind(self, result: Any, node: fx.Node) -> None:
        """Remember which node gave these tensors."""
        if isinstance(result, torch.Tensor):
            self.nodes[id(result)] = node
            self.values[node] = result
            self._alive.append(result)
        elif _holds_tensor(result):
            pairs = result.items() if isinstance(result, dict) else enumerate(result)
            for key, item in pairs:
                if _holds_tensor(item):
                    self.bind(item, self.graph.call_function(operator.getitem, (node, key)))

    def argument(self, value: Any, where: str) -> Any:
        """A value as an argument of a node: tensors and symbolic sizes by the nodes that give them."""
        if isinstance(value, torch.Tensor):
            return self._node_of(value, where)
        if isinstance(value, torch.SymInt):
            return self._size(value)
        if isinstance(value, torch.device) and value == self.device:
            return self._device()
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, slice):
            return slice(*(self.argument(x, where) for x in (value.start, value.stop, value.step)))
        if isinstance(value, (tuple, list)):
            found = [self.argument(x, where) for x in value]
            return found if type(value) is list else tuple(found)
        if type(value) is dict:
            return {key: self.argument(x, where) for key, x in value.items()}
        raise CutError(
            f"{where} takes or gives a {type(value).__name__}, which is no tensor and cannot be sent. Call "
            "the model so that it is not needed (a transformer's cache: use_cache=False in the example)."
        )

    def _record(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        name = getattr(func, "__name__", str(func))
        if name == "__get__":  # an attribute such as x.T
            target: Any = getattr
            args = (args[0], func.__self__.__name__)
            name = args[1]
        else:
            target = func
        if not self.check_mode(name):
            target = WithoutGradient(target)
        node = self.graph.call_function(
            target, tuple(self.argument(list(args), name)), self.argument(dict(kwargs), name)
        )
        node.meta["mutates"] = _mutates(func)
        self.bind(result, node)

    def _node_of(self, tensor: torch.Tensor, where: str) -> fx.Node:
        found = self.nodes.get(id(tensor))
        if found is not None:
            return found
        name = self._attributes.get(id(tensor))
        if name is None:
            if isinstance(tensor, FakeTensor):
                raise CutError(
                    f"{where} takes a tensor that was kept from elsewhere, or made by means that cannot be "
                    "followed. Let it come from a module's output or a torch function."
                )
            name = f"_cut_constant{len(self.constants)}"
            self.constants[name] = tensor
        node = self.graph.get_attr(name)
        # What is no weight and in no checkpoint can be in both parts.
        node.meta["unsaved"] = id(tensor) not in self._saved and not isinstance(tensor, nn.Parameter)
        self.nodes[id(tensor)] = node
        self._alive.append(tensor)
        return node

    def _device(self) -> fx.Node:
        if DEVICE not in self._sizes:
            first = next(node for node in self.graph.nodes if node.op == "placeholder")
            node = self.graph.call_function(device_of, (first,))
            node.meta["size"] = DEVICE
            self._sizes[DEVICE] = node
        found: fx.Node = self._sizes[DEVICE]
        return found

    def _size(self, size: torch.SymInt) -> fx.Node | int:
        expression = size.node.expr
        if expression not in self._sizes:
            first = len(self.graph.nodes)
            written = write_size(self.graph, expression, self.symbols)
            for node in list(self.graph.nodes)[first:]:
                node.meta["part_of_size"] = True
            if isinstance(written, fx.Node):
                written.meta["size"] = expression
            self._sizes[expression] = written
        found: fx.Node | int = self._sizes[expression]
        return found


def _holds_tensor(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    if isinstance(value, dict):
        return any(_holds_tensor(item) for item in value.values())
    return isinstance(value, (tuple, list)) and any(_holds_tensor(item) for item in value)


def _mutates(func: Any) -> bool:
    name = getattr(func, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__")
    return in_place or name == "__setitem__" or (name.startswith("__i") and name not in _NOT_IN_PLACE)


_NOT_IN_PLACE = {"__invert__", "__index__", "__int__", "__init__", "__iter__"}
