"""A compiled model as a `torch.nn.Module`, whose forward is the emitted source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from mithril_nb.errors import UnknownOptionError


def as_module(model: Any, params: Mapping[str, Any], state: Mapping[str, Any]) -> Any:
    """Return an `EmittedModel` as a `torch.nn.Module`, whose buffers are the state of the model."""
    if model.backend.name != "torch":
        shapes = {name: list(spec.shape) for name, spec in model.input_specs.items()}
        raise UnknownOptionError(
            f"as_module needs PyTorch; this model is compiled for {type(model.backend).__name__}.",
            (),
            f"ml.compile(model, ml.TorchBackend(), shapes={shapes!r}).as_module()",
        )
    return _module_type()(model, params, state)


@cache
# Inside a function: PyTorch is imported only by those who use it.
def _module_type() -> type:
    import torch

    class EmittedModule(torch.nn.Module):
        """A model that runs as emitted PyTorch. Its parameters have the same names as those of the model."""

        def __init__(self, model: Any, params: Mapping[str, Any], state: Mapping[str, Any]):
            super().__init__()
            self._names = model.input_names
            self._is_random = model.traced.needs_key
            self._load_program = _loader(model)
            self._programs: dict[Any, Callable[..., Any]] = {}
            frozen = {parameter.name for parameter in model.parameters if not parameter.is_trainable}
            self._param_places = {name: _place(self, name) for name in params}
            self._state_places = {name: _place(self, name) for name in state}
            for name, (owner, port) in self._param_places.items():
                # A copy: optimizers of PyTorch change parameters in place.
                value = torch.nn.Parameter(params[name].detach().clone(), requires_grad=name not in frozen)
                owner.register_parameter(port, value)
            for name, (owner, port) in self._state_places.items():
                owner.register_buffer(port, state[name].detach().clone())

        def forward(self, *arrays: Any, **named: Any) -> Any:
            """Return the output of a model with one output; otherwise a dict of outputs by name."""
            inputs = {**dict(zip(self._names, arrays, strict=False)), **named}
            params = {name: getattr(owner, port) for name, (owner, port) in self._param_places.items()}
            state = {name: getattr(owner, port) for name, (owner, port) in self._state_places.items()}
            args: dict[str, Any] = {"params": params, "inputs": inputs, "state": state}
            # From PyTorch's generator, so that `torch.manual_seed` makes a run repeatable.
            if self._is_random and self.training:
                args["key"] = torch.randint(0, 2**31 - 1, (2,))
            kinds = tuple([(name, tuple(array.shape), array.dtype, array.device) for name, array in inputs.items()])
            key = (self.training, kinds)
            if key not in self._programs:
                self._programs[key] = self._load_program(self.training, args)
            outputs, *after = self._programs[key](**{name: arg for name, arg in args.items() if len(arg)})
            if after:  # emitted source leaves out an empty dict
                with torch.no_grad():
                    for name, value in after[0].items():
                        owner, port = self._state_places[name]
                        getattr(owner, port).copy_(value)
            return next(iter(outputs.values())) if len(outputs) == 1 else outputs

    return EmittedModule


def _loader(model: Any) -> Callable[[bool, Mapping[str, Any]], Callable[..., Any]]:
    import torch

    traced = model.traced

    def program(training: bool) -> Any:
        def forward(params: Any, inputs: Any, state: Any, key: Any = None) -> Any:
            outputs, after = traced.forward_with_state(params, inputs, state or None, key=key, training=training)
            return outputs, after if training else {}

        return model.emitted(forward, "forward", key_argument=3)

    programs = {training: program(training) for training in (False, True)}

    def load(training: bool, args: Mapping[str, Any]) -> Callable[..., Any]:
        keys = (args["key"],) if "key" in args else ()
        device = next(iter(args["inputs"].values())).device
        with torch.device(device):
            loaded = programs[training].loaded(args["params"], args["inputs"], args["state"], *keys)
        if loaded.has_custom_gradients:
            raise UnknownOptionError(
                "a module cannot run the hand-written gradients of this model: torch.autograd does not see them.",
                (("model", ", ".join(node.name for node in model.graph.nodes)),),
                "pm.evaluate(params, inputs, output_gradients)  # runs them, as emitted source",
            )
        return loaded.function

    # `torch.compile` cannot trace JAX, and need not: only the loaded source runs in the graph.
    disabled: Any = torch.compiler.disable(load)
    return disabled


def _place(module: Any, name: str) -> tuple[Any, str]:
    import torch

    *path, port = name.split(".")
    for part in path:
        child = part
        # Names such as "type" or "half" are methods of every module.
        while child not in module._modules and hasattr(module, child):
            child += "_"
        if child not in module._modules:
            module.add_module(child, torch.nn.Module())
        module = module._modules[child]
    while hasattr(module, port):
        port += "_"
    return module, port
