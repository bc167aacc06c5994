"""The database of a folder of runs: SQLite, in which each record has a checksum, and a copy of each ended run.

SQLite checks no content, so a record has the CRC-32 of itself and its key, and a run's summary counts the parts of its
rows. When a run ends, its records are also written to `NAME/run.safetensors`, a file with a SHA-256: a damaged record,
or a damaged or lost database, is restored from there. WAL mode keeps every committed row if the process is killed.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import sys
import threading
import time
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from mithril_nb.errors import CheckpointError, RunStoreError, UnknownOptionError, alike, listed, short_repr
from mithril_nb.train.checkpoints.file import facts_of, read, write
from mithril_nb.train.checkpoints.folder_lock import NAME as LOCK
from mithril_nb.train.checkpoints.folder_lock import in_use

FILE = "runs.sqlite"
COPY = "run.safetensors"
VERSION = 1
_NAME = re.compile(r"[^\W_][\w .+=@-]{0,99}")
_BUSY_S = 10.0
_TABLE = """create table if not exists records(
    run text, kind text, number int, data blob, sum int, primary key(run, kind, number)) without rowid"""

Part = tuple[tuple[str, ...], np.ndarray]
"""Names of columns, the first being `step`, `elapsed_s` and `order` of logging, and rows of float64 in this order."""
Record = tuple[str, int, bytes]
"""Kind (`"summary"`, `"origin"`, `"part"` or `"array NAME"`), number (the step of an array), and data."""


def check_name(name: str) -> str:
    """Return the name of a run, which is also the name of its folder."""
    if not _NAME.fullmatch(name) or name.endswith((".", " ")):
        raise UnknownOptionError(
            f"{short_repr(name)} is not a name of a run.",
            (("needed", "a letter or digit, then up to 99 letters, digits, spaces and . _ + = @ -"),),
            'ml.track("runs/digits")',
        )
    return name


class Database:
    """The runs of a folder. Each method is one transaction, so several threads and processes can write at once."""

    def __init__(self, folder: str | os.PathLike[str], *, creates: bool = False, restores: bool = True):
        if not isinstance(folder, str | os.PathLike) or "\0" in str(folder):
            raise RunStoreError("the folder of runs has no valid name.", (("got", short_repr(folder)),))
        self.folder = Path(folder).absolute()  # the user may call os.chdir later
        self._mutex = threading.RLock()
        path = self.folder / FILE
        with self._errors():
            if not creates and not path.exists() and not any(self.folder.glob(f"*/{COPY}")):
                raise RunStoreError(f"the folder {str(folder)!r} has no runs.", (), f'ml.track("{folder}/digits")')
            if creates:
                self.folder.mkdir(parents=True, exist_ok=True)
            name, is_uri = str(path), False
            if not creates and path.exists() and not os.access(self.folder, os.W_OK):
                # Without a log, SQLite would create one.
                mode = "mode=ro" if Path(f"{path}-wal").exists() else "immutable=1"
                name, is_uri = f"{path.as_uri()}?{mode}", True
            # isolation_level=None: this class, not the driver, begins transactions.
            self._connection = sqlite3.connect(name, _BUSY_S, isolation_level=None, check_same_thread=False, uri=is_uri)
        try:
            self._set_up()
            if restores:
                self.restore_missing()
        except BaseException:
            self._connection.close()
            raise

    def _set_up(self) -> None:
        with self._errors():
            (version,) = self._connection.execute("pragma user_version").fetchone()
            if version > VERSION:
                raise RunStoreError(
                    f"{FILE} has version {version}; this mithril_nb reads version {VERSION}.",
                    (("folder", str(self.folder)),),
                    "pip install --upgrade mithril-nb",
                )
            if version < VERSION:
                self._connection.execute("pragma journal_mode=wal")
                self._connection.execute(_TABLE)
                self._connection.execute(f"pragma user_version={VERSION}")
            # Without a sync for each commit, a killed process loses nothing; a power failure, the last commits.
            self._connection.execute("pragma synchronous=normal")

    def restore_missing(self) -> None:
        """Restore runs from their copies if the database lacks them or their last changes.

        If its write-ahead log is damaged or lost, SQLite silently opens an earlier state of the database.
        """
        files = [*self.folder.glob(f"*/{COPY}")]
        copies = {file.parent.name: _revision_of(file) for file in files}
        query = "select run, data from records where kind = 'summary'"  # after the copies, which are never newer
        with self._mutex, self._errors():
            stored = dict(self._connection.execute(query).fetchall()) if copies else {}
            names = self.names() if copies else set()
        for run, revision in copies.items():
            if run in stored and _revision_in(stored[run]) >= revision:
                continue
            because = "the database lacks its last changes" if run in names else "the database lacks it"
            try:
                self._restore(run, because, revision)
            except (RunStoreError, CheckpointError) as error:
                if (self.folder / run / COPY).exists():  # else another process has deleted the run
                    text = f"run {run!r} could not be restored, though {because}: {error.diagnostics[0].summary}"
                    warnings.warn(text, RuntimeWarning, stacklevel=3)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            is_damaged = type(error) is sqlite3.DatabaseError  # subclasses: locked, full, read-only
            raise RunStoreError(
                f"{FILE} is damaged." if is_damaged else f"{FILE} cannot be used: {error}.",
                (("folder", str(self.folder)), ("because", str(error))),
                f"ml.runs({str(self.folder)!r}, repair=True)  # keeps all that is whole" if is_damaged else "",
            ) from error
        except OSError as error:
            facts = (("folder", str(self.folder)), ("because", error.strerror or str(error)))
            raise RunStoreError("the folder of runs cannot be used.", facts) from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._mutex, self._errors():
            self._connection.execute("begin immediate")
            try:
                yield
            except BaseException:
                with suppress(sqlite3.Error):  # a full disk has rolled back already
                    self._connection.execute("rollback")
                raise
            self._connection.execute("commit")

    def _put(self, run: str, records: Sequence[Record]) -> None:
        rows = [(run, kind, number, data, _sum(run, kind, number, data)) for kind, number, data in records]
        self._connection.executemany("insert or replace into records values(?, ?, ?, ?, ?)", rows)

    def _get(self, kind: str, run: str | None = None) -> list[tuple[str, int, bytes]]:
        which, values = ("kind = ?", (kind,)) if run is None else ("kind = ? and run = ?", (kind, run))
        query = f"select run, number, data, sum from records where {which} order by run, number"
        with self._mutex, self._errors():
            rows = self._connection.execute(query, values).fetchall()
        for name, number, data, total in rows:
            if not isinstance(data, bytes) or _sum(name, kind, number, data) != total:
                self._restore(name, f"its {kind} differs from its checksum")
                return self._get(kind, run)
        return [row[:3] for row in rows]

    def _restore(self, run: str, because: str, newer: float | None = None) -> None:
        """Replace the records of a run by those of its copy; not if the database has the revision `newer` already."""
        file = self.folder / run / COPY
        facts = (("folder", str(self.folder)), ("because", because))
        if not file.exists():
            raise RunStoreError(
                f"run {short_repr(run)} is damaged.",
                facts,
                f"ml.runs({str(self.folder)!r}, repair=True)  # keeps all that is whole",
            )
        saved = read(file)
        kinds = saved.facts["kinds"]
        records = [(kind, number, saved.arrays[str(index)].tobytes()) for index, (kind, number) in enumerate(kinds)]
        with self._writing():
            query = "select data from records where run = ? and kind = 'summary'"
            for (data,) in self._connection.execute(query, (run,)).fetchall():
                if newer is not None and _revision_in(data) >= newer:
                    return  # another process has restored the run, and may have changed it since
            self._connection.execute("delete from records where run = ?", (run,))
            self._put(run, records)
        warnings.warn(f"run {run!r} was restored from {COPY}, because {because}.", RuntimeWarning, stacklevel=2)

    def __del__(self) -> None:
        if (connection := self.__dict__.get("_connection")) is not None:
            connection.close()

    def close(self) -> None:
        """Close the database."""
        with self._mutex:
            self._connection.close()

    def names(self) -> set[str]:
        """Return the names of all runs."""
        with self._mutex, self._errors():
            return {name for (name,) in self._connection.execute("select distinct run from records")}

    def summaries(self) -> dict[str, dict[str, Any]]:
        """Return the summary of each run, in the order of their start."""
        summaries = {run: json.loads(data) for run, _, data in self._get("summary")}
        for run in self.names() - summaries.keys():
            self._restore(run, "its summary is missing")
            summaries[run] = self.summary(run)
        return dict(sorted(summaries.items(), key=lambda item: (item[1]["created"], item[0])))

    def summary(self, run: str) -> dict[str, Any]:
        """Return what changes while a run trains, such as its state, step, latest metrics and tags."""
        return self._one(run, "summary")

    def origin(self, run: str) -> dict[str, Any]:
        """Return what a run was started with: config, code, versions, git commit and diff."""
        return self._one(run, "origin")

    def _one(self, run: str, kind: str) -> dict[str, Any]:
        rows = self._get(kind, run)
        if not rows and run not in (names := self.names()):
            facts = (("runs", listed(sorted(names)) or "none"), ("folder", str(self.folder)))
            nearest = "".join(f'ml.runs({str(self.folder)!r})["{name}"]' for name in alike(run, names)[:1])
            raise RunStoreError(f"there is no run {short_repr(run)}.", facts, nearest)
        if not rows:
            self._restore(run, f"its {kind} is missing")
            rows = self._get(kind, run)
        return json.loads(rows[0][2])

    def put(self, run: str, summary: Mapping[str, Any], origin: Mapping[str, Any]) -> None:
        """Add a run, or replace summary and origin of the one of this name."""
        with self._writing():
            self._put(run, [("summary", 0, _json(summary)), ("origin", 0, _json(origin))])

    def change(
        self,
        run: str,
        values: Mapping[str, Any],
        parts: Mapping[int, Part] | None = None,
        arrays: Sequence[tuple[str, int, np.ndarray]] = (),
        *,
        until: int | None = None,
    ) -> None:
        """Change values of a run's summary and parts of its rows.

        A dict updates the dict that is stored, and a list extends the list; `None` removes a value.

        Args:
            run: Name of the run.
            values: New values of the summary.
            parts: Parts to write, by number.
            arrays: Arrays to write: name, step, values.
            until: Remove all other parts, and arrays after this step; the latest metrics are then those of `values`.
        """
        records: list[Record] = [("part", number, _encoded(part)) for number, part in (parts or {}).items()]
        records += [(f"array {name}", step, _encoded_array(array)) for name, step, array in arrays]
        before = self.summary(run)  # outside the transaction, because it may restore the run
        with self._writing():
            row = self._connection.execute(
                "select data from records where run = ? and kind = 'summary'", (run,)
            ).fetchone()
            before = json.loads(row[0]) if row else before
            after = dict(before) if until is None else {**before, "latest": {}}
            for key, value in values.items():
                stored = after.get(key)
                if isinstance(value, dict) and isinstance(stored, dict):
                    value = stored | value
                elif isinstance(value, list) and isinstance(stored, list):
                    value = stored + value
                after[key] = value
            if until is not None:
                query = "delete from records where run = ? and (kind = 'part' or (kind like 'array %' and number > ?))"
                self._connection.execute(query, (run, until))
                after["parts"] = 0
            after["parts"] = max([after["parts"], *(number + 1 for number in parts or ())])
            after = {key: value for key, value in after.items() if value is not None}
            after["revision"] = before.get("revision", 0) + 1
            self._put(run, [*records, ("summary", 0, _json(after))])

    def request(self, run: str, request: Mapping[str, Any]) -> None:
        """Leave a request to the process that trains a run."""
        with self._writing():
            self._put(run, [("request", time.time_ns(), _json(request))])

    def requests(self, run: str) -> list[dict[str, Any]]:
        """Return the requests to a run in their order, and remove them."""
        if not (rows := self._get("request", run)):
            return []
        with self._writing():
            numbers = [(run, number) for _, number, _ in rows]
            self._connection.executemany(
                "delete from records where run = ? and kind = 'request' and number = ?", numbers
            )
        return [json.loads(data) for *_, data in rows]

    def copy_arrays(self, run: str, other: str, until: int) -> None:
        """Copy the arrays that a run logged up to a step to another run."""
        query = "select distinct kind from records where run = ? and kind like 'array %'"
        with self._mutex, self._errors():
            kinds = [kind for (kind,) in self._connection.execute(query, (run,))]
        records = [(kind, step, data) for kind in kinds for _, step, data in self._get(kind, run) if step <= until]
        with self._writing():
            self._put(other, records)

    def parts(self, run: str) -> list[Part]:
        """Return the rows of a run: a table for each set of columns and range of steps, in the order of writing."""
        count = self.summary(run)["parts"]
        rows = self._get("part", run)
        if [number for _, number, _ in rows] != [*range(count)]:
            self._restore(run, f"{len(rows)} of {count} parts of its rows are left")
            rows = self._get("part", run)
        return [_decoded(data) for *_, data in rows]

    def arrays(self, run: str, name: str) -> dict[int, np.ndarray]:
        """Return the arrays of a name that a run logged, by step."""
        return {step: _decoded_array(data) for _, step, data in self._get(f"array {name}", run)}

    def copy(self, run: str) -> None:
        """Write the file from which the run can be restored."""
        self.parts(run)  # restores damaged or missing records before the copy is replaced
        query = "select kind, number, data, sum from records where run = ? order by kind, number"
        with self._mutex, self._errors():
            records = self._connection.execute(query, (run,)).fetchall()
        for kind, number, data, total in records:
            if not isinstance(data, bytes) or _sum(run, kind, number, data) != total:
                self._restore(run, f"its {kind} differs from its checksum")
                return
        arrays = {str(index): np.frombuffer(data, np.uint8) for index, (_, _, data, _) in enumerate(records)}
        revision = max(_revision_in(data) for kind, _, data, _ in records if kind == "summary")
        with self._errors():
            (self.folder / run).mkdir(exist_ok=True)
            facts = {"kinds": [record[:2] for record in records], "revision": revision}
            write(self.folder / run / COPY, arrays, facts)

    def delete(self, run: str) -> None:
        """Remove a run from the database; its folder stays."""
        with self._writing():
            self._connection.execute("delete from records where run = ?", (run,))


def rebuilt(folder: str | os.PathLike[str]) -> list[str]:
    """Make a new database from the whole records of a damaged one; return the runs that lost records.

    The old file stays beside it, as `runs.sqlite.damaged-TIME`.
    """
    path = Path(folder).absolute() / FILE
    for lock in path.parent.glob(f"*/{LOCK}"):
        if in_use(lock.parent):
            raise RunStoreError(
                "the database cannot be repaired while a run uses it.",
                (("run", lock.parent.name),),
                "stop that run first",
            )
    whole: dict[str, list[Record]] = {}
    lost: set[str] = set()
    if path.exists():
        connection = sqlite3.connect(path, _BUSY_S)
        with suppress(sqlite3.DatabaseError):  # at the first broken page; copies of ended runs follow
            for run, kind, number, data, total in connection.execute(
                "select run, kind, number, data, sum from records"
            ):
                if isinstance(data, bytes) and _sum(run, kind, number, data) == total:
                    whole.setdefault(run, []).append((kind, number, data))
                else:
                    lost.add(str(run))
        connection.close()
        aside = path.with_name(f"{FILE}.damaged-{int(time.time())}")
        for suffix in ("", "-wal", "-shm"):
            try:
                os.replace(f"{path}{suffix}", f"{aside}{suffix}")
            except FileNotFoundError:
                continue
            except OSError as error:
                facts = (("folder", str(path.parent)), ("because", error.strerror or str(error)))
                raise RunStoreError("the database cannot be moved aside.", facts) from error
    database = Database(folder, creates=True, restores=False)
    try:
        for run, records in whole.items():
            kinds = {kind for kind, *_ in records}
            has_copy = (database.folder / run / COPY).exists()
            if not kinds >= {"summary", "origin"} or (run in lost and has_copy):
                continue
            with database._writing():
                database._put(run, records)
            if sum(kind == "part" for kind, *_ in records) != database.summary(run)["parts"] and not has_copy:
                lost.add(run)
                tables = [_decoded(data) for kind, _, data in records if kind == "part"]
                latest = database.summary(run)["latest"]
                note = "records of this run were damaged, and rows may be missing"
                database.change(run, {"reason": note, "latest": latest}, dict(enumerate(tables)), until=sys.maxsize)
        database.restore_missing()
        return sorted(run for run in lost if not (database.folder / run / COPY).exists())
    finally:
        database.close()


def _revision_of(file: Path) -> int:
    try:
        return facts_of(file).get("revision", 0)
    except (OSError, ValueError, KeyError, TypeError):  # a damaged copy of a run that the database has
        return 0


def _revision_in(summary: Any) -> float:
    """Return the number of changes of a run; infinity if its summary is damaged, which is restored when it is read."""
    try:
        return json.loads(summary).get("revision", 0)
    except (ValueError, TypeError, AttributeError):
        return float("inf")


def _sum(run: str, kind: str, number: int, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(f"{run}\0{kind}\0{number}".encode()))


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode()


def _encoded(part: Part) -> bytes:
    columns, table = part
    return json.dumps(columns).encode() + b"\n" + np.ascontiguousarray(table, np.float64).tobytes()


def _decoded(data: bytes) -> Part:
    head, _, body = data.partition(b"\n")
    columns = tuple(json.loads(head))
    return columns, np.frombuffer(body).reshape(-1, len(columns))


def _encoded_array(array: np.ndarray) -> bytes:
    return json.dumps([array.dtype.str, array.shape]).encode() + b"\n" + array.tobytes()


def _decoded_array(data: bytes) -> np.ndarray:
    head, _, body = data.partition(b"\n")
    dtype, shape = json.loads(head)
    return np.frombuffer(body, dtype).reshape(shape)
