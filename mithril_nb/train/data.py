"""Training data: arrays by input name, and their targets, checked before the first step."""

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
    """Samples along the first axis of arrays.

    Attributes:
        inputs: Arrays by input name.
        targets: Expected outputs: an array, or arrays by output name.
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
        """Return two data sets: the remaining samples, and a random fraction of them, chosen by `seed`."""
        order = np.random.default_rng([seed, len(self)]).permutation(len(self))
        taken = round(fraction * len(self))
        parts = (self.take(np.sort(order[taken:])), self.take(np.sort(order[:taken])))
        left, held_out = (DataSet(part["inputs"], part["targets"]) for part in parts)
        return left, held_out


class Problems:
    """Collects the problems of a data set, to report all of them together."""

    def __init__(self) -> None:
        self.found: list[Diagnostic] = []

    def add(self, summary: str, facts: Sequence[tuple[str, str]] = (), advice: str = "") -> None:
        """Add one problem."""
        self.found.append(Diagnostic(summary, tuple(facts), advice, code="DataError"))

    def raise_if_any(self) -> None:
        """Raise all problems in one error.

        Raises:
            DataError: There is at least one problem.
        """
        if self.found:
            raise DataError(self.found[0], more=tuple(self.found[1:]))


def read_data(data: Any, input_names: tuple[str, ...] | None, what: str = "data") -> DataSet:
    """Convert the user's data to a `DataSet`. The values of the arrays are not checked yet.

    Args:
        data: `(x, y)`, where x is an array, or a dict of arrays by input name; or a `DataSet`.
        input_names: Names of the model's inputs. `None` if still unknown: a single array is then named `"input"`.
        what: Name of the data in messages.

    Raises:
        DataError: The data has another form, lacks an input, is not numeric, or its lengths differ.
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
    elif len(names) == 1 and set(inputs) == {"input"}:  # "input" always refers to a model's only input
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
    """Return the data with each input cast to the model's dtype.

    Args:
        data: Result of `read_data`.
        specs: Spec of each input of the model. The first dim is the batch and is not compared.
        what: Name of the data in messages.
        ranges: Smallest and largest integer of each input that has bounds.

    Raises:
        DataError: A shape does not match, a number is NaN, infinite or out of range, or an integer input receives
            fractions. All problems are reported together.
    """
    problems, ranges = Problems(), ranges or {}
    inputs: dict[str, np.ndarray] = {}
    for name, array in data.inputs.items():
        found = len(problems.found)
        inputs[name] = _checked_input(array, specs.get(name), f"{what}: input {name!r}", problems)
        # If the cast changed the values, a message about their range would mislead.
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
            f"{what} is not an array: its rows have different lengths.",
            (),
            "pad the rows to one length, and mask them.",
        )
        return np.zeros((1,))
    # jax.numpy's own small floats (bfloat16, ...) are of kind "V"; they convert to float32 without loss.
    if array.dtype.kind == "V" and array.dtype.name.startswith(("bfloat", "float")):
        return array.astype(np.float32)
    if array.dtype.kind not in "biuf":
        problems.add(
            f"{what} is not numeric.",
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
            f"{what} does not have the shape of the model's input.",
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
                f"{what} has fractions, but the model expects integers.",
                (("data", f"{array.shape} {array.dtype}"), ("model", repr(spec))),
                f'x.astype("{spec.dtype}")  # if you want to round towards 0',
            )
        return whole
    # NumPy has no bfloat16: pass float32, and the model casts.
    with np.errstate(over="ignore"):
        cast = array if str(spec.dtype) == "bfloat16" else array.astype(str(spec.dtype), copy=False)
    if array.dtype.kind in "iu" and cast.dtype.kind in "iu" and not np.array_equal(cast, array):
        first = tuple(int(place) for place in np.argwhere(cast != array)[0])
        problems.add(
            f"{what} has numbers outside the range of {spec.dtype}, the dtype of the model's input.",
            (
                ("data", f"{array.shape} {array.dtype}, from {array.min()} to {array.max()}"),
                ("first", f"[{', '.join(map(str, first))}] is {array[first]}"),
            ),
            "x = np.unique(x, return_inverse=True)[1].reshape(x.shape)  # if they are only identifiers",
        )
    _check_finite(cast, array, what, problems)
    return cast


def fits(shape: tuple[int, ...], wanted: tuple[int | str, ...]) -> bool:
    """Return whether an array of this shape splits into batches of the wanted shape. The first dim is the batch.

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
    """Report numbers that are not finite in the model's dtype. The message shows them as the user passed them."""
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
    """Report indices out of range, for which JAX would return NaN or another row."""
    if array.dtype.kind not in "iu":
        return
    bad = (array < bounds[0]) | (array > bounds[1])
    if bad.any():
        first = tuple(int(place) for place in np.argwhere(bad)[0])
        problems.add(
            f"{what} has indices out of range for the block that reads it.",
            (
                ("data", f"from {array.min()} to {array.max()}"),
                ("needed", f"from {bounds[0]} to {bounds[1]}"),
                ("first", f"[{', '.join(map(str, first))}] is {array[first]}, {int(bad.sum())} in all"),
            ),
            f"num_embeddings={array.max() + 1}" if array.min() >= 0 else "indices that start at 0.",
        )


def _kind(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"{type(value).__name__} of shape {tuple(shape)}"
    return f"{type(value).__name__} of {len(value)}" if hasattr(value, "__len__") else type(value).__name__
