"""Training data: arrays by input name and their targets, checked before the first step, and split into batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from mithril_nb.errors import DataError, Diagnostic
from mithril_nb.graph.spec import LEADING, TensorSpec
from mithril_nb.train.processes import fingerprint

_RENUMBERED = "x = np.unique(x, return_inverse=True)[1].reshape(x.shape)  # numbers the values from 0"


@dataclass(frozen=True)
class DataSet:
    """Samples along the first axis of arrays.

    Attributes:
        inputs: Arrays by input name.
        targets: Expected outputs: an array, or arrays by output name.
        weights: A weight for each sample, or for each token of it; `None` if all count equally.
    """

    inputs: dict[str, np.ndarray]
    targets: Any
    weights: np.ndarray | None = None

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values()), ()))

    @property
    def named_targets(self) -> dict[str, Any]:
        """The arrays of targets, by the label that messages use: `"targets"`, or `"targets 'name'"` for each output."""
        if not isinstance(self.targets, dict):
            return {"targets": self.targets}
        return {f"targets {name!r}": array for name, array in self.targets.items()}

    @cached_property
    def fingerprint(self) -> int:
        """A hash of all samples, computed once. Another order of the samples gives another hash."""
        return fingerprint({"inputs": self.inputs, "targets": self.targets, "weights": self.weights})

    def take(self, indices: np.ndarray) -> dict[str, Any]:
        """Return the samples at these indices as a batch: `{"inputs": {name: array, ...}, "targets": ...}`.

        A batch of weighted samples has their `"weights"`, too.
        """
        targets, weights = self.targets, self.weights
        batch = {
            "inputs": {name: array[indices] for name, array in self.inputs.items()},
            "targets": {name: array[indices] for name, array in targets.items()}
            if isinstance(targets, dict)
            else targets[indices],
        }
        return batch if weights is None else batch | {"weights": weights[indices]}

    def split(self, fraction: float, seed: int) -> tuple[DataSet, DataSet]:
        """Hold out a random fraction of the samples, drawn by `seed`; return the remaining and the held-out samples."""
        # A list seeds by all of its numbers. Their sum would repeat the orders of neighbouring seeds.
        order = np.random.default_rng([seed, len(self)]).permutation(len(self))
        count = round(fraction * len(self))
        # Sorted, so that the samples stay in the order of the user; `shuffle=False` then keeps this order.
        parts = (self.take(np.sort(order[count:])), self.take(np.sort(order[:count])))
        left, held_out = (DataSet(**part) for part in parts)
        return left, held_out


class Problems:
    """Collects the problems of a data set, to report all of them together."""

    def __init__(self) -> None:
        self.diagnostics: list[Diagnostic] = []

    def add(self, summary: str, facts: Sequence[tuple[str, str]] = (), advice: str = "") -> None:
        """Add one problem."""
        self.diagnostics.append(Diagnostic(summary, tuple(facts), advice, code="DataError"))

    def raise_if_any(self) -> None:
        """Raise all problems in one `DataError`, if there are any."""
        if self.diagnostics:
            raise DataError(self.diagnostics[0], more=tuple(self.diagnostics[1:]))


def read_data(data: Any, input_names: tuple[str, ...] | None, subject: str = "data") -> DataSet:
    """Convert the user's data to a `DataSet`. `check_inputs` checks shapes and values later."""
    if isinstance(data, DataSet):
        inputs, targets, weights = data.inputs, data.targets, data.weights
    else:
        data = _of_columns(data, subject)
        if not isinstance(data, tuple | list) or len(data) not in (2, 3):
            got = type(data).__name__
            if (shape := getattr(data, "shape", None)) is not None:
                got += f" of shape {tuple(shape)}"
            elif hasattr(data, "__len__"):
                got += f" of length {len(data)}"
            raise DataError(
                f"{subject} is not a pair of inputs and targets.",
                (("got", got), ("needed", "(x, y), (x, y, weights), or ({input name: array, ...}, y)")),
                "x, y = map(np.concatenate, zip(*data)); ml.fit(model, (x, y))  # all batches as two arrays"
                if isinstance(data, Iterable) and not isinstance(data, tuple | list | Mapping | str | np.ndarray)
                else "ml.fit(model, (x, y))",
            )
        inputs, targets, weights = data if len(data) == 3 else (*data, None)
    names = list(input_names or ("input",))
    if not isinstance(inputs, Mapping):
        if len(names) > 1:
            raise DataError(
                f"{subject} has one array of inputs, the model has {len(names)} inputs.",
                (("inputs", ", ".join(map(repr, names))),),
                f"({{{', '.join(f'{name!r}: ...' for name in names)}}}, y)",
            )
        inputs = {names[0]: inputs}
    elif len(names) == 1 and set(inputs) == {"input"}:  # "input" always refers to a model's only input
        inputs = {names[0]: inputs["input"]}
    elif input_names is not None and set(inputs) != set(input_names):
        raise DataError(
            f"{subject} does not have the model's inputs.",
            (("needed", ", ".join(map(repr, input_names))), ("given", ", ".join(map(repr, inputs)) or "none")),
            f"({{{', '.join(f'{name!r}: ...' for name in input_names)}}}, y)",
        )
    problems = Problems()
    arrays = {str(name): _numbers(array, f"{subject}: input {name!r}", problems) for name, array in inputs.items()}
    if isinstance(targets, Mapping):
        goals: Any = {
            str(name): _numbers(array, f"{subject}: targets {name!r}", problems) for name, array in targets.items()
        }
    else:
        goals = _numbers(targets, f"{subject}: targets", problems)
    own = None if weights is None else _numbers(weights, f"{subject}: weights", problems)
    problems.raise_if_any()
    dataset = DataSet(arrays, goals, None if own is None else own.astype(np.float32))
    lengths = {f"input {name!r}": len(array) for name, array in arrays.items()}
    lengths |= {label: len(array) for label, array in dataset.named_targets.items()}
    lengths |= {} if own is None else {"weights": len(own)}
    if len(set(lengths.values())) > 1:
        raise DataError(
            f"{subject} has inputs and targets of different lengths.",
            tuple((label, f"{count} samples") for label, count in lengths.items()),
        )
    if not len(dataset):
        raise DataError(f"{subject} is empty: 0 samples.")
    return dataset


def check_inputs(
    data: DataSet,
    specs: Mapping[str, TensorSpec],
    subject: str = "data",
    ranges: Mapping[str, tuple[int, int]] | None = None,
) -> DataSet:
    """Return the data with each input cast to the model's dtype. Inputs for bfloat16 keep their dtype."""
    problems, ranges = Problems(), ranges or {}
    inputs: dict[str, np.ndarray] = {}
    for name, array in data.inputs.items():
        count_before = len(problems.diagnostics)
        inputs[name] = _checked_input(name, array, specs.get(name), f"{subject}: input {name!r}", problems)
        # If the cast changed the values, a message about their range would mislead.
        if name in ranges and len(problems.diagnostics) == count_before:
            _check_range(inputs[name], ranges[name], f"{subject}: input {name!r}", problems)
    for label, array in data.named_targets.items():
        _check_finite(array, array, f"{subject}: {label}", problems)
    if (weights := data.weights) is not None and not (weights.min() >= 0 and 0 < weights.sum() < np.inf):
        problems.add(
            f"{subject}: the weights are not finite numbers of at least 0 with a positive sum.",
            (("weights", f"from {weights.min():g} to {weights.max():g}"),),
        )
    problems.raise_if_any()
    return replace(data, inputs=inputs)


TARGETS = ("targets", "target", "labels", "label", "y")
WEIGHTS = ("weights", "weight", "sample_weight")
"""Names by which a column of a table or an entry of a batch is known as the targets and the weights."""


def _of_columns(data: Any, subject: str) -> Any:
    # A dict, a DataFrame of pandas, or a Dataset of Hugging Face: which loads all of its columns.
    if hasattr(data, "column_names") and hasattr(data, "with_format"):
        data = data.with_format("numpy")[:]
    is_table = hasattr(data, "columns") and hasattr(data, "drop")
    if not isinstance(data, Mapping) and not is_table:
        return data
    names: list[Any] = list(getattr(data, "columns", data) if is_table else data)
    targets, weights = ([name for name in names if name in known] for known in (TARGETS, WEIGHTS))
    if len(targets) != 1 or len(weights) > 1 or len(names) == len(targets) + len(weights):
        raise DataError(
            f"{subject}: one of the columns must have the name of the targets.",
            (("columns", ", ".join(map(repr, names))), ("needed", " or ".join(map(repr, TARGETS)))),
            f'ml.fit(model, (data.drop(columns="{names[-1]}"), data["{names[-1]}"]))' if is_table and names else "",
        )
    others = [name for name in names if name not in (*targets, *weights)]
    inputs = data[others] if is_table else {name: data[name] for name in others}
    if not is_table and len(others) == 1:
        inputs = data[others[0]]
    return (inputs, data[targets[0]], *(data[name] for name in weights))


def _numbers(values: Any, subject: str, problems: Problems) -> np.ndarray:
    if hasattr(values, "detach"):  # a tensor of PyTorch
        values = values.detach().cpu()
        values = values.float() if str(values.dtype) == "torch.bfloat16" else values  # NumPy has no such dtype
    elif hasattr(values, "iloc"):  # a table or a column of pandas, maybe with a dtype that NumPy has not
        dtypes = dict(values.dtypes) if hasattr(values, "columns") else {values.name: values.dtype}
        text = [name for name, dtype in dtypes.items() if getattr(dtype, "kind", "O") not in "biuf"]
        if text:
            problems.add(
                f"{subject}: not all columns are numeric.",
                tuple((repr(name), f"{dtypes[name]}, such as {_first(values, name)!r}") for name in text),
                f"data[{text[0]!r}].astype('category').cat.codes  # numbers the values from 0; or leave the column out",
            )
            return np.zeros((1,))
        if any(hasattr(dtype, "na_value") for dtype in dtypes.values()):
            values = values.to_numpy("float64" if values.isna().to_numpy().any() else None, na_value=np.nan)
    try:
        array = np.asarray(values)
    except ValueError:  # since NumPy 1.24; before, rows of different lengths became an array of objects
        problems.add(f"{subject} is not an array: its rows have different lengths.", (), "pad the rows with zeros.")
        return np.zeros((1,))
    # jax.numpy's own small floats (bfloat16, ...) are of kind "V"; they convert to float32 without loss.
    if array.dtype.kind == "V" and array.dtype.name.startswith(("bfloat", "float")):
        return array.astype(np.float32)
    if array.dtype.kind == "O" and array.size and isinstance(array.flat[0], list | np.ndarray):
        problems.add(f"{subject} is not an array: its rows have different lengths.", (), "pad the rows with zeros.")
        return np.zeros((1,))
    if array.dtype.kind not in "biuf":
        problems.add(
            f"{subject} is not numeric.",
            (("dtype", str(array.dtype)), ("first", repr(array.flat[0]) if array.size else "none")),
            "np.asarray(values, dtype=np.float32)  # convert them first",
        )
        return np.zeros((1,))
    if array.ndim == 0:
        problems.add(f"{subject} is one number, not an array of samples.", (("got", repr(values)),))
        return np.zeros((1,))
    return array


def _first(values: Any, name: Any) -> Any:
    column = values[name] if hasattr(values, "columns") else values
    return column.iloc[0] if len(column) else None


def _checked_input(
    name: str, array: np.ndarray, spec: TensorSpec | None, subject: str, problems: Problems
) -> np.ndarray:
    if spec is None:
        _check_finite(array, array, subject, problems)
        return array
    if not fits(array.shape, spec.shape):
        problems.add(
            f"{subject} does not have the shape of the model's input.",
            (("data", f"{array.shape} {array.dtype}"), ("model", repr(spec))),
            f"ml.compile(model, shapes={{{name!r}: {['batch', *array.shape[1:]]}}})  # or reshape the data",
        )
        return array
    # Tables of pandas and files of CSV often hold indices as floats. Without fractions, they are accepted.
    if np.dtype(array.dtype).kind == "f" and str(spec.dtype).startswith(("int", "uint", "bool")):
        _check_finite(array, array, subject, problems)
        with np.errstate(invalid="ignore"):
            integers = array.astype(str(spec.dtype))
        if np.isfinite(array).all() and not np.array_equal(integers, array):
            problems.add(
                f"{subject} has fractions, but the model expects integers.",
                (("data", f"{array.shape} {array.dtype}"), ("model", repr(spec))),
                f'x.astype("{spec.dtype}")  # if you want to round towards 0',
            )
        return integers
    # NumPy has no bfloat16: pass float32, and the model casts.
    with np.errstate(over="ignore"):
        cast = array if str(spec.dtype) == "bfloat16" else array.astype(str(spec.dtype), copy=False)
    if array.dtype.kind in "iu" and cast.dtype.kind in "iu" and not np.array_equal(cast, array):
        problems.add(
            f"{subject} has numbers outside the range of {spec.dtype}, the dtype of the model's input.",
            (
                ("data", f"{array.shape} {array.dtype}, from {array.min()} to {array.max()}"),
                ("first", first_of(cast != array, array)),
            ),
            _RENUMBERED,
        )
    _check_finite(cast, array, subject, problems)  # after the cast, because 1e300 is infinite in float32
    return cast


def fits(shape: tuple[int, ...], batch_shape: tuple[int | str, ...]) -> bool:
    """Return whether an array splits along its first axis into batches of shape `batch_shape`.

    Examples:
        >>> fits((1797, 64), ("batch", 64)), fits((1797, 8, 8), (32, 64)), fits((9, 8, 8), ("...", 8))
        (True, False, True)
    """
    if batch_shape and batch_shape[0] == LEADING:
        tail = batch_shape[1:]
        return len(shape) > len(tail) and _same(shape[len(shape) - len(tail) :], tail)
    return len(shape) == len(batch_shape) and _same(shape[1:], batch_shape[1:])


def _same(shape: tuple[int, ...], expected: tuple[int | str, ...]) -> bool:
    return all(isinstance(dim, str) or dim == size for size, dim in zip(shape, expected, strict=True))


def _check_finite(array: np.ndarray, original: np.ndarray, subject: str, problems: Problems) -> None:
    if array.dtype.kind != "f":
        return
    bad = ~np.isfinite(array)
    if bad.any():
        problems.add(
            f"{subject} holds NaN or infinity.",
            (("count", f"{int(bad.sum())} of {array.size}"), ("first", first_of(bad, original))),
            f"keep = np.isfinite(np.asarray(x, '{array.dtype}')).reshape(len(x), -1).all(1); x, y = x[keep], y[keep]",
        )


def _check_range(array: np.ndarray, bounds: tuple[int, int], subject: str, problems: Problems) -> None:
    # Report indices out of range, for which JAX would return NaN or another row.
    if array.dtype.kind not in "iu":
        return
    bad = (array < bounds[0]) | (array > bounds[1])
    if bad.any():
        problems.add(
            f"{subject} has indices out of range for the block that reads it.",
            (
                ("data", f"from {array.min()} to {array.max()}"),
                ("needed", f"from {bounds[0]} to {bounds[1]}"),
                ("first", f"{first_of(bad, array)}, {int(bad.sum())} in all"),
            ),
            _RENUMBERED,
        )


def first_of(is_bad: np.ndarray, array: np.ndarray) -> str:
    """Return the index and the value of the first bad element, for a message."""
    first = tuple(int(index) for index in np.argwhere(is_bad)[0])
    return f"[{', '.join(map(str, first))}] is {array[first]}"


Tail = Literal["pad", "drop", "short"]
"""Treatment of a last batch that is not full: filled with rows of weight 0, dropped, or kept short."""


def epoch_order(count: int, epoch: int, seed: int, shuffle: bool = True) -> np.ndarray:
    """Return the order of the samples in an epoch. The same arguments give the same order on every machine.

    Examples:
        >>> sorted(epoch_order(4, epoch=1, seed=0).tolist()), epoch_order(3, 1, 0, shuffle=False).tolist()
        ([0, 1, 2, 3], [0, 1, 2])
    """
    # Of NumPy, not of jax.random, whose numbers depend on flags: JAX 0.5 changed jax_threefry_partitionable.
    return np.random.default_rng([seed, epoch]).permutation(count) if shuffle else np.arange(count)


def batch_count(count: int, batch_size: int, tail: Tail) -> int:
    """Return the number of batches in an epoch of `count` samples. If `tail` is `"drop"`, all batches are full.

    Examples:
        >>> batch_count(10, 4, "pad"), batch_count(10, 4, "drop")
        (3, 2)
    """
    return count // batch_size if tail == "drop" else -(-count // batch_size)


def batch_at(order: np.ndarray, index: int, batch_size: int, tail: Tail) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the sample indices of one batch, and their weights.

    Examples:
        >>> batch_at(np.arange(5), 1, 3, "pad")
        (array([3, 4, 0]), array([1., 1., 0.], dtype=float32))
    """
    indices = order[index * batch_size : (index + 1) * batch_size]
    if tail != "pad" or len(order) % batch_size == 0:
        return indices, None
    weights = np.zeros(batch_size, np.float32)
    weights[: len(indices)] = 1.0
    # Any row can pad the batch. np.resize repeats the order if it is shorter than a batch.
    return np.concatenate([indices, np.resize(order, batch_size - len(indices))]), weights


def batches(
    count: int, batch_size: int, *, epoch: int = 1, seed: int = 0, shuffle: bool = True, tail: Tail = "pad"
) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Yield the batches of one epoch, in the form that `batch_at` returns."""
    order = epoch_order(count, epoch, seed, shuffle)
    for index in range(batch_count(count, batch_size, tail)):
        yield batch_at(order, index, batch_size, tail)
