"""The error classes, and the common form of their messages: what failed and where, the facts, and what to try.

A `Diagnostic` is plain data, so that a notebook, a widget and a terminal show the same text. A `MithrilError` carries
one or more. Its text has at most `LONGEST` characters and states how much it omits; the attributes omit nothing.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

LONGEST = 2_000
"""Maximum length of an error's text, in characters."""
_MOST_FACTS = 10
"""Maximum number of facts in a shortened diagnostic."""
_LONGEST_ADVICE = 1_400


@dataclass(frozen=True)
class Diagnostic:
    """One problem, as data.

    Attributes:
        summary: What failed, with block path and port; one sentence.
        facts: Pairs of label and text, such as received, expected and available values.
        advice: Code to paste or the next step; shown after `Try:`.
        block: Path of the block at fault, or `""` if no block is at fault.
        port: Name of the port at fault, or `""`.
        edge: `(source, target)` as `"block.port"` texts if a connection is at fault, else `None`.
        code: Name of the error class.

    Examples:
        >>> print(Diagnostic("no device 'gpu:1' on backend 'jax'.", (("present", "cpu:0"),), 'device="cpu:0"'))
        no device 'gpu:1' on backend 'jax'.
            present  cpu:0
            Try: device="cpu:0"
    """

    summary: str
    facts: tuple[tuple[str, str], ...] = ()
    advice: str = ""
    block: str = ""
    port: str = ""
    edge: tuple[str, str] | None = None
    code: str = "MithrilError"

    def __str__(self) -> str:
        return _cut(self.shortened()._text(), LONGEST)

    def _text(self) -> str:
        width = max((len(label) for label, _ in self.facts), default=0)
        lines = [self.summary]
        for label, text in self.facts:
            first, *rest = text.splitlines() or [""]
            lines.append(f"    {label:<{width}}  {first}".rstrip())
            lines.extend(f"    {'':<{width}}  {line}" for line in rest)
        return "\n".join([*lines, f"    Try: {self.advice}"] if self.advice else lines)

    def shortened(self) -> Diagnostic:
        """Return a copy whose text has at most `LONGEST` characters and 10 facts."""
        # The lengths first: labels are padded to one width, so the text of many facts may have gigabytes.
        length = len(self.summary) + sum(len(label) + len(text) for label, text in self.facts)
        if length <= LONGEST and len(self._text()) <= LONGEST:
            return self
        facts, rest = self.facts[:_MOST_FACTS], len(self.facts) - _MOST_FACTS
        facts = (*facts, ("...", f"and {rest:,} more")) if rest > 0 else facts
        # Facts are cut first, because code that is cut does not run.
        short, advice = self, self.advice
        if len(advice) > _LONGEST_ADVICE:
            advice = f"see the attribute advice of this diagnostic: it has {len(advice):,} characters."
        # Each step shortens the longest parts first, so that most facts stay whole.
        for most in (1_600, 800, 400, 200, 80, 20):
            short = replace(
                self,
                summary=_cut(self.summary, most),
                facts=tuple((_cut(label, most), _cut(text, most)) for label, text in facts),
                advice=advice,
            )
            if len(short._text()) <= LONGEST:
                break
        return short

    def to_dict(self) -> dict[str, object]:
        """Return the shortened text as JSON-serialisable data, for a front end."""
        short = self.shortened()
        return {
            "code": self.code,
            "summary": short.summary,
            "facts": [list(fact) for fact in short.facts],
            "advice": short.advice,
            "block": self.block,
            "port": self.port,
            "edge": list(self.edge) if self.edge else None,
        }


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    length = max(most - len(f"... ({len(text):,} characters more)"), 0)
    return f"{text[:length]}... ({len(text) - length:,} characters more)"


def listed(names: Iterable[object], most: int = 600) -> str:
    """Join names with commas, up to a maximum length. Return `"none"` for an empty list.

    Args:
        names: The names. Names that do not fit are replaced by their number.
        most: Maximum length of the names in characters. The first name is always included.

    Examples:
        >>> listed(["a", "b"]), listed([]), listed(range(100_000), 8)
        ('a, b', 'none', '0, 1, 2, ... and 99,997 more')
    """
    texts = [*map(str, names)]
    count, size = 0, 0
    for name in texts:
        size += len(name) + 2
        if count and size > most + 2:
            return f"{', '.join(texts[:count])}, ... and {len(texts) - count:,} more"
        count += 1
    return ", ".join(texts) or "none"


def short_repr(value: object, most: int = 80) -> str:
    """Return the `repr` of a value, cut off after `most` characters.

    Examples:
        >>> short_repr(list(range(50)), 20)
        '[0, 1, 2, 3, 4, 5...'
    """
    try:
        text = repr(_beginning(value, most))  # the repr of ten million elements would take seconds
    except RecursionError:
        text = f"<{type(value).__name__} nested too deeply to show>"
    except Exception:  # Python does not print an int of over 4300 digits, and a user's `__repr__` may raise
        # The limit on digits came with Python 3.11, against denial of service (CVE-2020-10735).
        is_number = isinstance(value, int)
        text = "<int with too many digits to show>" if is_number else f"<{type(value).__name__} whose repr fails>"
    return text if len(text) <= most else text[: most - 3] + "..."


def _beginning(value: Any, most: int) -> Any:
    if isinstance(value, str | bytes):
        return value[:most] if len(value) > most else value
    # By exact types: a subclass, such as a named tuple, may have another constructor.
    if type(value) in (list, tuple):
        return type(value)(_beginning(element, most) for element in value[:most])
    if type(value) is dict:
        items: Iterable[tuple[Any, Any]] = islice(value.items(), most)  # pyright: ignore
        return {_beginning(key, most): _beginning(element, most) for key, element in items}
    return value


def similar(name: str, available: Iterable[str], count: int = 1, least: float = 0.5) -> list[str]:
    """Return the names closest in spelling, like `difflib.get_close_matches` but in bounded time.

    Args:
        name: The name. A name of more than 200 characters has no matches.
        available: The names to choose from; only the first 2,000 are compared.
        count: Maximum number of names to return.
        least: The minimum similarity ratio, between 0 and 1.

    Examples:
        >>> similar("Linaer", ["Linear", "Relu"]), similar("L" * 1_000, ["Linear"])
        (['Linear'], [])
    """
    if len(name) > 200:  # difflib takes quadratic time, and a name may be a whole file
        return []
    return difflib.get_close_matches(name, islice(available, 2_000), count, least)


def alike(name: object, available: Iterable[str], least: float = 0.5) -> list[str]:
    """Return the names that start with `name` or have the initials `name`, then up to three of similar spelling.

    Args:
        name: The text that the user wrote.
        available: The names that exist.
        least: The minimum similarity ratio, between 0 and 1.

    Examples:
        >>> alike("num", ["name", "num_heads"]), alike("heds", ["heads"]), alike("lr", ["loss", "learning_rate"])
        (['num_heads', 'name'], ['heads'], ['learning_rate'])
    """
    # Initials, because "lr", "mse" and "bce" are usual names that share few letters with the words.
    text, names = str(name), [*available]
    initials = {"".join(word[:1] for word in choice.split("_")): choice for choice in names}
    begun = [choice for choice in names if len(text) > 1 and (choice.startswith(text) or choice == initials.get(text))]
    return [*begun, *(choice for choice in similar(text, names, 3, least) if choice not in begun)]


def nearest(name: object, available: Iterable[str]) -> str | None:
    """Return the known name that is closest to a text, ignoring case; `None` if no name is similar.

    Args:
        name: The value that the user wrote, of any type. For `"time"`, a name that starts with `"time_"` is closest.
        available: The names that exist.

    Examples:
        >>> nearest("Compile", ["lowered", "compiled"]), nearest("time", ["flops", "time_s"]), nearest(3, ["flops"])
        ('compiled', 'time_s', None)
    """
    if not isinstance(name, str) or not name:
        return None
    lowered, names = name.lower(), {choice.lower(): choice for choice in available}
    begun = [candidate for candidate in names if candidate.startswith(f"{lowered}_")]
    closest = next(iter([*begun, *similar(lowered, names, 1, 0.6)]), None)
    return None if closest is None else names[closest]


def _joined(texts: list[str]) -> str:
    if len(text := "\n".join(texts)) <= LONGEST:
        return text
    room = LONGEST - len(rest := "\n... and {:,} more: error.diagnostics has all of them.") - len(f"{len(texts):,}")
    count = 1
    while sum(map(len, texts[: count + 1])) + count <= room:
        count += 1
    return _cut("\n".join(texts[:count]), room) + rest.format(len(texts) - count)


class MithrilError(Exception):
    """Base of all errors that mithril_nb raises on purpose.

    Attributes:
        diagnostics: One `Diagnostic` or more; all mismatches of one model are collected before raising.
    """

    def __init__(
        self,
        summary: str | Diagnostic = "",
        facts: tuple[tuple[str, str], ...] = (),
        advice: str = "",
        *,
        block: str = "",
        port: str = "",
        edge: tuple[str, str] | None = None,
        more: tuple[Diagnostic, ...] = (),
    ):
        if isinstance(summary, Diagnostic):
            first = summary
        else:
            first = Diagnostic(summary, facts, advice, block, port, edge, type(self).__name__)
        self.diagnostics = (first, *more)
        # Python pickles an error as its class, its arguments and its `__dict__`, which holds the diagnostics.
        super().__init__(_joined([str(diagnostic) for diagnostic in self.diagnostics]))


class ShapeError(MithrilError, ValueError):
    """Shapes on a connection, or inside a block, are incompatible."""


class CycleError(MithrilError, ValueError):
    """A connection would close a cycle. A logical graph is acyclic."""


class ConnectionError(MithrilError, ValueError):
    """A connection refers to a port that does not exist, or that is already connected."""


class UnconnectedPortError(MithrilError, ValueError):
    """A port is not connected."""


class NameTakenError(MithrilError, ValueError):
    """A name is empty, invalid, or already in use."""


class NestingError(MithrilError, ValueError):
    """Models are nested too deep to run."""


class UnknownBlockError(MithrilError, LookupError):
    """No block, or no kind of block, has this name."""


class UnknownOpError(MithrilError, LookupError):
    """No op has this name, or a backend has no kernel for the op."""


class UnknownOptionError(MithrilError, TypeError):
    """An unknown argument of a block, backend or function, or an invalid value of an argument."""


class UnknownDtypeError(MithrilError, TypeError):
    """An unknown name of a dtype."""


class MissingInputError(MithrilError, LookupError):
    """A model or a program did not receive a required input."""


class UnexpectedInputError(MithrilError, LookupError):
    """A model or a program received an input or a parameter that it does not have, or received one twice."""


class MissingParameterError(MithrilError, LookupError):
    """A model did not receive a required parameter."""


class DeviceNotFoundError(MithrilError, LookupError):
    """The machine has no such device."""


class UnavailableBackendError(MithrilError, ImportError):
    """A library, a compiler or a front end that this call needs is not installed."""


def installed(module: str, caller: str, package: str = "") -> Any:
    """Import a module that only `caller` needs, of a package with the name of the module unless it is given."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = package or module
        raise UnavailableBackendError(
            f"{caller} needs {package}.", (("because", str(error)),), f"pip install {package}"
        ) from error


class DataError(MithrilError, ValueError):
    """Training data that cannot be used: NaN, empty, wrong length, labels out of range."""


class ModelFileError(MithrilError, ValueError):
    """A file or a link is not a model, is corrupt, or cannot be read or written."""


class CheckpointError(MithrilError, ValueError):
    """A checkpoint is corrupt, comes from another program, or belongs to another run; or its folder is in use."""


class RunStoreError(MithrilError, ValueError):
    """A run of `ml.track` is damaged, missing, in use, or belongs to another script; or its folder cannot be used."""


class LaunchError(MithrilError, RuntimeError):
    """A process of a launch failed, or the processes did not connect to each other.

    Attributes:
        status: The highest exit status of the processes. The launcher exits with this status.
    """

    status = 2


class StageUnavailableError(MithrilError, RuntimeError):
    """A stage is not available for this program or on this platform."""


class UnsupportedPrimitiveError(MithrilError, NotImplementedError):
    """A program contains a JAX primitive that a backend or an export format cannot express.

    Attributes:
        primitive, backend: Name of the primitive, such as `"fft"`, and of the backend or format, such as `"onnx"`.
        source: The user's line that calls it, as `"file.py:12"`, or `""` if unknown.
    """

    primitive = backend = source = ""


class ProfilingError(MithrilError, RuntimeError):
    """A program failed during a measurement, or the profiler is already in use."""


class CostBoundError(MithrilError, AssertionError):
    """The cost of a program is outside the bounds that a test sets."""


def refuse_unknown(
    name: str, unknown: Mapping[str, object], function: Callable[..., object], more: Iterable[str] = ()
) -> None:
    """Raise if a function received unknown arguments. The message lists the arguments that it accepts.

    Args:
        name: The name of the function, as the user called it.
        unknown: The unknown arguments.
        function: The function; its signature gives the accepted arguments.
        more: Names that the function accepts through `**`.

    Raises:
        UnknownOptionError: `unknown` is not empty.
    """
    if not unknown:
        return
    takes = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) and parameter.name != "self"
    ] + [*more]
    first = next(iter(unknown))
    near = alike(first, takes)
    raise UnknownOptionError(
        f"{name} takes no argument {first!r}.",
        (("takes", ", ".join(takes)),),
        f"{near[0]}={short_repr(unknown[first], 40)}" if near else "use one of these arguments.",
    )


class TrainingError(MithrilError, ArithmeticError):
    """Training cannot continue: the loss is NaN or infinite."""
