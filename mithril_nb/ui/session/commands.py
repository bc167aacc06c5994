"""Commands of a front end: check their arguments, run requests in threads, and send replies to listeners."""

from __future__ import annotations

import inspect
import re
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NotRequired,
    Protocol,
    TypedDict,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from mithril_nb.errors import Diagnostic, MithrilError, UnknownOptionError, nearest, short_repr
from mithril_nb.jobs import JobQueue

if TYPE_CHECKING:
    from mithril_nb.analysis.whatif import WhatIf
    from mithril_nb.inspection import Inspection
    from mithril_nb.models.model import Model

Function = TypeVar("Function", bound=Callable[..., None])

_TYPE_NAMES = {
    str: "a string",
    bool: "True or False",
    int: "an integer",
    float: "a number",
    NoneType: "None",
    dict: "a dict",
}
# These arguments are not checked here, because their commands raise better messages.
_OTHERWISE_CHECKED = frozenset({"x", "y", "value", "shape"})


def command(function: Function) -> Function:
    """Mark a method as a command of a front end, with the name and the arguments of the method."""
    function.__dict__["is_command"] = True
    return function


def commands_of(*handlers: object) -> dict[str, Callable[..., None]]:
    """Return the commands of some objects by name, in the order of the objects and of their definitions."""
    return {
        name: getattr(handler, name)
        for handler in handlers
        for kind in type(handler).__mro__
        for name, member in vars(kind).items()
        if getattr(member, "is_command", False)
    }


def check_command(name: object, args: object, commands: Collection[str]) -> None:
    """Check that a command is one of `commands`, and that its arguments are a dict."""
    if not isinstance(name, str) or name not in commands:
        near = nearest(name, commands) or next(iter(commands))
        facts = (("known", ", ".join(commands)),)
        raise UnknownOptionError(f"unknown command {_short(name)}.", facts, f'wb.do("{near}")')
    if not isinstance(args, Mapping) or not all(isinstance(key, str) for key in args):
        summary = f"command {name!r} failed: its arguments are not a dict of names and values."
        raise UnknownOptionError(summary, (("given", _short(args)),), f'wb.do("{name}", ...)')


def check_arguments(
    command: str, function: Callable[..., Any], args: Mapping[str, Any], *, ignored: Collection[str] = ()
) -> None:
    """Check the arguments of a command against the signature of its function."""
    # Unwrap the function: its annotations resolve only in the module that defines it.
    signature, hints = inspect.signature(function), get_type_hints(inspect.unwrap(function))
    parameters = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.name not in ignored and parameter.kind is not parameter.VAR_KEYWORD
    ]
    try:
        signature.replace(parameters=parameters).bind(**args)
    except TypeError as error:
        why = str(error)
    else:
        wrong = [name for name in args if name not in _OTHERWISE_CHECKED and not _fits(args[name], hints[name])]
        if not wrong:
            return
        why = "; ".join(f"{name}={_short(args[name])} is not {_type_name(hints[name])}" for name in wrong)
    received = ", ".join(f"{name}={_short(value)}" for name, value in args.items())
    takes = "; ".join(f"{parameter.name}: {_type_name(hints[parameter.name])}" for parameter in parameters)
    facts = (("given", received or "nothing"), ("takes", takes or "nothing"))
    needed = "".join(f", {parameter.name}=..." for parameter in parameters if parameter.default is parameter.empty)
    raise UnknownOptionError(f"command {command!r} failed: {why}.", facts, f'wb.do("{command}"{needed})') from None


def _fits(value: Any, hint: Any) -> bool:
    if hint is Any:
        return True
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, member) for member in get_args(hint))
    if get_origin(hint) is Sequence:
        [item] = get_args(hint)
        # Commands that take lists of lists check them themselves.
        is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        return is_list and (get_origin(item) is Sequence or all(_fits(entry, item) for entry in value))
    if hint is bool or isinstance(value, bool):
        return hint is bool and isinstance(value, bool)
    if hint is int:
        return isinstance(value, Integral)
    if hint is float:
        return isinstance(value, int | float) and abs(value) <= sys.float_info.max
    return isinstance(value, get_origin(hint) or hint)


def _type_name(hint: Any) -> str:
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(_type_name(member) for member in get_args(hint))
    if get_origin(hint) is Sequence:
        [item] = get_args(hint)
        return "a list of strings" if item is str else "a list of lists" if get_origin(item) is Sequence else "a list"
    return _TYPE_NAMES.get(get_origin(hint) or hint, "anything")


def _short(value: Any) -> str:
    text = short_repr(value, 10_000)
    return text if len(text) <= 60 else f"{text[:60]}…"


@dataclass(frozen=True)
class Reply:
    """A reply of a request handler, for a front end."""

    head: Mapping[str, Any]  # identifies the reply; `widgets/protocol.py` lists the types of head and data by kind
    data: Any = None  # JSON-able; `None` if the head is the whole reply


@dataclass(frozen=True)
class Client:
    """The client of a request handler."""

    send: Callable[[str, Any], None]  # with the kind of a reply, such as `"cost"`, and the `Reply`
    changed: Callable[[], None]  # after the state of the handler has changed, which its method `view` returns
    failed: Callable[[BaseException], None]  # with an unexpected error


class RequestHandler:
    """Runs requests in two threads, so that quick requests do not wait for requests that take long."""

    def __init__(self, client: Client, name: str, slow: str):
        self._client, self._lock = client, threading.Lock()
        self._quick, self._slow = (JobQueue(f"mithril_nb-{thread}", client.failed) for thread in (name, slow))

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until no request is left; return False on timeout."""
        return self._slow.wait(timeout_s) and self._quick.wait(timeout_s)

    def end(self) -> None:
        """Cancel all requests."""
        self._quick.end()
        self._slow.end()

    def _problem_of(self, error: Exception) -> Diagnostic:
        if not isinstance(error, MithrilError):
            self._client.failed(error)
        return problem_of(error)


def problem_of(error: BaseException) -> Diagnostic:
    """Return the first diagnostic of a `MithrilError`, or a diagnostic with type and text of another error."""
    if isinstance(error, MithrilError):
        return error.diagnostics[0]
    return Diagnostic(
        f"{type(error).__name__}: {error}".strip().rstrip(":"),
        advice="raise wb.errors[-1]  # shows the traceback; the model is unchanged",
        code=type(error).__name__,
    )


# Not computed yet; in progress; up to date; of an earlier version of the design; unexpected error; not computable.
State = Literal["empty", "loading", "ready", "stale", "failed", "unavailable"]


class RequestState(TypedDict):
    """The state of something that is computed on request."""

    state: State
    message: str  # why there is no result, or what is being done
    version: int  # of the design that has the result; 0 without one


_NAMES = re.compile(r"\b(?:ml|mithril_nb|wb|np|jax|pm|run)\.\w")
_CODE = re.compile(rf"\w\(|\w ?=|{_NAMES.pattern}")


class Fix(TypedDict):
    """A button that mends a problem, and the command that it sends."""

    label: str
    command: str
    args: dict[str, Any]
    hint: str  # what the model is after it


class ProblemData(TypedDict):
    """A `Diagnostic` for a front end."""

    code: str
    summary: str
    facts: list[tuple[str, str]]
    advice: str
    block: str
    port: str
    edge: tuple[str, str] | None
    fix: NotRequired[Fix | None]


def problem_data(problem: Diagnostic) -> ProblemData:
    """Return a problem as data, without code."""
    return cast(ProblemData, without_code(problem).to_dict())


def without_code(problem: Diagnostic) -> Diagnostic:
    """Return a problem without advice in Python, because a page has buttons."""
    facts = tuple(fact for fact in problem.facts if not _NAMES.search(fact[1]))
    return replace(problem, facts=facts, advice="" if _CODE.search(problem.advice) else problem.advice)


@dataclass(frozen=True)
class ProgramView:
    """The program that a front end shows, for the handlers of requests."""

    version: int  # of the design
    inspection: Callable[[], Inspection]  # prepared for the requested stages
    paths: Sequence[str]  # of the blocks, in the order of the model
    hues: Mapping[str, int]  # by path; a block without a hue has that of the block around it
    what_if: Callable[[], WhatIf]
    model: Model | None = None  # `None` if the program does not come from a model
    # The program on this machine, which measures it; by default the same.
    here: Callable[[], Inspection] | None = None

    def local(self) -> Inspection:
        """Return the program on this machine."""
        return (self.here or self.inspection)()


def check_choice(name: str, value: str, choices: Collection[str], example: str = "") -> None:
    """Check that the argument `name` is one of `choices`."""
    if value not in choices:
        raise UnknownOptionError(
            f"unknown {name} {short_repr(value)}.",
            (("known", ", ".join(choices) or "none"),),
            f'{name}="{example or next(iter(choices), "")}"',
        )


class BackgroundWork(Protocol):
    """Background work of a session."""

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until no request is left; return False on timeout."""
        ...

    def end(self) -> None:
        """Cancel all requests."""


# Receives the kind of a message and the message, such as `("snapshot", dict)`, in any thread.
Listener = Callable[[str, Any], None]
_MOST_ERRORS = 100
# Commands whose error the page shows at its cause, such as a line of code or a typed name: a notice would repeat it.
_SHOWN_BY_SENDER = ("set_source", "rename", "rename_input", "rename_output", "group", "repeat", "save_block")


class Publisher(ABC):
    """State that sends snapshots of itself to listeners."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self._lock = threading.RLock()
        self._listeners: list[Listener] = []
        self._notice: Diagnostic | None = None
        self._failed: tuple[Diagnostic | None, str, Mapping[str, Any]] = (None, "", {})  # the command of a notice
        self._workers: tuple[BackgroundWork, ...] = ()

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """Return all data that a front end shows."""

    def _commands(self) -> Mapping[str, Callable[..., None]]:
        return commands_of(self)

    def do(self, command: str, /, **args: Any) -> None:
        """Execute a command."""
        commands = self._commands()
        check_command(command, args, commands)
        check_arguments(command, commands[command], args)
        commands[command](**args)

    def run_command(self, name: str, args: Mapping[str, Any]) -> Diagnostic | None:
        """Execute a command of a front end."""
        with self._lock:
            try:
                check_command(name, args, self._commands())
                self._execute(name, args)
            except Exception as error:  # a front end cannot catch it, so show and store it
                problem = problem_of(error)
                self._failed = problem, str(name), args if isinstance(args, Mapping) else {}
                self._fail(error, has_notice=name not in _SHOWN_BY_SENDER)
                return problem
            if self._notice is not None and self._notice is self._failed[0] and name == self._failed[1]:
                self.dismiss()  # the command works now
        return None

    def _execute(self, name: str, args: Mapping[str, Any]) -> None:
        self.do(name, **args)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all requested results are computed; return False on timeout."""
        return all(worker.wait(timeout_s) for worker in self._workers)

    def end(self) -> None:
        """Cancel all work."""
        for worker in self._workers:
            worker.end()

    @command
    def dismiss(self) -> None:
        """Remove the notice."""
        with self._lock:
            self._notice = None
            self._publish()

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Send all changes to a listener."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def _send(self, kind: str, value: Any) -> None:
        for listener in tuple(self._listeners):
            listener(kind, value)

    def _publish(self) -> None:
        # Without the lock, a thread could send an old snapshot after another thread has sent a newer one.
        with self._lock:
            self._send("snapshot", self.snapshot())

    def _fail(self, error: BaseException, *, has_notice: bool = True) -> None:
        with self._lock:
            self.errors.append(error)
            del self.errors[:-_MOST_ERRORS]
            if has_notice:
                self._notice = problem_of(error)
            self._publish()
