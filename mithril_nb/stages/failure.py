"""Errors of programs that JAX rejects: JAX's message and the user's line of Python."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

from mithril_nb.errors import MithrilError, StageUnavailableError, UnknownOptionError, nearest
from mithril_nb.stages import jax_versions
from mithril_nb.stages.once import Once
from mithril_nb.stages.records import format_source
from mithril_nb.stages.trace import tracing

Value = TypeVar("Value")


@dataclass(frozen=True)
class Failure:
    """The reason why a stage is missing.

    Attributes:
        kind: Name of the class of the error, such as `"TypeError"`.
        message: The first lines of the error's message.
        source: The innermost line of the user's Python, as `"file.py:12"`; `""` if unknown.
        code: The code on that line.
        location: Path of the file, as Python reports it, and number of that line; `None` if unknown.
    """

    kind: str
    message: str
    source: str = ""
    code: str = ""
    location: tuple[str, int] | None = None

    @property
    def reason(self) -> tuple[str, ...]:
        """Class and message of the error, line by line."""
        return tuple(f"{self.kind}: {self.message}".splitlines())

    @property
    def lines(self) -> tuple[str, ...]:
        """The user's line of Python if it is known, then class and message of the error, line by line."""
        location = (f"{format_source(self.source)}  {self.code}",) if self.source else ()
        return (*location, *self.reason)

    @property
    def text(self) -> str:
        """Class and message of the error, then the user's line of Python if it is known."""
        where = f"\n  at {format_source(self.source)}: {self.code}" if self.source else ""
        return f"{self.kind}: {self.message}{where}"


def failure_of(error: BaseException, in_trace: bool = False) -> Failure:
    """Return an error as a `Failure`, to show in a stage or a message.

    Examples:
        >>> failure_of(ValueError("no such axis")).text
        'ValueError: no such axis'
    """
    message = first_lines(error)
    frames = traceback.extract_tb(error.__traceback__) if in_trace else []
    # Take the innermost line of the user's code. JAX may have called this code, as the function of a `scan`.
    for frame in reversed(frames):
        if frame.filename == tracing.__file__:
            break  # frames further out called us, not JAX
        if jax_versions.library_of(frame.filename) is None:
            label = jax_versions.file_label(frame.filename)
            line = frame.lineno or 0
            return Failure(type(error).__name__, message, f"{label}:{line}", frame.line or "", (frame.filename, line))
    return Failure(type(error).__name__, message)


def first_lines(error: BaseException, count: int = 8) -> str:
    """Return the first lines of the message of an error."""
    return "\n".join(str(error).strip().splitlines()[:count]) or "no message"


def get_or_raise(part: Once[Value], failed: Callable[[Exception], Exception]) -> Value:
    """Return the value of `part`."""
    # If computing it raises an error, `failed` converts the error, and the result is raised instead. A
    # `StageUnavailableError` is raised unchanged.
    try:
        return part.get()
    except StageUnavailableError:
        raise
    except Exception as error:
        raise failed(error) from error


def not_traced(name: str, error: Exception) -> StageUnavailableError:
    """Build the error for a program that JAX cannot trace, from its name and JAX's error."""
    failure = failure_of(error, in_trace=True)
    where = (("at", f"{format_source(failure.source)}: {failure.code}"),) if failure.source else ()
    return StageUnavailableError(
        f"program {name!r} cannot be traced.",
        ((failure.kind, failure.message), *where),
        'print(inspection.stage("jaxpr").text)  # shows how far tracing came',
    )


def not_compiled(name: str, missing: str, error: Exception) -> StageUnavailableError:
    """Build the error raised if something that the compiler produces is missing."""
    failure = failure_of(error)
    return StageUnavailableError(
        f"program {name!r} has no {missing}.",
        ((failure.kind, failure.message),),
        'inspection.stage("hlo")  # shows whether it compiles',
    )


def unknown_name(program: str, kind: Literal["stage", "analysis"], name: str, choices: Iterable[str]) -> MithrilError:
    """Build the error for a `name` that is not among the `choices` stages, or the `choices` analyses, of a program."""
    choices = tuple(choices)
    usual = "hlo" if kind == "stage" else "compiled"
    near = nearest(name, choices) or (usual if usual in choices else choices[-1])
    summary, facts = f"program {program!r} has no {kind} {name!r}.", (("known", ", ".join(choices)),)
    if kind == "stage":
        return StageUnavailableError(summary, facts, f'inspection.stage("{near}")')
    return UnknownOptionError(summary, facts, f'inspection.analysis("{near}")')
