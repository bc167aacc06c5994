"""Settings that a process needs before it imports JAX, to connect to the others."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass

VARIABLE = "MITHRIL_NB_LAUNCH"
"""Environment variable that holds the `Rank` of a worker."""
LATER_S = 30.0
"""Extra seconds that a worker waits for the others, so that the launcher reports the timeout, with a better message."""


@dataclass(frozen=True)
class Rank:
    """The position of one process among the processes of a launch.

    Attributes:
        coordinator: `"host:port"` of process 0, to which all processes connect.
        index: Index of this process, from 0.
        count: Number of processes.
        devices: Number of devices of this process.
        is_local: True if all processes are on this machine.
        start_timeout_s: Seconds that the processes may take to connect.
        peer_timeout_s: Seconds after which a process that does not answer counts as dead.
    """

    coordinator: str
    index: int
    count: int
    devices: int = 1
    is_local: bool = True
    start_timeout_s: float = 120.0
    peer_timeout_s: float = 60.0

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the process.

        Args:
            given: The launcher's own.

        Examples:
            >>> found = Rank("127.0.0.1:4000", 1, 2).environment({"NPROC": "2", "HOME": "here"})
            >>> found["NPROC"], found["JAX_NUM_CPU_DEVICES"], found["HOME"]
            ('8', '1', 'here')
        """
        threads = given.get("NPROC", "")
        flags = re.sub(r"--xla_force_host_platform_device_count=\S*", "", given.get("XLA_FLAGS", ""))
        unproxied = ",".join(filter(None, (given.get("no_grpc_proxy"), self.coordinator.rpartition(":")[0])))
        return {
            **given,
            VARIABLE: json.dumps(asdict(self)),
            "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
            "JAX_NUM_CPU_DEVICES": str(self.devices),
            "XLA_FLAGS": flags.strip(),
            # XLA's pool has a thread per processor. A collective blocks one thread per device. If none is left for the
            # work that it waits for, it deadlocks.
            "NPROC": str(max(8, 4 * self.devices, int(threads) if threads.isdecimal() else 0)),
            # The service catches SIGTERM and waits until all processes request the end, so SIGTERM would not end them.
            "JAX_ENABLE_PREEMPTION_SERVICE": "false",
            # A web proxy would intercept the connections between the processes.
            "no_grpc_proxy": unproxied,
            "PYTHONUNBUFFERED": "1",
        }

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Rank:
        """Return the rank that `environment` encodes."""
        return cls(**json.loads(environment[VARIABLE]))

    def join(self) -> None:
        """Connect to the other processes, and wait until JAX lists the devices of all of them.

        Raises:
            RuntimeError: The other processes did not connect in time.
        """
        import jax

        jax.config.update("jax_check_proxy_envs", False)  # JAX would warn about `no_grpc_proxy`
        mine = [self.index * self.devices + local for local in range(self.devices)]
        jax.distributed.initialize(
            self.coordinator,
            self.count,
            self.index,
            # On several machines, each process uses all accelerators of its machine, or the ones its cluster assigns.
            local_device_ids=mine if self.is_local else None,
            initialization_timeout=int(self.start_timeout_s + LATER_S),
            heartbeat_timeout_seconds=max(1, round(self.peer_timeout_s)),
            # By default, JAX listens on all addresses of the machine.
            coordinator_bind_address=self.coordinator if self.is_local else None,
        )
        jax.devices()


def free_address() -> str:
    """Return an unused address on this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def own_environment() -> dict[str, str]:
    """Return this process's environment without its own `Rank`."""
    return {name: value for name, value in os.environ.items() if name != VARIABLE}
