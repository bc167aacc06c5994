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
        check_sizes: Takes a value for each named size, and raises if they are invalid; `None` if all are valid.
        requested_at: The user's call that requested a program of this package, such as a train step.
        given: The artifact that the program was read from, if the program starts at a later stage than Python.
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
    """Return a dict from each named size to an example value, the same for all.

    The value is the largest valid number of 32, 16, 8, 4 and 2, or 32 if none of them is valid.

    Args:
        sizes: Names of the sizes.
        check: Raises a `MithrilError` if the values of the sizes are invalid; `None` if all values are valid.

    Examples:
        >>> fitting_numbers(["batch"], None)
        {'batch': 32}
    """
    # A usual batch size first; smaller numbers for programs that limit a size, such as a context.
    tried = [dict.fromkeys(sizes, number) for number in (32, 16, 8, 4, 2)]
    for numbers in tried:
        with suppress(MithrilError):
            if check is not None:
                check(numbers)
            return numbers
    return tried[0]


def with_numbers(sizes: Iterable[str], check: Callable[[Mapping[str, int]], None] | None = None) -> str:
    """Return advice for a program whose sizes have names but no values: code with example values.

    Args:
        sizes: Names of the sizes.
        check: Raises a `MithrilError` if the values of the sizes are invalid; `None` if all values are valid.

    Examples:
        >>> with_numbers(["batch"])
        'inspection.cost().at(batch=32)  # or inspect it with numbers'
    """
    numbers = ", ".join(f"{name}={number}" for name, number in fitting_numbers(sizes, check).items())
    return f"inspection.cost().at({numbers})  # or inspect it with numbers"
