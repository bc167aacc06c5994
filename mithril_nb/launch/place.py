"""What a process must know, before JAX is imported, to find the others."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass

VARIABLE = "MITHRIL_NB_LAUNCH"
"""Where a worker finds its place."""
LATER_S = 30.0
"""How much longer than the launcher a worker waits for the others: the launcher's message is the better one."""


@dataclass(frozen=True)
class Place:
    """The place of one process among those that are launched together.

    Attributes:
        coordinator: `"host:port"` of process 0, where all of them meet.
        index: Which process this is, counted from 0.
        count: How many there are.
        devices: Devices of this process.
        is_local: Whether all of them are on this machine.
        start_timeout_s: How long all of them may take to meet.
        peer_timeout_s: After how long a process that does not answer is taken for dead.
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
            >>> found = Place("127.0.0.1:4000", 1, 2).environment({"NPROC": "2", "HOME": "here"})
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
            # XLA's pool has a thread per processor. A collective holds one for each device; with none left for the
            # work that it waits for, it waits for ever.
            "NPROC": str(max(8, 4 * self.devices, int(threads) if threads.isdecimal() else 0)),
            # It would catch SIGTERM and do nothing until all processes ask for it: they could not be ended by it.
            "JAX_ENABLE_PREEMPTION_SERVICE": "false",
            # A proxy for the web would swallow what the processes say to each other.
            "no_grpc_proxy": unproxied,
            "PYTHONUNBUFFERED": "1",
        }

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Place:
        """Return the place that `environment` described."""
        return cls(**json.loads(environment[VARIABLE]))

    def join(self) -> None:
        """Meet the other processes, and wait until the devices of all of them are known.

        Raises:
            RuntimeError: They did not come.
        """
        import jax

        jax.config.update("jax_check_proxy_envs", False)  # it would warn of the variable that keeps proxies away
        mine = [self.index * self.devices + place for place in range(self.devices)]
        jax.distributed.initialize(
            self.coordinator,
            self.count,
            self.index,
            # Elsewhere a process has all accelerators of its machine, or what its cluster says.
            local_device_ids=mine if self.is_local else None,
            initialization_timeout=int(self.start_timeout_s + LATER_S),
            heartbeat_timeout_seconds=max(1, round(self.peer_timeout_s)),
            # JAX would listen on all addresses of the machine.
            coordinator_bind_address=self.coordinator if self.is_local else None,
        )
        jax.devices()


def free_address() -> str:
    """Return an address on this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def own_environment() -> dict[str, str]:
    """Return this process's environment, without a place that it may have itself."""
    return {name: value for name, value in os.environ.items() if name != VARIABLE}
