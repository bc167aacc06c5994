"""Compile a lowered program for a device in a process of its own, one per platform.

A crash, a hang, or the noise of the compiler on standard error never reaches the user's process. The worker is started
on first use, and ends when it is idle or when this process ends.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import jax
from jax._src.lib import xla_client  # pyright: ignore[reportPrivateImportUsage]

from mithril_nb.errors import StageUnavailableError
from mithril_nb.hardware.compilers import compiler_of
from mithril_nb.hardware.device import Device
from mithril_nb.jobs import check_wanted

IDLE_S = 300.0
"""Seconds after which a worker without requests ends."""
TIMEOUT_S = 1800.0
"""Seconds after which a compilation is given up."""
_POLL_S = 0.2
# An unwanted compilation is given up after this time, in which a new process would have started.
_GIVE_UP_S = 4.0
# libtpu looks for a machine with TPUs; these answers keep it quiet and fast. It allows one process at a time otherwise.
_ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "true",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


_NO_TILES = "Couldn't find output tile sizes"
_TRITON = "xla_gpu_enable_triton_gemm"
_NOT_TUNED = "XLA chose default tiles and algorithms: autotuning needs the device"
_NO_FLOAT64 = "float64: TPUs have no unit for it, so XLA computes it with many operations on other dtypes"
_WITHOUT_TRITON = f"compiled with {_TRITON}=False, because the default tiles of Triton do not fit one of its products"


@dataclass(frozen=True)
class RemoteExecutable:
    """A program that was compiled for a device of another machine: to read, not to run.

    Has the methods of `jax.stages.Compiled` that do not need the device.
    """

    device: Device
    text: str
    memory: Mapping[str, int] | None
    cost: Mapping[str, float] | None
    device_count: int
    notes: tuple[str, ...] = ()
    inputs: tuple[str, ...] | None = None
    outputs: tuple[str, ...] | None = None

    def as_text(self) -> str:
        """Return the optimized HLO."""
        return self.text

    def memory_analysis(self) -> Any:
        """Return the sizes of the buffers in bytes, like `jax.stages.Compiled.memory_analysis`; `None` if unknown."""
        return None if self.memory is None else SimpleNamespace(**self.memory)

    def cost_analysis(self) -> Any:
        """Return XLA's own costs; `None` for platforms that have none."""
        return None if self.cost is None else dict(self.cost)

    def runtime_executable(self) -> Any:
        """Return an object with the methods of JAX's executable that return shardings."""
        return SimpleNamespace(
            get_parameter_shardings=lambda: _parsed(self.inputs), get_output_shardings=lambda: _parsed(self.outputs)
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copying and pickling ask for such names
            raise AttributeError(name)
        # `in_avals` and others: code that runs or times a program asks for them first.
        raise StageUnavailableError(
            f"a program for {self.device} cannot run on this machine.", (("needs", self.device.title),)
        )

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Raise: the device is not here."""
        return self.in_avals


def compile_remotely(
    device: Device, module: bytes, options: Mapping[str, Any], facts: Mapping[str, Any]
) -> RemoteExecutable:
    """Compile a program for a device that this machine does not have.

    Args:
        device: The device.
        module: The program in StableHLO, lowered for `device.platform`, as bytecode of MLIR.
        options: Options for XLA by name.
        facts: Further facts of the program, from `jax_jit.compile_facts`.

    Raises:
        UnavailableBackendError: The compiler is not installed.
        StageUnavailableError: The compiler ended, or did not answer in time.
        jax.errors.JaxRuntimeError: XLA's own error.
    """
    notes = [_NOT_TUNED] if device.platform == "cuda" else []
    answer, parts = _answer(device, options, facts, module, notes)
    partitions = facts["partitions"]
    text, memory, cost = parts[0].decode(), answer["memory"], answer["cost"]
    if partitions == 1 < device.count:
        notes.append(f"the program has no mesh: it uses one of the {device.count} devices of {device}")
    if device.platform == "tpu" and "f64[" in text:
        notes.append(_NO_FLOAT64)
    inputs, outputs = (None if answer[side] is None else tuple(answer[side]) for side in ("inputs", "outputs"))
    return RemoteExecutable(device, text, memory, cost, partitions, tuple(notes), inputs, outputs)


def serialize_remotely(device: Device, exported: bytes, options: Mapping[str, Any], facts: Mapping[str, Any]) -> bytes:
    """Compile a program and return what `jax.experimental.serialize_executable.serialize` returns first.

    Args:
        device: The device.
        exported: A function of arrays, from `jax.export`.
        options: Options for XLA by name.
        facts: Those of `jax_jit.compile_facts`, and `donated` with positions of arguments, `axes` with the sizes of the
            mesh by name, and `x64`.

    Raises:
        Exception: As `compile_remotely`.
    """
    return _answer(device, options, facts, exported, [])[1][0]


def _answer(
    device: Device, options: Mapping[str, Any], facts: Mapping[str, Any], module: bytes, notes: list[str]
) -> tuple[dict[str, Any], list[bytes]]:
    partitions = facts["partitions"]
    # On TPUs, a program runs on the first chip, or on all chips of the topology.
    if partitions > device.count or (device.platform == "tpu" and 1 < partitions < device.count):
        raise StageUnavailableError(
            f"a program for {partitions} devices does not compile for {device}.",
            (("devices", str(device.count)),),
            f'device="{device.name}:{near}"' if (near := device.topology_for(partitions)) else "",
        )
    request = {
        "platform": device.platform,
        "topology": device.compiler_topology,
        "target": device.target_config,
        "options": dict(options),
        **facts,
    }
    worker = _worker(device.platform)
    answer, parts = worker.ask(request, module)
    # On the device, autotuning would have tried cuBLAS. Triton's default tiles do not fit each product (jax 0.10.2).
    if _NO_TILES in answer.get("message", "") and _TRITON not in options:
        notes.append(_WITHOUT_TRITON)
        answer, parts = worker.ask({**request, "options": {**options, _TRITON: False}}, module)
    if "error" in answer:
        kind = answer["error"]
        prefix = "" if kind in ("JaxRuntimeError", "XlaRuntimeError") else f"{kind}: "
        raise jax.errors.JaxRuntimeError(prefix + answer["message"])
    return answer, parts


def _parsed(shardings: tuple[str, ...] | None) -> list[Any] | None:
    if shardings is None:
        return None
    parsed = [xla_client.OpSharding() for _ in shardings]
    for sharding, text in zip(parsed, shardings, strict=True):
        sharding.ParseFromString(bytes.fromhex(text))
    return parsed


class _Worker:
    def __init__(self, platform: str):
        self._platform = platform
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: Connection | None = None
        self._answers: Connection | None = None
        self._log: IO[bytes] | None = None
        self._timer: threading.Timer | None = None

    def ask(self, request: Mapping[str, Any], module: bytes) -> tuple[dict[str, Any], list[bytes]]:
        with self._lock:
            check_wanted()  # the worker may have compiled for another thread meanwhile
            if self._timer is not None:
                self._timer.cancel()
            try:
                if self._process is None or self._process.poll() is not None:
                    self._start()
                answer = self._exchange(request, module)
            except BaseException:  # an interrupt and `Unwanted` too: the worker compiles, and would answer too late
                self._stop()
                raise
            self._timer = threading.Timer(IDLE_S, self._stop_if_idle)
            self._timer.daemon = True
            with suppress(RuntimeError):  # at the thread limit of the process, the worker stays until the end
                self._timer.start()
            return answer

    def _start(self) -> None:
        compiler = compiler_of(self._platform)
        compiler.check()
        path = [*([] if compiler.is_in_environment else [str(compiler.folder)]), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, **_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(filter(None, path))}
        log = self._log = tempfile.NamedTemporaryFile(prefix="mithril_nb-compiler-", suffix=".log")
        self._process = subprocess.Popen(
            # Isolated from the folder of the script and the current folder, whose modules could replace JAX's.
            [sys.executable, "-P", str(Path(__file__).with_name("worker.py")), log.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            start_new_session=True,  # Ctrl+C reaches this process only, which then ends the worker
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests = Connection(os.dup(self._process.stdin.fileno()), readable=False)
        self._answers = Connection(os.dup(self._process.stdout.fileno()), writable=False)
        self._process.stdin.close()
        self._process.stdout.close()

    def _exchange(self, request: Mapping[str, Any], module: bytes) -> tuple[dict[str, Any], list[bytes]]:
        start = time.monotonic()
        assert self._requests is not None
        assert self._answers is not None
        try:
            self._requests.send_bytes(json.dumps(request).encode())
            self._requests.send_bytes(module)
            while not self._answers.poll(_POLL_S):
                elapsed_s = time.monotonic() - start
                if elapsed_s > _GIVE_UP_S:
                    check_wanted()
                if elapsed_s > TIMEOUT_S:
                    raise StageUnavailableError(
                        f"the compiler for {self._platform} did not answer in {TIMEOUT_S:.0f} s.",
                        (("compiled", f"{len(module):,} bytes of StableHLO"),),
                        "a smaller program, or fewer layers",
                    )
            answer = json.loads(self._answers.recv_bytes())
            return answer, [self._answers.recv_bytes() for _ in range(answer["parts"])]
        except (EOFError, OSError):
            raise self._ended() from None

    def _ended(self) -> StageUnavailableError:
        assert self._process is not None
        assert self._log is not None
        try:
            status = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:  # it has closed its answers, but hangs
            self._process.kill()
            status = self._process.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()[-5:]
        return StageUnavailableError(
            f"the compiler for {self._platform} ended with status {status}.",
            (("last lines", "\n".join(lines) or "none"),),
            "compile again: a new process starts",
        )

    def _stop_if_idle(self) -> None:
        if self._lock.acquire(blocking=False):
            try:
                self._stop()
            finally:
                self._lock.release()

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
        self.close()

    def close(self, *, is_forked: bool = False) -> None:
        """Close this process's ends of the connections. The log, which is deleted, stays that of the parent."""
        for file in (self._requests, self._answers, None if is_forked else self._log):
            if file is not None:
                with suppress(OSError):  # a forked process may have deleted the log
                    file.close()
        if not is_forked:
            self._log = None
        self._requests = self._answers = None


_workers: dict[str, _Worker] = {}
_of_parent: list[_Worker] = []
_creating = threading.Lock()


def _forget_workers() -> None:
    # Of a forked process: the workers belong to its parent, and a lock may be held by a thread that it does not have.
    global _creating
    for worker in _workers.values():
        worker.close(is_forked=True)
        _of_parent.append(worker)  # so that its log is not deleted here
    _workers.clear()
    _creating = threading.Lock()


@atexit.register
def _stop_workers() -> None:
    for worker in _workers.values():
        worker._stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_workers)


def _worker(platform: str) -> _Worker:
    with _creating:
        return _workers.setdefault(platform, _Worker(platform))
