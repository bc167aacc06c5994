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
        params: Names of the arguments, or of parts of them, that hold the parameters of the model; `()` if none do.
        device: The device to lower and compile for; `None` uses JAX's default.
        compiler_options: Options for XLA by name; `None` for no options.
        source: For a `Model`, the Python code that builds it, and a mapping from line number to the path of the block
            that this line adds; else `None`.
        kinds: For a `Model`, the kind of each block by path, such as `"Linear"`; else `None`.
        ports: For a `Model`, how its blocks are connected; else `None`.
        check_sizes: A function that raises an error if symbolic sizes have invalid values, given as a dict by name.
            `None` if all values are valid.
        requested_at: The expression in the user's code for which this package built the program, such as a call of
            `fit`. `None` for the user's own program.
        trips: Numbers of iterations of loops by line or block, as in `with_trips`; `None` if none are stated.
        given: The program, if the user passed it in lowered or compiled form instead of as a function; else `None`.
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
    trips: Mapping[str, int] | None = None
    given: Given | None = None


def fitting_numbers(sizes: Iterable[str], check: Callable[[Mapping[str, int]], None] | None) -> dict[str, int]:
    """Return an example value for each symbolic size, by name: the same number for all.

    Args:
        sizes: Names of the sizes.
        check: A function that raises a `MithrilError` if the sizes have invalid values, given as a dict by name.

    Examples:
        >>> fitting_numbers(["batch"], None)
        {'batch': 32}
    """
    # This is the largest of 32, 16, 8, 4 and 2 that is valid, or 32 if none is valid.
    # 32 is a usual batch size. Some programs limit a size, such as the length of a context.
    tried = [dict.fromkeys(sizes, number) for number in (32, 16, 8, 4, 2)]
    for numbers in tried:
        with suppress(MithrilError):
            if check is not None:
                check(numbers)
            return numbers
    return tried[0]


def with_numbers(sizes: Iterable[str], check: Callable[[Mapping[str, int]], None] | None = None) -> str:
    """Return advice for a program with symbolic sizes; the arguments are those of `fitting_numbers`.

    Examples:
        >>> with_numbers(["batch"])
        'inspection.cost().at(batch=32)  # or inspect the program with arrays of known sizes'
    """
    numbers = ", ".join(f"{name}={number}" for name, number in fitting_numbers(sizes, check).items())
    return f"inspection.cost().at({numbers})  # or inspect the program with arrays of known sizes"
