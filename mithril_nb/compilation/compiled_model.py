"""`CompiledModel`: what compiled models of all backends have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax

from mithril_nb.backends.backend import convert_params
from mithril_nb.errors import MissingInputError
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.graph.spec import Spec, TensorSpec
from mithril_nb.models.shape_inference.infer import Inference, Parameter
from mithril_nb.models.summary import table

Arrays = Mapping[str, Any]


class CompiledModel:
    """A model bound to a backend.

    Attributes:
        graph: The logical graph.
        backend: The backend that the model runs on.
        inference: The result of shape inference: the shapes and dtypes in the model.
    """

    is_immutable = True
    """True: `fit` may reuse the programs of a run in a later run of the same model."""
    graph: LogicalGraph
    backend: Any
    inference: Inference
    evaluate: Callable[..., Any]
    randomize_params: Callable[..., dict[str, Any]]
    _first_params: Callable[[Arrays], dict[str, Any]]
    _params: dict[str, Any] | None = None

    def __repr__(self) -> str:
        names = ", ".join(node.name for node in self.graph.nodes)
        return f"{type(self).__name__}({names}; backend={self.backend!r})"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters of the model, frozen ones included."""
        return self.inference.parameters

    @property
    def states(self) -> tuple[Parameter, ...]:
        """Arrays that a step passes to the next, such as running statistics."""
        return self.inference.states

    @property
    def input_specs(self) -> Mapping[str, TensorSpec]:
        """Spec of each input."""
        return self.inference.inputs

    @property
    def output_specs(self) -> Mapping[str, Spec | None]:
        """Spec of each output; `None` if unknown."""
        return self.inference.outputs

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return tuple(self.inference.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return tuple(self.inference.outputs)

    def get_layer_names(self) -> tuple[str, ...]:
        """Return the paths of the blocks that have parameters, in order, such as `"encoder.linear_0"`."""
        return tuple(dict.fromkeys(p.name.rpartition(".")[0] for p in self.parameters if "." in p.name))

    def summary(self, *, depth: int | None = None) -> str:
        """Return a table of the blocks, like `Model.summary`, with the compiled shapes."""
        return table(self.graph, self.inference, depth, self.backend.default_dtype)

    def convert_params(self, params: Arrays, other: Any) -> dict[str, Any]:
        """Return parameters as arrays of another backend.

        Args:
            params: Parameters by name.
            other: The other backend, or a model compiled for it.

        Raises:
            UnknownOptionError: `other` is neither a backend nor a compiled model.

        Examples:
            >>> import mithril_nb as ml
            >>> pm = ml.compile(ml.models.Linear(3), ml.NumpyBackend(), shapes={"input": [2, 4]})
            >>> pm.convert_params(pm.randomize_params(seed=0), ml.JaxBackend())["weight"].shape
            (4, 3)
        """
        return convert_params(params, self.backend, other)

    @property
    def params(self) -> dict[str, Any]:
        """The parameters that `pm(x)` uses. They are initialized randomly on first use. You can also set them."""
        if self._params is None:
            # The model keeps the parameters after a call inside jit, so they must not be tracers.
            with jax.ensure_compile_time_eval():
                self._params = self.randomize_params()
        return self._params

    @params.setter
    def params(self, params: Arrays) -> None:
        self._params = dict(params)

    def __call__(self, x: Any = None, /, **named: Any) -> Any:
        """Return the outputs for the parameters in `params`, which the first call initializes randomly.

        Args:
            x: The input of a model with one input, or a dict of inputs by name.
            named: Inputs by name, instead of a dict.

        Returns:
            The output of a model with one output, else a dict of outputs by name.

        Raises:
            MissingInputError, UnexpectedInputError: Names are missing or unknown.
            ShapeError: Shapes do not match.

        Examples:
            >>> import mithril_nb as ml
            >>> pm = ml.compile(ml.models.Linear(3), ml.JaxBackend())
            >>> pm(pm.backend.ones(2, 4)).shape, pm.params["weight"].shape
            ((2, 3), (4, 3))
        """
        by_name = dict(x) if isinstance(x, Mapping) else {} if x is None else {"input": x}
        inputs = {**by_name, **named}
        if self._params is None:
            # As in `params`: the call may be traced.
            with jax.ensure_compile_time_eval():
                self._params = self._first_params(inputs)
        outputs = self.evaluate(self._params, inputs)
        return next(iter(outputs.values())) if len(outputs) == 1 else outputs

    def evaluate_all(
        self,
        params: Arrays,
        inputs: Arrays,
        output_gradients: Arrays | None = None,
        *,
        state: Arrays | None = None,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the outputs, and the gradients of the parameters.

        Args:
            params: Parameters by name.
            inputs: Arrays by input name.
            output_gradients: d(loss)/d(output) by output name. It may be omitted if the only output is a scalar, such
                as a loss: its gradient is then 1.
            state: State after training, for a model with a state such as running statistics. It does not change.

        Raises:
            MissingInputError: `output_gradients` is missing, and the model does not return one scalar.
            UnexpectedInputError, MissingParameterError, ShapeError: As in `evaluate`.

        Examples:
            >>> import mithril_nb as ml
            >>> pm = ml.compile(ml.models.Model() + ml.models.Linear(1) + ml.models.Sum(), shapes={"input": [2, 3]})
            >>> outputs, gradients = pm.evaluate_all(pm.randomize_params(), {"input": pm.backend.ones(2, 3)})
            >>> gradients["linear_0.bias"].tolist()
            [2.0]
        """
        if output_gradients is None:
            output_gradients = self._gradient_of_loss("evaluate_all", "output_gradients", "params, inputs, ")
        return self.evaluate(params, inputs, output_gradients, state=state)

    def _gradient_of_loss(self, method: str, argument: str, before: str) -> dict[str, Any]:
        # The last output is the result of a chain, so the advice names it.
        name, spec = list(self.output_specs.items())[-1]
        if len(self.output_specs) > 1 or not isinstance(spec, TensorSpec) or spec.shape != ():
            raise MissingInputError(
                f"{method} needs {argument}: this model does not return one scalar.",
                (("outputs", ", ".join(f"{name!r} {spec}" for name, spec in self.output_specs.items())),),
                f"pm.{method}({before}{{{name!r}: backend.ones_like(outputs[{name!r}])}})",
                port=name,
            )
        # d(loss)/d(loss) is 1.
        return {name: self.backend.ones((), dtype=spec.dtype)}
