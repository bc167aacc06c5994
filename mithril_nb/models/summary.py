"""Methods of `Model` that save, share and search it, and print a table of its blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import index
from pathlib import Path
from typing import Any, SupportsIndex

from mithril_nb.display import columns, draw
from mithril_nb.errors import UnknownOptionError
from mithril_nb.graph.paths import join_path, lineage
from mithril_nb.graph.query import Found, Match, Searchable, parse_query
from mithril_nb.graph.records import BlockSpecs, LogicalGraph
from mithril_nb.graph.spec import Dim, Spec, StaticSpec, as_dtype
from mithril_nb.models.naming import input_specs
from mithril_nb.models.rules import Inference, Parameter
from mithril_nb.models.saving.serialization import graph_to_dict, save_graph
from mithril_nb.models.shape_inference.flat import flat
from mithril_nb.models.shape_inference.infer import infer

_HEAD = ("block", "kind", "output", "params", "share")
_RIGHT = {3, 4}


class Portable:
    """Methods that convert a model to plain data, a file, a link or a table, and find its blocks."""

    name: str | None
    graph: LogicalGraph

    def to_dict(self) -> dict[str, Any]:
        """Return the blocks and connections as JSON-serialisable data, without the parameters.

        Examples:
            >>> from mithril_nb.models import Linear, Model
            >>> Model.from_dict(Linear(3).to_dict()).graph == Linear(3).graph
            True
        """
        return graph_to_dict(self.graph, self.name or "")

    def save(self, path: str | Path) -> None:
        """Write the blocks and connections to a JSON file. `ml.save_params` writes the parameters.

        Raises:
            UnknownOptionError: `path` is not a path.
            ModelFileError: The file cannot be written.

        Examples:
            >>> import os, tempfile
            >>> import mithril_nb as ml
            >>> from mithril_nb.models import MLP
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = os.path.join(folder, "model.json")
            ...     MLP(4, [3], 2).save(path)
            ...     ml.load(path).find("kind:relu").blocks
            ('relu_0',)
        """
        save_graph(self.graph, self.name or "", path)

    def share_link(self, page: str = "") -> str:
        """Return a link that contains the blocks and connections of a small model, without the parameters.

        The link consists of the address of a page that `Inspection.to_html` saved, and the model after `#`. A browser
        that opens the link shows the graph of the model. It sends the model to no server, and runs no code from the
        link. `ml.load(link)` and `mithril-nb lab --app LINK` open the model.

        Args:
            page: Address of the page. By default, the result is only the part from `#` on, which you can append to the
                address.

        Raises:
            ModelFileError: The part from `#` on has more than 8,000 characters, which suffice for about 200 blocks.

        Examples:
            >>> from mithril_nb.models import Linear, Model
            >>> link = (Model() + Linear(3)).share_link("https://example.org/page.html")
            >>> link[:36], Model.load(link)
            ('https://example.org/page.html#model=', Model(linear_0))
        """
        return draw(self, "link", page=page)

    def summary(
        self, shapes: Mapping[str, Sequence[Dim]] | None = None, *, depth: int | None = None, dtype: str = "float32"
    ) -> str:
        """Return a table of the blocks: kind, output shape, number of parameters, and its share of all parameters.

        Args:
            shapes: Shape by input, as in `{"input": ["batch", 784]}`. A name represents an unknown size. Omit inputs of
                unknown shape.
            depth: Number of levels of nested blocks to show; `None` for all.
            dtype: Dtype of the parameters.

        Raises:
            ShapeError: Shapes are incompatible.
            UnknownDtypeError: `dtype` is unknown.
            UnexpectedInputError: `shapes` names an input that the model does not have, or has two names of one input.
            UnknownOptionError: `shapes` is not a dict, or a shape or the depth is invalid.

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
        dtype = str(as_dtype(dtype))
        inference = infer(self.graph, input_specs(self.graph, shapes or {}, dtype), dtype)
        inference.raise_problems()
        return table(self.graph, inference, depth, dtype)

    def find(self, query: str) -> Found:
        """Return the blocks that match a query.

        To search for roles, dtypes, costs and Python lines, use `ml.inspect(model, shapes=...).find(query)`. The
        documentation of that method describes all queries.

        Args:
            query: Terms separated by spaces: a word, `kind:linear` or `block:"lm head"`. `-` before a term excludes the
                blocks that match the term.

        Raises:
            UnknownOptionError: The query is invalid, or searches for roles, dtypes, costs or Python lines.

        Examples:
            >>> from mithril_nb.models import MLP
            >>> [match.id for match in MLP(784, [64], 10).find("kind:linear -linear_1")]
            ['linear_0']
        """
        parsed = parse_query(query)
        needs = next((key for key in parsed.keys if key not in ("block", "kind")), None)
        if needs is not None:
            raise UnknownOptionError(
                f"a model without shapes has no {needs} to search for.",
                (("searchable", "words, kind:..., block:..."),),
                f"ml.inspect(model, shapes={{'input': (32, 784)}}).find({query!r})",
            )
        kinds = {path: node.block.kind for path, node in self.graph.walk()}
        matches = tuple(
            Match(path, kinds[path], (path,))
            for path in kinds
            if parsed.matches(Searchable((path,), tuple(kinds[ancestor] for ancestor in lineage(path))))
        )
        return Found(self.name or "", "", parsed, matches, len(kinds))


def table(graph: LogicalGraph, inference: Inference, depth: int | None = None, dtype: str = "float32") -> str:
    """Return the table of `Model.summary`. Prints only dtypes other than `dtype`."""
    work = _Table(inference, _checked(depth), dtype)
    work.shared = {
        op.path: names
        for op in flat(graph).ops
        if (names := {array for array in op.arrays.values() if array in work.owner and work.owner[array] != op.path})
    }
    rows: list[tuple[str, ...]] = [_HEAD]
    rows += [(_plain(name), "", work.text(spec), "", "") for name, spec in inference.inputs.items()]
    rows += work.rows(graph, "", 0)
    return f"{columns(rows, _RIGHT)}\n{work.totals()}"


class _Table:
    def __init__(self, inference: Inference, depth: int | None, dtype: str):
        self.inference, self.depth, self.dtype = inference, depth, dtype
        self.total = _count(inference.parameters)
        self.owner = {array.name: array.path for array in (*inference.parameters, *inference.states)}
        self.shared: dict[str, set[str]] = {}
        # The parameters inside each block. Searching all parameters for each block would take quadratic time.
        self.inside: dict[str, list[Parameter]] = {}
        for parameter in inference.parameters:
            path = parameter.path
            while path:
                self.inside.setdefault(path, []).append(parameter)
                path = path.rpartition("/")[0]

    def rows(self, graph: LogicalGraph, prefix: str, level: int) -> Iterator[tuple[str, ...]]:
        if self.depth is not None and level >= self.depth:
            return
        for node in graph.nodes:
            path = join_path(prefix, node.name)
            specs = self.inference.blocks.get(path, BlockSpecs())
            outputs = {port: self.text(spec) for port, spec in specs.outputs.items()}
            texts = [f"{_plain(port)} {text}" if len(outputs) > 1 else text for port, text in outputs.items()]
            yield f"{'  ' * level}{_plain(node.name)}", _plain(node.block.kind), ", ".join(texts), *self.numbers(path)
            if node.block.graph is not None:
                yield from self.rows(node.block.graph, path, level + 1)

    def numbers(self, path: str) -> tuple[str, str]:
        """Return two cells for a block: its number of parameters, and their share of all parameters."""
        own = self.inside.get(path, [])
        if not own:
            return ("shared" if path in self.shared else ""), ""
        count = _count(own)
        if count is None:
            return "unknown", ""
        return f"{count:,}", f"{100 * count / self.total:.1f} %" if self.total else ""

    def text(self, spec: Spec | None) -> str:
        if isinstance(spec, StaticSpec):
            return repr(spec)
        if spec is None or ("..." in spec.shape[:1] and len(spec.shape) == 1):
            return "unknown"
        dims = ", ".join(map(str, spec.shape))
        shape = f"({dims},)" if len(spec.shape) == 1 else f"({dims})"
        return shape if spec.dtype == self.dtype else f"{shape} {spec.dtype!s}"

    def totals(self) -> str:
        parameters = self.inference.parameters
        fixed = _count([parameter for parameter in parameters if not parameter.is_trainable])
        state = _count(self.inference.states)
        specs = [parameter.spec for parameter in parameters if parameter.spec.size is not None]
        parts = [f"{self.total:,} parameters" if self.total is not None else "an unknown number of parameters"]
        parts += [_bytes(sum(spec.nbytes or 0 for spec in specs))] if self.total else []
        parts += [f"{fixed:,} of them not trained"] if fixed else []
        parts += [f"{state:,} state values"] if state else []
        return ", ".join(parts)


def _count(parameters: Sequence[Parameter]) -> int | None:
    sizes = [parameter.spec.size for parameter in parameters]
    return None if None in sizes else sum(size or 0 for size in sizes)


def _bytes(count: int) -> str:
    amount, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 999.5:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.3g} {unit}"


def _plain(text: str) -> str:
    return text if text.isprintable() else repr(text)


def _checked(depth: Any) -> int | None:
    if depth is None:
        return None
    if isinstance(depth, SupportsIndex) and not isinstance(depth, bool) and index(depth) >= 0:
        return index(depth)
    raise UnknownOptionError(
        f"cannot show {depth!r} levels.", (("needs", "a whole number of 0 or more, or None for all"),), "depth=1"
    )
