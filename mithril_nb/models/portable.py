"""Methods of `Model` that summarise, save, load and initialise it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from mithril_nb.errors import ConnectionError, UnknownOptionError, short_repr
from mithril_nb.graph.annotate import annotate
from mithril_nb.graph.edit import composite
from mithril_nb.graph.records import BOUNDARY, Block, Endpoint, LogicalGraph
from mithril_nb.graph.spec import Dim

if TYPE_CHECKING:
    from mithril_nb.models.limits import LoadLimits
    from mithril_nb.models.model import Model
    from mithril_nb.models.op import Initializer


def by_name(what: str, given: object, more: Mapping[str, Any], example: str) -> dict[str, Any]:
    """Return values by name, from a dict or keyword arguments.

    Raises:
        UnknownOptionError: It is not a dict with string keys.
    """
    if given is not None and not (isinstance(given, Mapping) and all(isinstance(name, str) for name in given)):
        raise UnknownOptionError(
            f"{what} takes values by name, not {short_repr(given)}.",
            (("needs", "a dict with string keys"),),
            f"model.{what}({example})",
        )
    return {**(given or {}), **more}


class Portable:
    """Methods of a model that depend on modules which import `Model`; these are imported when called."""

    name: str | None
    graph: LogicalGraph
    _block: Block

    def to_dict(self) -> dict[str, Any]:
        """Return the structure as JSON-serialisable data, without the parameters.

        Examples:
            >>> from mithril_nb.models import Linear, Model
            >>> Model.from_dict(Linear(3).to_dict()).graph == Linear(3).graph
            True
        """
        from mithril_nb.models.files import to_dict

        return to_dict(self.graph, self.name or "")

    @staticmethod
    def from_dict(data: Mapping[str, Any], *, limits: LoadLimits | None = None) -> Model:
        """Rebuild a model from the data of `to_dict`. Runs no code from the data.

        Raises:
            ModelFileError: The data is not a model, has a later version, is broken, or exceeds a limit.
            UnknownOptionError: `limits` is not a `LoadLimits`.
        """
        from mithril_nb.models.files import from_dict

        return from_dict(data, limits=limits)

    def save(self, path: str | Path) -> None:
        """Write the structure to a JSON file; `ml.save_params` writes the parameters.

        Raises:
            UnknownOptionError: `path` is not a path.
            ModelFileError: The file cannot be written.
        """
        from mithril_nb.models.files import save

        save(self, path)  # pyright: ignore[reportArgumentType]

    @staticmethod
    def load(path: str | Path, *, limits: LoadLimits | None = None) -> Model:
        """Load a model from a JSON file. Runs no code from the file.

        Raises:
            UnknownOptionError: `path` is not a path, or `limits` is not a `LoadLimits`.
            ModelFileError: The file does not exist, is not a model, is broken, or exceeds a limit.
        """
        from mithril_nb.models.files import load

        return load(path, limits=limits)

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
        from mithril_nb.models.summary import summary

        return summary(self.graph, shapes, depth=depth, dtype=dtype)

    def set_initializers(
        self, initializers: Mapping[str, str | Initializer] | None = None, /, **more: str | Initializer
    ) -> Self:
        """Set the initializers of parameters, instead of their blocks' defaults.

        Args:
            initializers: By name of a parameter (`"linear_0.weight"`), or of a block for all its random parameters: a
                name from `mithril_nb.models.initializers`, optionally with arguments (`"normal(0.02)"`).
            **more: The same by keyword.

        Raises:
            ConnectionError: A name is neither a parameter nor a block.
            UnknownOptionError: Unknown initializer or arguments.

        Examples:
            >>> from mithril_nb.models import Linear, Model
            >>> model = Model() | Linear(64, input_size=3)
            >>> model.set_initializers({"linear_0.weight": "he_normal"}).graph.notes[0][1].initializer
            'he_normal'
        """
        from mithril_nb.models.flat import flat
        from mithril_nb.models.initializers import initializer_text

        example = '{"linear_0.weight": "he_normal"}'
        for name, initializer in by_name("set_initializers", initializers, more, example).items():
            text = initializer_text(initializer)
            starts = _starts(self.graph)
            wanted = name.replace("/", ".")
            names = [wanted] if wanted in starts else [
                array for array, draws in starts.items() if draws and array.startswith(f"{wanted}.")
            ]  # fmt: skip
            if not names:
                known = list(starts) or [op.path for op in flat(self.graph).ops]
                raise ConnectionError(
                    f"the model has no parameter {name!r} to set an initializer for.",
                    (("parameters", ", ".join(starts) or "none"),),
                    f"model.set_initializers({{{known[0]!r}: {text!r}}})" if starts else "a block with parameters.",
                )
            graph = self.graph
            for array in names:
                graph = annotate(graph, Endpoint(BOUNDARY, array), initializer=text)
            self._block = composite(graph)
        return self


def _starts(graph: LogicalGraph) -> dict[str, bool]:
    """Return the names of all parameters, and whether each is initialised at random."""
    from mithril_nb.models.flat import flat
    from mithril_nb.models.initializers import FIXED
    from mithril_nb.models.op import OPS, Initializer

    found: dict[str, bool] = {}
    for op in flat(graph).ops:
        rules = OPS[op.block.op].initializers
        for port, array in op.arrays.items():
            found.setdefault(array, rules.get(port, Initializer("normal")).name not in FIXED)
        inner = _starts(op.block.graph) if op.inner and op.block.graph is not None else {}
        found |= {op.inner[name]: draws for name, draws in inner.items() if name in op.inner}
    return found
