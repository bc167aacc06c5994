"""`evaluate_all`: outputs and gradients in one call, on every backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mithril_nb.errors import MissingInputError
from mithril_nb.graph.spec import Spec, TensorSpec

Arrays = Mapping[str, Any]


class EvaluatesAll:
    """Base class of compiled models on all backends."""

    backend: Any
    evaluate: Callable[..., Any]

    @property
    def output_specs(self) -> Mapping[str, Spec | None]:
        """Spec of each output; `None` if unknown."""
        raise NotImplementedError

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
            output_gradients = self._ones()
        return self.evaluate(params, inputs, output_gradients, state=state)

    def _ones(self) -> dict[str, Any]:
        specs = self.output_specs
        name, spec = list(specs.items())[-1]
        if len(specs) == 1 and isinstance(spec, TensorSpec) and spec.shape == ():
            return {name: self.backend.ones((), dtype=spec.dtype)}
        raise MissingInputError(
            "evaluate_all needs output_gradients: this model does not return one scalar.",
            (("outputs", ", ".join(f"{name!r} {spec}" for name, spec in specs.items())),),
            f"pm.evaluate_all(params, inputs, {{{name!r}: backend.ones_like(pm.evaluate(params, inputs)[{name!r}])}})",
            port=name,
        )
