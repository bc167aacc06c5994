"""The values inside the model for one sample: statistics on the graph, and pictures of the output of a block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, cast

import jax
import numpy as np

from mithril_nb.compilation.values import Statistics, TracedValues, histogram
from mithril_nb.errors import DataError, Diagnostic, ShapeError
from mithril_nb.train.data import DataSet, check_inputs, read_data
from mithril_nb.train.losses import loss_value
from mithril_nb.train.norms import TITLES
from mithril_nb.ui.session.analysis import Analysis
from mithril_nb.ui.session.commands import Client, Reply, RequestHandler, command
from mithril_nb.ui.session.graphs.overlays import OverlayRequests
from mithril_nb.ui.session.training import Training
from mithril_nb.viz.values import HEADS, statistics_texts, value_picture

_MOST_EDITED = 4096  # numbers of an input that a user can draw or type
_SOURCE = "sample"
_BARS = 24  # of the histogram of a parameter
_ON_THE_GRAPH = ("mean", "std", "min", "max", "zeros")


class FedSample(TypedDict):
    """The sample that the model is fed with."""

    is_shown: bool
    sample: int  # index in the data, or seed of the random input
    samples: int | None  # number of samples; null for random inputs
    own: bool  # whether the user replaced numbers of the sample
    gradients: bool
    message: str  # why there are no values
    version: int  # counts the computed values


class EditedInput(TypedDict):
    """An input of the model that the user can draw or type."""

    shape: list[int]
    numbers: list[float]  # row by row


class ValueHead(TypedDict):
    """The block whose values were requested; `""` for the inputs and outputs of the model."""

    block: str
    version: int
    inputs: dict[str, EditedInput]  # by name, without the large ones


class ValuePicture(TypedDict):
    """One array."""

    title: str
    svg: str
    about: str  # describes the picture
    rows: list[tuple[str, str]]  # statistics


class ParametersHead(TypedDict):
    """The parameters whose statistics were requested."""

    names: list[str]
    block: str  # path of the block whose values over time were requested
    steps: list[int]  # of the norms
    norms: dict[str, list[float | None]]  # of all parameters in the block, and of its output, by title, at each step


class ParameterStatistics(TypedDict):
    """Statistics of a parameter after training."""

    name: str
    mean: str
    std: str
    counts: list[int]  # of the values between equal steps from the least to the greatest


class ValueRequests(RequestHandler):
    """Feeds the model with a sample on request, and again after each edit.

    Attributes:
        traced: The latest values; `None` before the first.
    """

    def __init__(
        self,
        analysis: Callable[[], Analysis],
        training: Callable[[], Training],
        overlays: OverlayRequests,
        client: Client,
    ):
        super().__init__(client, "pictures", "values")
        self._analysis, self._training, self._overlays = analysis, training, overlays
        self._shown = FedSample(
            is_shown=False, sample=0, samples=None, own=False, gradients=False, message="", version=0
        )
        self.traced: TracedValues | None = None
        self._inputs: Mapping[str, Any] = {}
        self._own: Mapping[str, Sequence[float]] = {}
        self._analysed: Analysis | None = None
        self._data: tuple[Any, DataSet] | None = None
        # The analysis without names of sizes, and the params before training: a new model would compile again.
        self._ready: tuple[Analysis, Analysis, Mapping[str, Any]] | None = None

    def view(self) -> FedSample:
        """Return the state for a front end."""
        return self._shown

    @property
    def problems(self) -> tuple[Diagnostic, ...]:
        """The first NaN or infinity in the values, and in the gradients, of the model as it is now."""
        traced = self.traced
        if traced is None or self._analysed is not self._analysis() or not self._shown["is_shown"]:
            return ()
        return tuple(problem for problem in (traced.first_bad, traced.first_bad_gradient) if problem is not None)

    @command
    def show_sample(
        self, sample: int = 0, gradients: bool = False, values: Mapping[str, Sequence[float]] | None = None
    ) -> None:
        """Feed the model with a sample, and show a statistic of the output of each block on the graph.

        Args:
            sample: Index in the data, from 0; an index past the end starts again. Without data, the seed of a random
                input.
            gradients: True to compute the gradients of the loss, too.
            values: Numbers that replace those of the sample, row by row, by name of the input.
        """
        self._own = values or {}
        if not self._shown["is_shown"] and not self._overlays.name:
            self._overlays.show_added("output: std")
        self._set(is_shown=True, sample=max(sample, 0), own=bool(self._own), gradients=gradients)
        self.refresh()

    @command
    def hide_values(self) -> None:
        """Stop feeding the model."""
        self.traced, self._inputs, self._own = None, {}, {}
        self._set(is_shown=False, own=False, message="")
        self._overlays.withdraw(_SOURCE)

    @command
    def request_value(self, block: str) -> None:
        """Send pictures of the output of a block, or of the inputs and outputs of the model for `""`."""
        self._quick.submit(lambda _: self._send_pictures(block), "picture")

    @command
    def request_parameters(self, names: Sequence[str], inside: Sequence[str] = (), block: str = "") -> None:
        """Send statistics of parameters as training has changed them so far; none of parameters that it has not.

        Args:
            names: Names of the parameters.
            inside: Names of all parameters in the block, of which the norms over time are sent.
            block: Path of the block, for the statistics of its output over time.
        """
        self._quick.submit(lambda _: self._send_parameters([*names], {*inside}, block), "parameters")

    def refresh(self) -> None:
        """Compute the values again, because the model or its parameters have changed."""
        if not self._shown["is_shown"]:
            return
        if self._analysed is not self._analysis():
            self._overlays.empty(_SOURCE)
        self._slow.submit(self._compute, "values")

    def _set(self, **changes: Any) -> None:
        self._shown = cast(FedSample, {**self._shown, **changes})

    def _compute(self, is_wanted: Callable[[], bool]) -> None:
        analysis, request = self._analysis(), self._shown
        traced, message = None, analysis.why_not
        inputs: Mapping[str, Any] = {}
        samples: int | None = None
        if not message:
            try:
                traced, inputs, samples = self._traced(analysis, request["sample"], request["gradients"])
            except Exception as error:  # the front end shows it instead of the values
                message = self._problem_of(error).summary
        if not is_wanted() or not self._shown["is_shown"]:
            return
        self.traced, self._inputs, self._analysed = traced, inputs, analysis
        sample = request["sample"] % samples if samples else request["sample"]
        self._set(sample=sample, samples=samples, message=message, version=self._shown["version"] + 1)
        self._overlays.offer(_SOURCE, {} if traced is None else _statistics_on_graph(traced))
        self._client.changed()

    def _traced(
        self, analysis: Analysis, sample: int, gradients: bool
    ) -> tuple[TracedValues, Mapping[str, Any], int | None]:
        data, own = self._data_for(analysis), self._own
        targets: Any = None
        if self._ready is None or self._ready[0] is not analysis:
            sized = analysis if data is None else analysis.with_sizes_of(data, 1)
            self._ready = analysis, sized, sized.physical.randomize_params(0)
        _, analysis, params = self._ready
        inputs: Mapping[str, Any]
        if data is None:
            inputs = _random_inputs(analysis, sample)
        else:
            row = data.take(np.array([sample % len(data)]))
            inputs, targets = row["inputs"], row["targets"]
        inputs = {name: _replaced(name, value, own[name]) if name in own else value for name, value in inputs.items()}
        inputs = check_inputs(
            DataSet({**inputs}, {} if targets is None else targets),
            analysis.physical.input_specs,
            "sample",
            ranges=analysis.physical.input_ranges,
        ).inputs
        try:
            return self._run(analysis, params, inputs, targets, gradients), inputs, None if data is None else len(data)
        except ShapeError:
            sizes = {spec.shape[0] for spec in analysis.inference.inputs.values() if spec.shape}
            if data is None or len(sizes) != 1 or not isinstance(size := next(iter(sizes)), int):
                raise
            # A model may fix the size of its batch. Then each row is this sample.
            rows, targets = jax.tree.map(lambda array: np.repeat(array, size, axis=0), (inputs, targets))
            return self._run(analysis, params, rows, targets, gradients), inputs, len(data)

    def _run(
        self,
        analysis: Analysis,
        first_params: Mapping[str, Any],
        inputs: Mapping[str, Any],
        targets: Any,
        gradients: bool,
    ) -> TracedValues:
        model, run = analysis.physical, self._training().current_run
        params, state = (run.params, run.model_state) if run else (first_params, model.initial_state())
        traced = model.trace_values(inputs, params, state=state)
        if not gradients:
            return traced
        if targets is None:
            raise DataError("gradients need data with targets.", (("data", "none"),))
        loss = analysis.loss

        def value(outputs: Mapping[str, Any]) -> jax.Array:
            return loss_value(loss, loss.prediction(outputs), targets).mean()

        return model.trace_values(inputs, params, jax.grad(value)(traced.outputs), state=state)

    def _data_for(self, analysis: Analysis) -> DataSet | None:
        names = tuple(analysis.inference.inputs)
        key = (names, analysis.design.template)
        if self._data is None or self._data[0] != key:
            data = self._training().data_for(analysis)
            if data is None:
                return None
            self._data = key, read_data(data, names)
        return self._data[1] if len(self._data[1]) else None

    def _send_pictures(self, block: str) -> None:
        traced, version = self.traced, self._shown["version"]
        pictures: list[ValuePicture] = []
        if traced is not None:
            values = traced.values if block else {**self._inputs, **traced.outputs}
            for name, value in values.items():
                if _belongs(name, block):
                    pictures.append(_pictured(name.removeprefix(block).strip(".") or "output", value))
            for name, value in traced.gradients.items() if block else ():
                if _belongs(name, block):
                    pictures.append(_pictured("gradient", value))
        inputs = {
            name: EditedInput(shape=list(value.shape), numbers=value.astype(np.float64).ravel().tolist())
            for name, value in self._inputs.items()
            if value.size <= _MOST_EDITED and value.dtype.kind != "c"
        }
        self._client.send("value", Reply(ValueHead(block=block, version=version, inputs=inputs), pictures))

    def _send_parameters(self, names: list[str], inside: set[str], block: str) -> None:
        run = self._training().current_run
        params = run.params if run else {}
        rows: list[ParameterStatistics] = []
        for name in names:
            if name not in params:
                continue
            values = np.asarray(params[name]).astype(np.float64)
            mean, std = (f"{number:.3g}" for number in (values.mean(), values.std()))
            counts = histogram(values, _BARS)[0].tolist()
            rows.append(ParameterStatistics(name=name, mean=mean, std=std, counts=counts))
        history = run.norms_history if run and (inside or block) else []
        tables = [norms.by_block({block: inside}) for norms in history]
        norms = {title: [table[title].get(block) for table in tables] for title in TITLES} if history else {}
        head = ParametersHead(names=names, block=block, steps=[norms.step for norms in history], norms=norms)
        self._client.send("parameters", Reply(head, rows))


def _replaced(name: str, value: Any, numbers: Sequence[float]) -> np.ndarray:
    array = np.asarray(numbers, np.float64)
    if array.size != value.size:
        raise DataError(
            f"input {name!r} needs {value.size:,} numbers.",
            (("shape", " × ".join(map(str, value.shape))), ("numbers", f"{array.size:,}")),
            "show the next sample",
        )
    # Numbers are checked and cast where those of the data are.
    return array.reshape(value.shape)


def _belongs(name: str, block: str) -> bool:
    return not block or name == block or name.startswith(f"{block}.")


def _pictured(title: str, value: Any) -> ValuePicture:
    try:
        statistics = Statistics.of(value).to_dict()
    except (TypeError, ValueError):  # a text, or a tuple of sizes
        return ValuePicture(title=title, svg="", about=str(value), rows=[])
    svg, about = value_picture(value, 240, 140)
    # A picture of one number would not follow the theme.
    svg = svg if statistics["shape"] else ""
    rows = [("shape", " × ".join(map(str, statistics["shape"])) or "scalar"), ("dtype", statistics["dtype"])]
    numbers = zip(HEADS, statistics_texts(statistics), strict=True)
    return ValuePicture(
        title=title, svg=svg, about=about, rows=[*rows, *((head, text) for head, text in numbers if text)]
    )


def _statistics_on_graph(traced: TracedValues) -> dict[str, dict[str, float | None]]:
    tables = {"output": traced.statistics, "gradient": traced.gradient_statistics}
    return {
        f"{subject}: {name}": {path: getattr(row, name) for path, row in rows.items() if "." not in path}
        for subject, rows in tables.items()
        for name in _ON_THE_GRAPH
        if rows
    }


def _random_inputs(analysis: Analysis, seed: int) -> dict[str, np.ndarray]:
    """Return inputs of the right shapes and dtypes, without data."""
    random, model = np.random.default_rng(seed), analysis.physical
    inputs: dict[str, np.ndarray] = {}
    for name, spec in analysis.inference.inputs.items():
        shape = [1 if axis == 0 and isinstance(dim, str) else dim for axis, dim in enumerate(spec.shape)]
        sizes = [dim for dim in shape if isinstance(dim, int)]
        if len(sizes) < len(shape):
            raise DataError(
                f"input {name!r} has a size without a number.", (("shape", str(spec.shape)),), "enter its size."
            )
        if "int" in spec.dtype or spec.dtype == "bool":
            least, most = model.input_ranges.get(name, (0, 1))
            inputs[name] = random.integers(least, most, sizes, endpoint=True).astype(spec.dtype)
        else:
            inputs[name] = np.asarray(jax.numpy.asarray(random.normal(size=sizes), spec.dtype))
    return inputs
