"""The device that a program is compiled for: the choice, the compiler that it needs, and whether the program fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypedDict, cast

import jax

from mithril_nb.errors import Diagnostic, UnknownOptionError
from mithril_nb.hardware import Device, RemoteExecutable, as_device, compiler_of, known_devices
from mithril_nb.jobs import rests
from mithril_nb.ui.session.commands import (
    Client,
    ProblemData,
    ProgramView,
    RequestHandler,
    command,
    problem_data,
    problem_of,
)
from mithril_nb.viz.costs.memory import fits_text
from mithril_nb.viz.units import nbytes

# Seconds without edits before XLA compiles, because a short compilation is not cancelled.
_REST_S = 0.15


class DeviceEntry(TypedDict):
    """A device that the machine need not have."""

    name: str
    title: str
    memory_bytes: int | None
    topologies: list[str]
    needs_bytes: int  # size of the compiler to install first; 0 if it is installed


class MissingCompiler(TypedDict):
    """A device that was chosen, and whose compiler is not installed."""

    device: str
    problem: ProblemData
    can_install: bool  # false if the installed JAX names no compiler
    progress: str  # what pip does; "" while nothing is installed
    share: float | None  # of the download


class DeviceChoice(TypedDict):
    """The device that the program is compiled for, and those to choose from."""

    name: str
    first: str  # that of the code
    local: str  # this machine
    choices: list[DeviceEntry]
    fixed: str  # why no other device can be chosen; "" if one can
    missing: MissingCompiler | None
    is_compiling: bool
    facts: list[str]  # whether the program fits, and how it was compiled


class DeviceRequests(RequestHandler):
    """Chooses the device, installs its compiler, and compiles for it.

    Attributes:
        device: The device to compile for; `None` for this machine.
        name: Its name.
        first: The name of the device that the code chooses.
        local: The name of this machine's.
    """

    def __init__(
        self, program: Callable[[], ProgramView], client: Client, lock: Any, apply: Callable[[], None], *,
        first: Any, local: Any, fixed: str,
    ):  # fmt: skip
        super().__init__(client, "devices", "compile")
        self._program, self._lock, self._apply, self._fixed = program, lock, apply, fixed
        self.local = jax.default_backend() if local is None else local.platform
        self.first = self.name = str(first) if isinstance(first, Device) else getattr(first, "platform", self.local)
        self.device: Any = None if self.first == self.local else first
        self._before = self.local
        # Those of the code need not be in the table, or differ from its entry with the same name.
        self._named: dict[str, Any] = {self.first: first, self.local: None}
        if isinstance(first, Device):
            self._named |= {first.name: replace(first, topology="")}
        self._choices = [] if fixed else _entries(self._named)
        self._missing: MissingCompiler | None = None
        self._is_compiling = False
        self._facts: list[str] = []
        if isinstance(first, Device) and not fixed and not compiler_of(first.platform).is_installed:
            self._miss(first)
            self.device, self.name = None, self.local

    def view(self) -> DeviceChoice:
        """Return the choice and its state, for a front end."""
        return {
            "name": self.name,
            "first": self.first,
            "local": self.local,
            "choices": self._choices,
            "fixed": self._fixed,
            "missing": self._missing and cast(MissingCompiler, {**self._missing}),
            "is_compiling": self._is_compiling,
            "facts": self._facts,
        }

    # Commands

    @command
    def choose_device(self, device: str) -> None:
        """Compile for another device: a name of `ml.devices`, such as `"v5e:4x4"`, or that of this machine."""
        if self._fixed:
            raise UnknownOptionError("this program cannot be compiled for another device.", (("because", self._fixed),))
        with self._lock:
            chosen = self._device_named(device)
            self._stop_installing()
            self._choices = _entries(self._named)
            if isinstance(chosen, Device) and not compiler_of(chosen.platform).is_installed:
                self._miss(chosen)
            else:
                self._choose(device, chosen)
            self._client.changed()

    @command
    def cancel_device(self) -> None:
        """Stop an installation; or go back to the device before, while XLA compiles."""
        with self._lock:
            if self._missing is not None:
                self._stop_installing()
                self._client.changed()
            elif self._is_compiling:
                self.choose_device(self._before)

    @command
    def install_compiler(self) -> None:
        """Install the compiler that the chosen device needs, then compile for this device."""
        with self._lock:
            missing = self._missing
            if missing is not None and not missing["progress"]:
                self._turn(missing, "Starting pip")
                # The queue cannot abandon a job that waits.
                self._quick.submit(
                    lambda is_wanted: self._install(missing, lambda: is_wanted() and self._missing is missing)
                )

    def follow(self, *, can_run: bool = True) -> None:
        """Compile the program, which has changed, and find out whether it fits."""
        self._facts, self._is_compiling = [], can_run and isinstance(self.device, Device)
        if self._is_compiling:
            current = self._program()
            self._slow.submit(lambda is_wanted: self._compile(current, is_wanted))
        else:
            self._slow.submit(lambda _: None)  # replaces a waiting compilation, which `abandon` would start
            self._slow.abandon()

    def _device_named(self, name: str) -> Any:
        return self._named[name] if name in self._named else as_device(name)

    def _choose(self, name: str, device: Any) -> None:
        if name != self.name:
            self._before, self.name, self.device = self.name, name, device
            self._slow.abandon()  # the compiler ends; that of this machine cannot, so it ends in another thread
            self._apply()

    def _miss(self, device: Device, error: Exception | None = None) -> None:
        compiler = compiler_of(device.platform)
        summary = f"{device} needs XLA's compiler for {_PLATFORMS[device.platform]}, which is not installed."
        size = f"about {nbytes(compiler.needs_bytes)} on disk"
        facts = (("installs", ", ".join(compiler.requirements)), ("size", size), ("in", str(compiler.folder)))
        error = error or (None if compiler.requirements else compiler.problem)
        problem = Diagnostic(summary, facts, code="") if error is None else problem_of(error)
        self._missing = MissingCompiler(
            device=str(device),
            problem=problem_data(problem),
            can_install=bool(compiler.requirements),
            progress="",
            share=None,
        )

    def _stop_installing(self) -> None:
        self._missing = None
        self._quick.abandon()

    # In the threads

    def _turn(self, missing: MissingCompiler, progress: str, share: float | None = None) -> None:
        with self._lock:
            if (missing["progress"], missing["share"]) != (progress, share):
                missing["progress"], missing["share"] = progress, share
                self._client.changed()

    def _install(self, missing: MissingCompiler, is_wanted: Callable[[], bool]) -> None:
        device, failure = self._device_named(missing["device"]), None
        try:
            compiler = compiler_of(device.platform)
            compiler.install(report=lambda *progress: self._turn(missing, *progress), is_wanted=is_wanted)
        except Exception as error:  # the front end shows it beside the button
            failure = error
        with self._lock:
            if not is_wanted():
                return
            if failure is not None:
                self._miss(device, failure)
            else:
                self._missing, self._choices = None, _entries(self._named)
                self._choose(missing["device"], device)
            self._client.changed()

    def _compile(self, current: ProgramView, is_wanted: Callable[[], bool]) -> None:
        facts: list[str] = []
        try:
            inspection = current.inspection()
            if not inspection.is_optimized and not rests(is_wanted, _REST_S):
                return
            facts = [f"{inspection.device}: {fact}" for fact in fits_text(vars(inspection.memory))]
            program = inspection.optimized
            facts += program.notes if isinstance(program, RemoteExecutable) else ()
        except Exception as error:  # the thread has no caller; the stages show it, too
            facts = facts or [problem_of(error).summary]
        with self._lock:
            if is_wanted():
                self._facts, self._is_compiling = facts, False
                self._client.changed()


_PLATFORMS = {"cuda": "NVIDIA GPUs", "tpu": "TPUs"}


def _entries(named: Mapping[str, Any]) -> list[DeviceEntry]:
    known, compilers = known_devices(), {platform: compiler_of(platform) for platform in _PLATFORMS}
    # 0 if the compiler is installed. Without an entry, JAX names no compiler for the platform.
    needs = {
        platform: compiler.needs_bytes
        for platform, compiler in compilers.items()
        if compiler.is_installed or compiler.requirements
    }
    own = {name: device for name, device in named.items() if device is not None and ":" not in name}
    return [
        {
            "name": name,
            "title": getattr(device, "title", "") or getattr(device, "device_kind", "") or name,
            "memory_bytes": getattr(device, "memory_bytes", None),
            "topologies": list(device.topologies) if known.get(name) == device else _topologies_of(name, named),
            "needs_bytes": needs[device.platform] if isinstance(device, Device) else 0,
        }
        for name, device in {**known, **own}.items()
        if not isinstance(device, Device) or device.platform in needs
    ]


def _topologies_of(name: str, named: Mapping[str, Any]) -> list[str]:
    return [full.partition(":")[2] for full in named if full.startswith(f"{name}:")]
