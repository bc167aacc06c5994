"""Methods of `Model` that summarise and save it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mithril_nb.graph.records import LogicalGraph
from mithril_nb.graph.spec import Dim
from mithril_nb.models.saving.serialization import graph_to_dict, save_graph
from mithril_nb.models.summary import summary


class Portable:
    """Write the structure: as a table, as plain data, and to a file."""

    name: str | None
    graph: LogicalGraph

    def to_dict(self) -> dict[str, Any]:
        """Return the structure as JSON-serialisable data, without the parameters.

        Examples:
            >>> from mithril_nb.models import Linear, Model
            >>> Model.from_dict(Linear(3).to_dict()).graph == Linear(3).graph
            True
        """
        return graph_to_dict(self.graph, self.name or "")

    def save(self, path: str | Path) -> None:
        """Write the structure to a JSON file; `ml.save_params` writes the parameters.

        Raises:
            UnknownOptionError: `path` is not a path.
            ModelFileError: The file cannot be written.
        """
        save_graph(self.graph, self.name or "", path)

    def summary(
        self, shapes: Mapping[str, Sequence[Dim]] | None = None, *, depth: int | None = None, dtype: str = "float32"
    ) -> str:
        """Return a table of the blocks: kind, output shape and parameters.

        Args:
            shapes: Shape of each input, as far as it is known; sizes may be names.
            depth: Number of nested levels to show; all by default.
            dtype: Dtype of parameters.

        Raises:
            ShapeError: Shapes are incompatible.
            UnexpectedInputError: `shapes` names an input that the model does not have.
            UnknownOptionError: A shape or the depth is invalid.

        Examples:
            >>> from mithril_nb.models import MLP
            >>> print(MLP(784, [64], 10).summary({"input": ["batch", 784]}))
            block     kind    output        params   share
            input             (batch, 784)
            linear_0  Linear  (batch, 64)   50,240  98.7 %
            relu_0    Relu    (batch, 64)
            linear_1  Linear  (batch, 10)      650   1.3 %
            50,890 parameters, 204 kB
        """
        return summary(self.graph, shapes, depth=depth, dtype=dtype)
