"""XLA's compilers for devices that the machine does not have, in a folder of this tool: install, find, remove.

They must not be in the user's environment: with a plugin installed, JAX tries to start it in every process.
"""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from os import PathLike
from pathlib import Path

from mithril_nb.atomic_write import cache_folder, new_folder, remove_leftovers
from mithril_nb.errors import UnavailableBackendError

COMPILERS = ("cuda", "tpu", "sass")
"""Names of what can be installed: the compilers of two platforms, and NVIDIA's tools for machine code."""
_MARKER = "installed.json"
# Measured with JAX 0.10.2; pip states the size of the download only when it begins.
_SIZES = {"cuda": 500_000_000, "tpu": 720_000_000, "sass": 156_000_000}
_LOOK_S = 0.2
_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_OLDEST_WITH_PROGRESS = (24, 1)
Report = Callable[[str, float | None], None]
"""Receives what pip does, and the share of a download from 0 to 1, if known."""
_TOOLS = {"ptxas": "nvidia-cuda-nvcc", "nvdisasm": "nvidia-cuda-nvdisasm"}
# JAX pins the packages of its extras: `libtpu==0.0.42.*; extra == "tpu"`.
_REQUIREMENT = re.compile(r'(?P<name>[\w.-]+)(?:\[[\w,-]*\])?(?P<version>[^;]*);.*extra == [\'"](?P<extra>\w+)[\'"]')
# Linux kills pip if this process is killed, because a folder that pip still fills could not be removed.
_ENDS_WITH_PARENT = [sys.executable, "-c", "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); "
                     "os.execv(sys.argv[1], sys.argv[1:])"] if sys.platform == "linux" else []  # fmt: skip


@dataclass(frozen=True)
class Compiler:
    """The compiler of a platform, in the version that fits the installed JAX.

    Attributes:
        platform: `"cuda"` or `"tpu"`, or `"sass"` for NVIDIA's tools that make and print machine code.
        requirements: What pip installs, without dependencies; empty if the installed JAX does not name it.
        folder: Where it is, or would be.
    """

    platform: str
    requirements: tuple[str, ...]
    folder: Path

    @property
    def is_installed(self) -> bool:
        """Return whether it can be used: it is in `folder`, or the user's environment has it."""
        return self.is_in_environment or os.path.isfile(self.folder / _MARKER)  # false without permission too

    @property
    def is_in_environment(self) -> bool:
        """Return whether the user's environment has it, as on a machine with the device."""
        if self.platform == "sass":  # those of the environment may be too old for XLA's PTX
            return False
        modules = ["libtpu"] if self.platform == "tpu" else ["jax_plugins.xla_cuda12", "jax_plugins.xla_cuda13"]
        with suppress(ModuleNotFoundError):  # of the package `jax_plugins`
            return any(importlib.util.find_spec(module) is not None for module in modules)
        return False

    @property
    def size_bytes(self) -> int:
        """Size of the installed files."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    @property
    def needs_bytes(self) -> int:
        """About how many bytes an installation would write; 0 if it is installed."""
        return 0 if self.is_installed else _SIZES[self.platform]

    @property
    def _title(self) -> str:
        return "NVIDIA's disassembler" if self.platform == "sass" else f"the compiler for {self.platform}"

    @property
    def problem(self) -> UnavailableBackendError | None:
        """Return why it cannot be used: it is not installed, or unknown; `None` if it is installed."""
        if self.is_installed:
            return None
        if not self.requirements:
            return UnavailableBackendError(
                f"JAX {metadata.version('jax')} names no compiler for {self.platform}.", (), 'pip install "jax>=0.10.2"'
            )
        return UnavailableBackendError(
            f"{self._title} is not installed.",
            (("needs", f"{', '.join(self.requirements)}, in a folder of mithril_nb"), ("folder", str(self.folder))),
            f"mithril-nb devices install {self.platform}  # in a terminal",
        )

    def check(self) -> None:
        """Raise `problem`, if there is one."""
        if (problem := self.problem) is not None:
            raise problem

    def install(
        self,
        wheels: str | PathLike[str] | None = None,
        report: Report | None = None,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Download the packages with pip, and put them into `folder`.

        Args:
            wheels: A folder of wheels to install from without a network.
            report: Receives the progress; by default, pip prints it.
            is_wanted: Returns False once the installation is cancelled: pip ends, and nothing is left.

        Raises:
            UnavailableBackendError: pip failed, or the installed JAX names no packages. Nothing is left then.
        """
        if not self.requirements:
            self.check()
            return
        command = [sys.executable, "-m", "pip", "install", "--no-deps", "--disable-pip-version-check"]
        if importlib.util.find_spec("pip") is None and (uv := shutil.which("uv")) is not None:
            command = [uv, "pip", "install", "--no-deps", "--python", sys.executable]
        if wheels is not None:
            command += ["--no-index", "--find-links", os.fspath(wheels)]
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            with new_folder(self.folder) as part:
                command += ["--target", str(part), *self.requirements]
                status, errors = _run(command, part.parent, report, is_wanted)
                if status:
                    raise self._failed(_last_lines(errors) or f"pip ended with status {status}")
                facts = {"requirements": self.requirements, "python": sys.version.split()[0]}
                (part / _MARKER).write_text(json.dumps(facts), encoding="utf-8")
        except OSError as error:
            # The folder is there: another process installed the same compiler meanwhile.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not self.is_installed:
                raise self._failed(f"{error.strerror}: {error.filename}") from None

    def _failed(self, reason: str) -> UnavailableBackendError:
        return UnavailableBackendError(
            f"{self._title} cannot be installed.",
            (("packages", ", ".join(self.requirements)), ("folder", str(self.folder)), ("because", reason)),
            f"mithril-nb devices install {self.platform} --from FOLDER  # with wheels downloaded elsewhere",
        )

    def remove(self) -> None:
        """Delete `folder`, and what killed installations left beside it."""
        remove_leftovers(self.folder.parent)
        if self.folder.exists():
            (self.folder / _MARKER).unlink(missing_ok=True)  # first, so that half a folder never counts as installed
            shutil.rmtree(self.folder)


def _run(
    command: Sequence[str], temporary: Path, report: Report | None, is_wanted: Callable[[], bool]
) -> tuple[int, str]:
    """Run pip. Return its exit status and its standard error."""
    if report is not None and command[1:3] == ["-m", "pip"] and _version_of_pip() >= _OLDEST_WITH_PROGRESS:
        command = [*command, "--progress-bar", "raw"]
    # Files, because a full pipe would block pip, and reading an empty one would block this thread. Open to append,
    # because both processes share their positions.
    with tempfile.TemporaryFile("a+") as output, tempfile.TemporaryFile("a+") as errors:
        process = subprocess.Popen(
            [*_ENDS_WITH_PARENT, *command],
            stdout=None if report is None else output,
            stderr=errors,
            # Its temporary files are in the folder that the next process removes if this one is killed.
            env={**os.environ, "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"},
        )
        try:
            while (status := _status_after(process, _LOOK_S)) is None:
                if not is_wanted():
                    return 1, "cancelled"
                output.seek(0)
                if report is not None and (progress := _progress_in(output.read())):
                    report(*progress)
        finally:
            process.kill()
            process.wait()
        errors.seek(0)
        return status, errors.read()


def _status_after(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    with suppress(subprocess.TimeoutExpired):
        return process.wait(seconds)
    return None


def _version_of_pip() -> tuple[int, ...]:
    return tuple(int(part) for part in metadata.version("pip").split(".")[:2] if part.isdigit())


def _progress_in(output: str) -> tuple[str, float | None] | None:
    share = None
    for line in reversed(output.splitlines()):
        match = _PROGRESS.fullmatch(line.strip())
        if match is None and line.strip():
            return line.strip(), share
        if match is not None and share is None and int(match[2]):
            share = int(match[1]) / int(match[2])
    return None


def _last_lines(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("WARNING")]
    return "\n".join(lines[-3:])


@cache
def compiler_of(platform: str) -> Compiler:
    """Return the compiler of a platform; its `problem` is why it cannot be used.

    Examples:
        >>> compiler_of("tpu").requirements[0].split("=")[0]
        'libtpu'
    """
    # Wheels of libtpu fit one version of Python.
    python = f"python-{sys.version_info.major}.{sys.version_info.minor}"
    folder = _folder() / f"{platform}-jax-{metadata.version('jax')}-{python}"
    return Compiler(platform, tuple(_requirements(platform, metadata.requires("jax") or ())), folder)


def other_compilers() -> dict[str, Compiler]:
    """Return the installed compilers for other versions of JAX or Python, by the name of their folder."""
    used = {compiler_of(platform).folder for platform in COMPILERS}
    return {
        folder.name: Compiler(folder.name.partition("-")[0], (), folder)
        for folder in sorted(_folder().glob("*-jax-*-python-*"))
        if folder not in used
    }


def _folder() -> Path:
    return Path(os.environ.get("MITHRIL_NB_COMPILERS") or cache_folder() / "compilers")


def cuda_tool(name: str) -> str:
    """Return the path of `"ptxas"` or `"nvdisasm"`: in a folder of mithril_nb, in the environment, or on `PATH`."""
    compiler = compiler_of("sass")
    for folder in (compiler.folder, *map(Path, sys.path)):
        for pattern in ("nvidia/*/bin", "triton/backends/nvidia/bin"):  # Triton comes with PyTorch
            for path in folder.glob(f"{pattern}/{name}"):
                return str(path)
    path = shutil.which(name)
    if path is None:
        compiler.check()
        raise UnavailableBackendError(f"{name} is not in {compiler.folder}.", (), "mithril-nb devices remove sass")
    return path


def _requirements(platform: str, required: Iterable[str]) -> Iterable[str]:
    if platform == "sass":
        return list(_TOOLS.values())
    matches = [match for text in required if (match := _REQUIREMENT.fullmatch(text.strip()))]
    for match in matches:
        if platform == "tpu" and (match["extra"], match["name"]) == ("tpu", "libtpu"):
            return [match["name"] + match["version"].strip()]
        if platform == "cuda" and match["extra"] == "cuda" and match["name"].endswith("-plugin"):
            # The plugin has the compiler's Python parts, and the package pjrt the compiler.
            version = match["version"].strip()
            return [match["name"] + version, match["name"].removesuffix("-plugin") + "-pjrt" + version]
    return ()
