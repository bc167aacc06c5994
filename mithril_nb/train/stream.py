"""Training data as batches of an iterable: a generator, a `DataLoader` of PyTorch, a data set of grain, a list."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from mithril_nb.errors import DataError, UnknownOptionError
from mithril_nb.train.data import DataSet, read_data

STATES = (("get_state", "set_state"), ("state_dict", "load_state_dict"))


class Stream:
    """Batches of an iterable, which is iterated again at its end.

    Attributes:
        source: The iterable.
        first: The first batch.
        check: Function that checks a batch, with its label for messages, against the model and the loss, and returns it
            with their dtypes.
        length: Number of batches in one iteration; `None` if it is unknown.
        fingerprint: `None`: the samples are not known before they are read.
    """

    fingerprint = None

    def __init__(self, source: Any, input_names: tuple[str, ...] | None, batch_size: int, subject: str = "data"):
        self._names, self._subject, self._iterations = input_names, subject, 0
        self._iterate: Callable[[], Any] = lambda: iter(source)
        if hasattr(source, "column_names"):  # an IterableDataset of Hugging Face, which yields samples
            source = source.with_format("numpy")
            self._iterate = lambda: iter(source.iter(batch_size=batch_size))
        self.source, self._is_iterator = source, isinstance(source, Iterator)
        self.length = None if self._is_iterator or not hasattr(source, "__len__") else len(source)
        self.check: Callable[..., DataSet] = lambda batch, label="": batch
        self._taken = 0
        self._iterator = self._iterate()
        self._start = self._state()
        self.first = self._read()
        self._pending: DataSet | None = self.first

    @property
    def is_exact(self) -> bool:
        """Return whether the iterable can continue where it was: it has `get_state` or `state_dict`."""
        return self._stateful() is not None

    @property
    def position(self) -> Any:
        """The state of the iterable before the next batch; `None` if it has none."""
        return self._start if self._pending is not None else self._state()

    def restore(self, position: Any) -> None:
        """Go back or on to a position of this iterable, or of the same iterable in another process."""
        if position is None or (stateful := self._stateful()) is None:
            return
        owner, _, setter = stateful
        self._pending = None
        if owner is not self.source:
            self._iterator = owner = self._iterate()
        getattr(owner, setter)(position)
        if owner is self.source and not self._is_iterator:
            self._iterator = self._iterate()

    def rewound(self, taken: int) -> Callable[[], None]:
        """Start again, as after `taken` batches; return a function that undoes it.

        With a state, the iterable is at that place already. Others must yield the same batches again.
        """
        if self.is_exact:
            position = self.position
            return lambda: self.restore(position)
        if self._is_iterator:
            raise _not_again(self.source, taken)
        before = (self._iterator, self._pending, self._taken)
        self._iterator, self._pending = self._iterate(), None
        for _ in range(taken):
            self._read()

        def undo() -> None:
            self._iterator, self._pending, self._taken = before

        return undo

    def take(self) -> dict[str, Any]:
        """Return the next batch, checked.

        Raises:
            DataError: The batch is invalid, or the iterator has ended.
        """
        batch, self._pending = self._pending or self._read(), None
        batch = self.check(batch, self._label)
        return batch.take(slice(None))  # pyright: ignore[reportArgumentType]

    def everything(self) -> DataSet:
        """Return all samples of one iteration."""
        batches = [self.first]
        self._pending = None
        for batch in self._iterator:
            batches.append(read_data(batch, self._names, self._subject))
        return joined([batch.take(slice(None)) for batch in batches])  # pyright: ignore[reportArgumentType]

    def _read(self) -> DataSet:
        for _ in range(2):
            try:
                batch = next(self._iterator)
            except StopIteration:
                if self._is_iterator:
                    break
                self._iterator = self._iterate()
            else:
                self._taken += 1
                return read_data(batch, self._names, self._label)
        kind = "iterator" if self._is_iterator else "iterable"
        raise DataError(
            f"the {kind} of the {self._subject} has no more batches.",
            (("batches", str(self._taken)), ("type", type(self.source).__name__)),
            f"steps={self._taken}  # or a list of the batches, which is iterated again" if self._taken else "",
        )

    @property
    def _label(self) -> str:
        return self._subject if self._taken == 1 else f"{self._subject}: batch {self._taken}"

    def _stateful(self) -> tuple[Any, str, str] | None:
        for owner in (self._iterator, self.source):
            for getter, setter in STATES:
                if hasattr(owner, getter) and hasattr(owner, setter):
                    return owner, getter, setter
        return None

    def _state(self) -> Any:
        stateful = self._stateful()
        return None if stateful is None else getattr(stateful[0], stateful[1])()


def batches_from(loader: Any, taken: int, position: Any) -> Iterator[Any]:
    """Yield the batches of a loader again, which is iterated again at its end, from a place on.

    Args:
        loader: The iterable.
        taken: Number of batches before the place.
        position: The state of the loader at the place; `None` to skip `taken` batches.

    Raises:
        UnknownOptionError: The loader cannot start again, or it has no batch.
    """
    iterator = iter(loader)
    owners = (
        (owner, *names) for owner in (iterator, loader) for names in STATES if all(hasattr(owner, n) for n in names)
    )
    owner, getter, setter = next(owners, (None, "", ""))
    before = None
    if owner is not None and position is not None:
        before, taken = getattr(owner, getter)(), 0
        getattr(owner, setter)(position)
        iterator = iter(loader) if owner is loader else iterator
    elif iterator is loader:
        raise _not_again(loader, taken)
    try:
        batch = None
        while True:
            for batch in iterator:
                taken -= 1
                if taken < 0:
                    yield batch
            if batch is None or iterator is loader:
                raise UnknownOptionError("the loader has no more batches.", (("got", type(loader).__name__),))
            iterator = iter(loader)
    finally:
        if before is not None:
            getattr(owner, setter)(before)


def _not_again(source: Any, taken: int) -> UnknownOptionError:
    return UnknownOptionError(
        "the batches of an iterator without a state cannot be read again.",
        (("missing", f"the batches after step {taken}"), ("type", type(source).__name__)),
        "a list of the batches, or an iterator with get_state and set_state",
    )


def joined(batches: list[Any]) -> DataSet:
    """Return the samples of several batches as one data set."""

    def concatenated(parts: list[Any]) -> Any:
        if isinstance(parts[0], dict):
            return {name: concatenated([part[name] for part in parts]) for name in parts[0]}
        return np.concatenate(parts)

    return DataSet(**{name: concatenated([batch[name] for batch in batches]) for name in batches[0]})


def is_stream(data: Any) -> bool:
    """Return whether training data is an iterable of batches, not arrays or a table.

    Examples:
        >>> x = np.zeros((4, 2))
        >>> is_stream((x, x)), is_stream([(x, x), (x, x)]), is_stream(iter([(x, x)]))
        (False, True, True)
    """
    if isinstance(data, list):
        # A list of two lists is a pair of samples and targets.
        return bool(data) and all(isinstance(batch, tuple | Mapping) and is_batch(batch) for batch in data)
    if isinstance(data, tuple | Mapping | str | DataSet) or hasattr(data, "shape") or hasattr(data, "drop"):
        return False
    if hasattr(data, "column_names"):  # of Hugging Face: one with a length holds columns
        return not hasattr(data, "__len__")
    return hasattr(data, "__iter__") or (hasattr(data, "__len__") and hasattr(data, "__getitem__"))


def is_batch(value: Any) -> bool:
    """Return whether a tuple or a dict has arrays of samples."""
    parts = value.values() if isinstance(value, Mapping) else value
    return all(isinstance(part, Mapping) or getattr(part, "ndim", 0) > 0 for part in parts)


def packed(state: Any) -> Any:
    """Return the state of an iterable as JSON values.

    Examples:
        >>> unpacked(packed({"index": 3, "rest": (b"ab", np.arange(2))}))
        {'index': 3, 'rest': (b'ab', array([0, 1]))}
    """
    if isinstance(state, Mapping):
        return {"dict": [[packed(name), packed(value)] for name, value in state.items()]}
    if isinstance(state, tuple | list):
        return {type(state).__name__ if type(state) in (tuple, list) else "tuple": [packed(value) for value in state]}
    if isinstance(state, bytes):
        return {"bytes": base64.b64encode(state).decode()}
    if hasattr(state, "dtype"):
        kind, array = "tensor" if hasattr(state, "detach") else "array", np.asarray(state)
        return {kind: [array.dtype.str, list(array.shape), base64.b64encode(array.tobytes()).decode()]}
    if state is None or isinstance(state, bool | int | float | str):
        return state
    raise TypeError(f"a state of type {type(state).__name__!r} cannot be stored")


def unpacked(value: Any) -> Any:
    """Return the state of an iterable from the JSON values of `packed`."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "dict":
        return {unpacked(name): unpacked(item) for name, item in content}
    if kind in ("tuple", "list"):
        items = [unpacked(item) for item in content]
        return tuple(items) if kind == "tuple" else items
    if kind == "bytes":
        return base64.b64decode(content)
    dtype, shape, text = content
    array = np.frombuffer(base64.b64decode(text), dtype).reshape(shape).copy()
    return sys.modules["torch"].from_numpy(array) if kind == "tensor" else array
