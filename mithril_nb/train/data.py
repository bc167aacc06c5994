"""Training data: arrays by input name beside their targets, checked before the first step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mithril_nb.errors import DataError, Diagnostic
from mithril_nb.graph.spec import LEADING, TensorSpec

_EXAMPLES = {"data": "ml.fit(model, (x, y))", "validation data": "validation=(x_val, y_val)"}


@dataclass(frozen=True)
class DataSet:
    """Samples in arrays whose first axis counts them.

    Attributes:
        inputs: Arrays by input name.
        targets: What the model should say: an array, or arrays by output name.
    """

    inputs: dict[str, np.ndarray]
    targets: Any

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def take(self, indices: np.ndarray) -> dict[str, Any]:
        """Return the batch of these samples."""
        targets = self.targets
        return {
            "inputs": {name: array[indices] for name, array in self.inputs.items()},
            "targets": {name: array[indices] for name, array in targets.items()}
            if isinstance(targets, dict)
            else targets[indices],
        }

    def split(self, fraction: float, seed: int) -> tuple[DataSet, DataSet]:
        """Return two data sets: the samples left, and the given fraction of them, drawn by seed."""
        order = np.random.default_rng([seed, len(self)]).permutation(len(self))
        taken = round(fraction * len(self))
        parts = (self.take(np.sort(order[taken:])), self.take(np.sort(order[:taken])))
        left, held_out = (DataSet(part["inputs"], part["targets"]) for part in parts)
        return left, held_out


class Problems:
    """Collects what is wrong with some data, so that all of it is said at once."""

    def __init__(self) -> None:
        self.found: list[Diagnostic] = []

    def add(self, summary: str, facts: Sequence[tuple[str, str]] = (), advice: str = "") -> None:
        """Note one problem."""
        self.found.append(Diagnostic(summary, tuple(facts), advice, code="DataError"))

    def raise_if_any(self) -> None:
        """Raise all that was found.

        Raises:
            DataError: There was something.
        """
        if self.found:
            raise DataError(self.found[0], more=tuple(self.found[1:]))


def read_data(data: Any, input_names: tuple[str, ...] | None, what: str = "data") -> DataSet:
    """Return the data set for what a user hands over; the arrays are not looked into yet.

    Args:
        data: `(x, y)`, where x is an array, or a dict of arrays by input name; or a `DataSet`.
        input_names: Names of the model's inputs; `None` while they are not known, one array is then called `"input"`.
        what: What to call it in messages.

    Raises:
        DataError: It has another form, misses an input, holds no numbers, or its lengths differ.
    """
    if isinstance(data, DataSet):
        inputs, targets = data.inputs, data.targets
    else:
        if not isinstance(data, tuple | list) or len(data) != 2:
            raise DataError(
                f"{what} is not a pair of inputs and targets.",
                (("got", _kind(data)), ("needed", "(x, y), or ({input name: array, ...}, y)")),
                _EXAMPLES[what],
            )
        inputs, targets = data
    names = list(input_names or ("input",))
    if not isinstance(inputs, Mapping):
        if len(names) > 1:
            raise DataError(
                f"{what} has one array of inputs, the model has {len(names)} inputs.",
                (("inputs", ", ".join(map(repr, names))),),
                f"({{{', '.join(f'{name!r}: ...' for name in names)}}}, y)",
            )
        inputs = {names[0]: inputs}
    elif len(names) == 1 and set(inputs) == {"input"}:  # stands for the only input everywhere, whatever its name
        inputs = {names[0]: inputs["input"]}
    elif input_names is not None and set(inputs) != set(input_names):
        raise DataError(
            f"{what} does not have the model's inputs.",
            (("needed", ", ".join(map(repr, input_names))), ("given", ", ".join(map(repr, inputs)) or "none")),
            f"({{{', '.join(f'{name!r}: ...' for name in input_names)}}}, y)",
        )
    problems = Problems()
    arrays = {str(name): _numbers(array, f"{what}: input {name!r}", problems) for name, array in inputs.items()}
    if isinstance(targets, Mapping):
        goals: Any = {
            str(name): _numbers(array, f"{what}: targets {name!r}", problems) for name, array in targets.items()
        }
    else:
        goals = _numbers(targets, f"{what}: targets", problems)
    problems.raise_if_any()
    found = DataSet(arrays, goals)
    _check_lengths(found, what)
    return found


def check_inputs(
    data: DataSet,
    specs: Mapping[str, TensorSpec],
    what: str = "data",
    ranges: Mapping[str, tuple[int, int]] | None = None,
) -> DataSet:
    """Return the data with each input in the dtype that the model takes.

    Args:
        data: What `read_data` gave.
        specs: Spec of each input of the model. The first dim is the batch and is not compared.
        what: What to call it in messages.
        ranges: Least and largest whole number of those inputs that have bounds.

    Raises:
        DataError: A shape does not fit, a number is NaN, infinite or out of range, or fractions stand where whole
            numbers are needed. All that is wrong is said at once.
    """
    problems, ranges = Problems(), ranges or {}
    inputs: dict[str, np.ndarray] = {}
    for name, array in data.inputs.items():
        found = len(problems.found)
        inputs[name] = _checked_input(array, specs.get(name), f"{what}: input {name!r}", problems)
        # What could not be cast as it is, is not what was given: its range would mislead.
        if name in ranges and len(problems.found) == found:
            _check_range(inputs[name], ranges[name], f"{what}: input {name!r}", problems)
    goals = data.targets if isinstance(data.targets, dict) else {"": data.targets}
    for name, array in goals.items():
        _check_finite(array, array, f"{what}: targets {name!r}" if name else f"{what}: targets", problems)
    problems.raise_if_any()
    return DataSet(inputs, data.targets)


def _numbers(values: Any, what: str, problems: Problems) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        problems.add(
            f"{what} is no array: its rows have different lengths.", (), "pad the rows to one length, and mask them."
        )
        return np.zeros((1,))
    # jax.numpy's own small floats (bfloat16, ...) are of kind "V"; they convert to float32 without loss.
    if array.dtype.kind == "V" and array.dtype.name.startswith(("bfloat", "float")):
        return array.astype(np.float32)
    if array.dtype.kind not in "biuf":
        problems.add(
            f"{what} holds no numbers.",
            (("dtype", str(array.dtype)), ("first", repr(array.flat[0]) if array.size else "none")),
            "np.asarray(values, dtype=np.float32)  # convert them first",
        )
        return np.zeros((1,))
    if array.ndim == 0:
        problems.add(f"{what} is one number, not an array of samples.", (("got", repr(values)),))
        return np.zeros((1,))
    return array


def _check_lengths(data: DataSet, what: str) -> None:
    goals = data.targets if isinstance(data.targets, dict) else {"": data.targets}
    lengths = {f"input {name!r}": len(array) for name, array in data.inputs.items()}
    lengths |= {f"targets {name!r}" if name else "targets": len(array) for name, array in goals.items()}
    if len(set(lengths.values())) > 1:
        least = min(lengths.values())
        raise DataError(
            f"{what} has inputs and targets of different lengths.",
            tuple((label, f"{count} samples") for label, count in lengths.items()),
            f"ml.fit(model, (x[:{least}], y[:{least}]))  # if the first {least} belong together",
        )
    if not len(data):
        raise DataError(f"{what} is empty: 0 samples.", (), "look at what selected the samples.")


def _checked_input(array: np.ndarray, spec: TensorSpec | None, what: str, problems: Problems) -> np.ndarray:
    if spec is None:
        _check_finite(array, array, what, problems)
        return array
    if not fits(array.shape, spec.shape):
        sizes = [dim for dim in spec.shape[1:] if isinstance(dim, int)]
        same_size = len(sizes) == len(spec.shape) - 1 and int(np.prod(sizes)) == int(np.prod(array.shape[1:]))
        shape = ", ".join(["len(x)", *map(str, sizes)])
        problems.add(
            f"{what} has another shape than the model takes.",
            (("data", f"{array.shape} {array.dtype}"), ("model", repr(spec))),
            f"x.reshape({shape})" if same_size else "a model whose input has the shape of one sample.",
        )
        return array
    if np.dtype(array.dtype).kind == "f" and str(spec.dtype).startswith(("int", "uint", "bool")):
        _check_finite(array, array, what, problems)
        with np.errstate(invalid="ignore"):
            whole = array.astype(str(spec.dtype))
        if np.isfinite(array).all() and not np.array_equal(whole, array):
            problems.add(
                f"{what} has fractions where the model takes whole numbers.",
                (("data", f"{array.shape} {array.dtype}"), ("model", repr(spec))),
                f'x.astype("{spec.dtype}")  # if rounding towards 0 is right',
            )
        return whole
    # bfloat16 has no NumPy name of its own: it goes in as float32 and the model casts.
    with np.errstate(over="ignore"):
        cast = array if str(spec.dtype) == "bfloat16" else array.astype(str(spec.dtype), copy=False)
    if array.dtype.kind in "iu" and cast.dtype.kind in "iu" and not np.array_equal(cast, array):
        first = tuple(int(place) for place in np.argwhere(cast != array)[0])
        problems.add(
            f"{what} has numbers that do not fit {spec.dtype}, which the model takes.",
            (
                ("data", f"{array.shape} {array.dtype}, from {array.min()} to {array.max()}"),
                ("first", f"[{', '.join(map(str, first))}] is {array[first]}"),
            ),
            "x = np.unique(x, return_inverse=True)[1].reshape(x.shape)  # if they only name things",
        )
    _check_finite(cast, array, what, problems)
    return cast


def fits(shape: tuple[int, ...], wanted: tuple[int | str, ...]) -> bool:
    """Whether an array of this shape can be cut into batches of the wanted shape; the first dim is the batch.

    Examples:
        >>> fits((1797, 64), ("batch", 64)), fits((1797, 8, 8), (32, 64)), fits((9, 8, 8), ("...", 8))
        (True, False, True)
    """
    if wanted and wanted[0] == LEADING:
        tail = wanted[1:]
        return len(shape) > len(tail) and _same(shape[len(shape) - len(tail) :], tail)
    return len(shape) == len(wanted) and _same(shape[1:], wanted[1:])


def _same(shape: tuple[int, ...], wanted: tuple[int | str, ...]) -> bool:
    return all(isinstance(dim, str) or dim == size for size, dim in zip(shape, wanted, strict=True))


def _check_finite(array: np.ndarray, given: np.ndarray, what: str, problems: Problems) -> None:
    """Note numbers that are not finite in the dtype that the model takes; say them as they were given."""
    if array.dtype.kind != "f":
        return
    bad = ~np.isfinite(array)
    if bad.any():
        first = tuple(int(place) for place in np.argwhere(bad)[0])
        index = ", ".join(map(str, first))
        problems.add(
            f"{what} holds NaN or infinity.",
            (("count", f"{int(bad.sum())} of {array.size}"), ("first", f"[{index}] is {given[first]}")),
            "keep = np.isfinite(x).reshape(len(x), -1).all(axis=1); x, y = x[keep], y[keep]",
        )


def _check_range(array: np.ndarray, bounds: tuple[int, int], what: str, problems: Problems) -> None:
    """Note whole numbers that a block has no row for: JAX would give NaN, or the row of another number."""
    if array.dtype.kind not in "iu":
        return
    bad = (array < bounds[0]) | (array > bounds[1])
    if bad.any():
        first = tuple(int(place) for place in np.argwhere(bad)[0])
        problems.add(
            f"{what} has numbers that the block which reads it has no row for.",
            (
                ("data", f"from {array.min()} to {array.max()}"),
                ("needed", f"from {bounds[0]} to {bounds[1]}"),
                ("first", f"[{', '.join(map(str, first))}] is {array[first]}, {int(bad.sum())} in all"),
            ),
            f"num_embeddings={array.max() + 1}" if array.min() >= 0 else "numbers that start at 0.",
        )


def _kind(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"{type(value).__name__} of shape {tuple(shape)}"
    return f"{type(value).__name__} of {len(value)}" if hasattr(value, "__len__") else type(value).__name__
