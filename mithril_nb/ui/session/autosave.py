"""Autosave: save the edited design of a workbench in a file next to the notebook, and offer to restore it.

The file holds the newest versions of the design, one per session. A session replaces its own version after each
edit. When the cell runs again, the session offers the version of an earlier session.
"""

from __future__ import annotations

import atexit
import difflib
import json
import math
import os
import stat
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypedDict

from mithril_nb.atomic_write import folder_lock, remove_leftovers, write_text
from mithril_nb.errors import Diagnostic, MithrilError, UnknownOptionError
from mithril_nb.jobs import LAST_STEP_S, JobQueue, rests
from mithril_nb.models.saving.formats import from_dict, to_dict
from mithril_nb.models.saving.reading import from_source, lines_of
from mithril_nb.ui.session.design import UNNAMED, Design, set_loss, set_program, source_of, with_shape, with_text

FORMAT = "mithril_nb.autosave"
# Folder next to a notebook for the autosave files of its cells.
FOLDER = ".mithril_nb"
_VERSIONS_KEPT = 5
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
# Minimum seconds between two writes: a slider makes sixty edits per second.
_PAUSE_S = 0.25


@dataclass(frozen=True)
class SavedDesign:
    """One version of a design in an autosave file."""

    id: str  # identifies the session (one run of the cell) that saved the version
    saved_at: float  # seconds since 1970
    edits: int  # number of edits since the design that the cell's code builds
    labels: tuple[str, ...]  # the latest edits, oldest first
    source: str  # python that builds the model, with shapes and program as comments
    design: Mapping[str, Any] | None  # the design as JSON-serializable data; `None` if it cannot be written as data
    declined: bool = False  # true if the user chose to start from the code instead
    # A later version has a higher number. The clock may be wrong, so `saved_at` does not order versions.
    number: int = 0


class AutosaveOffer(TypedDict):
    """Edits saved by an earlier run of the cell."""

    edits: int
    saved_at: float  # seconds since 1970
    labels: list[str]  # the latest edits, oldest first
    difference: str  # unified diff from the source of the model in the cell
    can_restore: bool
    older: int | None  # number of edits in the next older version


class AutosaveData(TypedDict):
    """The offer, and the state of the file."""

    offer: AutosaveOffer | None
    path: str
    problem: str  # why the file cannot be written
    edits: int  # number of edits made in the widget


class Autosave:
    """Keeps the newest version of one session's design in a file, at most a second after each edit."""

    def __init__(self, path: Path, start: Design, output: Mapping[str, Any] | None = None):
        self.path, self.dismissed = path.absolute(), ""
        folder = next(folder for folder in self.path.parents if folder.exists())
        is_writable = os.access(folder, os.W_OK)
        self.problem = "" if is_writable else f"{self.path}: the folder {str(folder)!r} is read-only"
        self.changed: Callable[[], None] = lambda: None
        self._code = design_source(start)
        self._id = uuid.uuid4().hex
        self._writing = threading.Lock()
        self._lock = threading.Lock()
        self._pending: tuple[Design, int, tuple[str, ...]] | None = None
        self._contained: SavedDesign | None = None  # the version that this session has restored
        self._written_at = -_PAUSE_S
        self._worker = JobQueue("mithril_nb-autosave")
        remove_leftovers(self.path.parent)
        versions = self._versions()
        if not versions and output is not None and not self.path.exists():
            with suppress(*_UNREADABLE):
                versions = [_version({**output, "id": "output", "declined": False})]
        self._older = [version for version in versions if not version.declined and version.source != self._code]
        self._offer_next()
        _AUTOSAVES.add(self)

    def save(self, design: Design, edits: int, labels: tuple[str, ...]) -> None:
        """Save a design soon; return at once."""
        with self._lock:
            self._pending = design, edits, labels
        self._worker.submit(self._write_soon)

    def flush(self) -> None:
        """Write a pending design now."""
        with self._writing:
            with self._lock:
                pending, self._pending = self._pending, None
            if pending is None:
                return
            self._update(lambda: self._changes(pending))
            self._written_at = time.monotonic()

    def _changes(self, pending: tuple[Design, int, tuple[str, ...]]) -> dict[str, SavedDesign | None]:
        saved = saved_design(*pending, id=self._id)
        is_edited = saved.source != self._code
        changes: dict[str, SavedDesign | None] = {self._id: saved if is_edited else None}
        if self._contained is not None:  # offer it again if the user undoes the restored edits
            changes[self._contained.id] = replace(self._contained, declined=is_edited)
        return changes

    def _offer_next(self) -> None:
        self.offer: SavedDesign | None = self._older.pop(0) if self._older else None
        self._difference = _difference(self._code, self.offer.source) if self.offer else ""

    def decline(self) -> None:
        """Keep the offered version in the file but do not offer it again."""
        if self.offer is not None:
            with self._writing:
                declined = replace(self.offer, declined=True)
                self._update(lambda: {declined.id: declined})
            self._offer_next()

    def view(self, edits: int) -> AutosaveData:
        """Return the offer and the state of the file for a front end."""
        offer = self.offer and AutosaveOffer(
            edits=self.offer.edits,
            saved_at=self.offer.saved_at,
            labels=list(self.offer.labels),
            difference=self._difference,
            can_restore=self.offer.design is not None,
            older=self._older[0].edits if self._older else None,
        )
        return {"offer": offer, "path": str(self.path), "problem": self.problem, "edits": edits}

    def notice(self) -> Diagnostic | None:
        """Return the problem for a front end, until the user dismisses it."""
        if self.problem in ("", self.dismissed):
            return None
        summary = "Your edits cannot be saved. Copy the source before you restart the kernel."
        return Diagnostic(summary, (("because", self.problem),), code="AutosaveError")

    @contextmanager
    def accepted(self) -> Iterator[Design]:
        """Yield the offered design, and withdraw the offer unless the `with` block raises."""
        if self.offer is None:
            raise UnknownOptionError("there are no saved edits to restore.", (("file", str(self.path)),))
        if self.offer.design is None:
            raise UnknownOptionError(
                "these edits cannot be restored: the model has parts that cannot be written to a file.",
                advice="click “Show the difference”, and copy the lines you need into the cell.",
            )
        offer, design = self.offer, design_from_dict(self.offer.design)
        self.offer, self._contained = None, offer
        try:
            yield design
        except BaseException:
            self.offer, self._contained = offer, None
            raise

    def end(self) -> None:
        """Write a pending design, and end the thread."""
        self.flush()
        self._worker.end(LAST_STEP_S)

    # Versions

    def _versions(self) -> list[SavedDesign]:
        versions = _read(self.path) or {}
        for version in _IN_MEMORY.get(self.path, {}).values():
            if version.id not in versions or versions[version.id].number < version.number:
                versions[version.id] = version
        return sorted(versions.values(), key=lambda version: version.number, reverse=True)

    def _update(self, get_changes: Callable[[], Mapping[str, SavedDesign | None]]) -> None:
        self.problem = ""
        try:
            changes = get_changes()
            with _UPDATING:
                self._keep(changes)
                _make_folder(self.path.parent)
                with folder_lock(self.path.parent):
                    self._write(self._keep(changes))
        except Exception as error:  # the thread has no caller, so the widget shows the problem
            self.problem = f"{self.path}: {getattr(error, 'strerror', None) or error}"

    def _keep(self, changes: Mapping[str, SavedDesign | None]) -> list[SavedDesign]:
        # Keep the versions of another kernel that writes the same file.
        earlier = self._versions()
        number = 1 + max((version.number for version in earlier), default=0)
        versions = [
            replace(version, number=number) if version.id == self._id else version
            for version in changes.values()
            if version
        ]
        versions += [version for version in earlier if version.id not in changes]
        versions = sorted(versions, key=lambda version: version.number, reverse=True)[:_VERSIONS_KEPT]
        _IN_MEMORY[self.path] = {version.id: version for version in versions}
        return versions

    def _write(self, versions: list[SavedDesign]) -> None:
        if os.path.lexists(self.path) and not _is_ours(self.path):
            raise FileExistsError("the file exists and is not an autosave file, so edits are kept in memory only")
        if versions:
            data = {"format": FORMAT, "versions": [asdict(version) for version in versions]}
            write_text(self.path, json.dumps(data, ensure_ascii=False), errors="backslashreplace", is_ours=_is_ours)
        else:
            self.path.unlink(missing_ok=True)

    def _write_soon(self, is_wanted: Callable[[], bool]) -> None:
        # A newer save may replace this job before or during the pause. The last job writes the latest design.
        if not rests(is_wanted, self._written_at + _PAUSE_S - time.monotonic()):
            return
        before = self.problem
        self.flush()
        if self.problem != before:
            self.changed()


# Versions by file and id, because the file may be read-only.
_IN_MEMORY: dict[Path, dict[str, SavedDesign]] = {}
_UPDATING = threading.Lock()
_AUTOSAVES: weakref.WeakSet[Autosave] = weakref.WeakSet()


@atexit.register
def _flush_all() -> None:
    for autosave in tuple(_AUTOSAVES):
        autosave.flush()


def saved_design(design: Design, edits: int, labels: tuple[str, ...], id: str = "") -> SavedDesign:
    """Return the version of a design that `Autosave` writes to a file, with the current time as `saved_at`."""
    return SavedDesign(id, time.time(), edits, labels, design_source(design), _data(design))


def design_source(design: Design) -> str:
    """Return Python that builds the model of a design, with its shapes, output, loss and program as comments."""
    shapes = [f"# shape of {name!r}: {list(shape)}" for name, shape in design.shapes]
    chosen = [f"# {label}: {name}" for label, name in (("output", design.output), ("loss", design.loss)) if name]
    chosen += [f"# loss of {output}: {loss}" for output, loss in design.losses]
    chosen += [f"# training: {name}={value!r}" for name, value in design.training]
    # A name with the end of a line would end its comment, and the rest of it would be code.
    comments = [repr(comment)[1:-1] if len(lines_of(comment)) > 1 else comment for comment in chosen]
    program = f"# program: {design.program}"
    return "\n".join([source_of(design).rstrip(), "", *shapes, *comments, program, ""])


def design_to_dict(design: Design) -> dict[str, Any]:
    """Return a design as JSON-serializable data."""
    shapes = {name: list(shape) for name, shape in design.shapes}
    chosen = {name: getattr(design, name) for name in ("program", "output", "loss", "template")}
    return {
        "model": to_dict(design.graph, design.name),
        "shapes": shapes,
        **chosen,
        "losses": dict(design.losses),
        "training": dict(design.training),
        "code": design.source,
    }


def design_from_dict(data: Mapping[str, Any]) -> Design:
    """Return the design from the data of `design_to_dict`."""
    model, shapes = from_dict(data.get("model", {})), data.get("shapes")
    design = Design(model.graph, name=model.name or UNNAMED)
    for port, shape in (shapes if isinstance(shapes, Mapping) else {}).items():
        # An input that an edit removed keeps its shape, because undo may bring it back.
        design = with_shape(design, port, shape, "shape=[32, 784]")
    if data.get("loss"):
        design = set_loss(design, data["loss"]).design
    losses, settings = data.get("losses"), data.get("training")
    for output, loss in losses.items() if isinstance(losses, Mapping) else ():
        design = set_loss(design, loss, output).design
    training = [  # others are no value of a setting, see `TrainSettings.values`
        (str(name), value)
        for name, value in (settings.items() if isinstance(settings, Mapping) else ())
        if value is None or isinstance(value, bool | int | float | str)
    ]
    output, template = (str(data.get(name, "")) for name in ("output", "template"))
    design = replace(design, output=output, template=template, training=tuple(sorted(training)))
    if isinstance(text := data.get("code"), str) and text:
        with suppress(MithrilError):  # code of another version; the graph counts
            if from_source(text).graph == design.graph:
                design = with_text(design, text)
    return set_program(design, data.get("program", design.program)).design


def _difference(before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "code", "saved", lineterm="", n=2)
    return "\n".join(list(lines)[2:])  # without the two file names


def _data(design: Design) -> dict[str, Any] | None:
    try:
        data = design_to_dict(design)
        json.dumps(data)
    except (MithrilError, TypeError, ValueError):
        return None
    return data


def _read(path: Path) -> dict[str, SavedDesign] | None:
    try:
        if not stat.S_ISREG(path.lstat().st_mode):  # a link to another file, or a pipe, which would block
            return None
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            return None
        versions = [_version(entry) for entry in data["versions"][:_VERSIONS_KEPT]]
    except _UNREADABLE:
        return None
    return {version.id: version for version in versions}


def _is_ours(path: Path) -> bool:
    return _read(path) is not None


def _version(data: Mapping[str, Any]) -> SavedDesign:
    stored = {"number": 0, **data}  # earlier files have no number, and later files may have more fields
    stored = {field.name: stored[field.name] for field in fields(SavedDesign)}
    version = SavedDesign(**{**stored, "saved_at": float(stored["saved_at"]), "labels": tuple(stored["labels"])})
    are_texts = all(isinstance(text, str) for text in (version.id, version.source, *version.labels))
    if not are_texts or not type(version.edits) is type(version.number) is int or not math.isfinite(version.saved_at):
        raise TypeError("a field has the wrong type")
    return replace(version, declined=bool(version.declined))


def _make_folder(folder: Path) -> None:
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    if is_new and folder.name == FOLDER:
        # Like the caches of pytest and ruff: Git ignores this folder.
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")
