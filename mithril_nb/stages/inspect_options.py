"""The options of an inspection, and example numbers for its named sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mithril_nb.errors import MithrilError
from mithril_nb.graph.ports import Ports
from mithril_nb.stages.given.program import Given
from mithril_nb.stages.param_names import DEFAULT
from mithril_nb.stages.trace.provenance.frames import Span


@dataclass(frozen=True)
class InspectOptions:
    """The options of an inspection.

    Attributes:
        name: Name of the program; `None` uses the name of the function.
        params: Names of the arguments, or of parts of them, that hold the parameters of the model.
        device: The device to lower and compile for; `None` uses JAX's default.
        compiler_options: Options for XLA by name.
        source: The Python code that builds the model, and a mapping from line number to the path of the block that this
            line adds.
        kinds: Kind of each block, by path.
        ports: How the blocks of a model are connected.
        check_sizes: Raises an error if the values of the named sizes, given by name, are invalid; `None` if all values
            are valid.
        requested_at: The user's call for which this package built the program, such as a call of `fit`.
        given: The program, if it starts at a later stage than Python; else `None`.
    """

    name: str | None = None
    params: tuple[str, ...] = (DEFAULT,)
    device: Any | None = None
    compiler_options: Mapping[str, Any] | None = None
    source: tuple[str, Mapping[int, str]] | None = None
    kinds: Mapping[str, str] | None = None
    ports: Ports | None = None
    check_sizes: Callable[[Mapping[str, int]], None] | None = None
    requested_at: Span | None = None
    given: Given | None = None


def fitting_numbers(sizes: Iterable[str], check: Callable[[Mapping[str, int]], None] | None) -> dict[str, int]:
    """Return an example value for each named size: the same number for all, 32 or a smaller one that is valid.

    Args:
        sizes: Names of the sizes.
        check: Raises a `MithrilError` if values of the sizes are invalid; `None` if all values are valid.

    Examples:
        >>> fitting_numbers(["batch"], None)
        {'batch': 32}
    """
    # 32 is a usual batch size. Some programs limit a size, such as the length of a context.
    tried = [dict.fromkeys(sizes, number) for number in (32, 16, 8, 4, 2)]
    for numbers in tried:
        with suppress(MithrilError):
            if check is not None:
                check(numbers)
            return numbers
    return tried[0]


def with_numbers(sizes: Iterable[str], check: Callable[[Mapping[str, int]], None] | None = None) -> str:
    """Return advice for a program whose sizes have names but no values; see `fitting_numbers` for the arguments.

    Examples:
        >>> with_numbers(["batch"])
        'inspection.cost().at(batch=32)  # or inspect the program with arrays of known sizes'
    """
    numbers = ", ".join(f"{name}={number}" for name, number in fitting_numbers(sizes, check).items())
    return f"inspection.cost().at({numbers})  # or inspect the program with arrays of known sizes"
