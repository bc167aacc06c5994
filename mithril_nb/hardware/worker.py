"""Compiles programs for a device that the machine does not have. Runs as a script in a process of its own.

The process reads requests from its standard input and writes answers to its standard output, as JSON with binary parts.
It imports only JAX: the packages of the compiler are on `PYTHONPATH`, and must not reach the user's process.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from multiprocessing.connection import Connection
from typing import Any


def main() -> None:
    """Answer requests until the standard input ends."""
    requests, answers = Connection(os.dup(0), writable=False), Connection(os.dup(1), readable=False)
    # C++ code of libtpu and of the CUDA plugin prints to these files, whatever Python does with sys.stdout.
    log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for output in (1, 2):
        os.dup2(log, output)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    while True:
        try:
            request, module = json.loads(requests.recv_bytes()), requests.recv_bytes()
        except EOFError:
            return
        try:
            answer, parts = _answer(request, module)
        except Exception as error:  # the process continues: most errors are XLA's about one program
            answer, parts = {"error": type(error).__name__, "message": str(error)}, []
        answers.send_bytes(json.dumps({**answer, "parts": len(parts)}).encode())
        for part in parts:
            answers.send_bytes(part)


def _end_with(parent: int) -> None:
    # A killed parent closes the standard input, which this process reads only after a compilation.
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _answer(request: dict[str, Any], module: bytes) -> tuple[dict[str, Any], list[bytes]]:
    devices = _devices(request["platform"], request["topology"], request["target"])
    if "donated" in request:
        return {}, [_serialized(devices, module, request)]
    executable = _compile(devices[: request["partitions"]], module, request)
    texts = [each.to_string() for each in executable.hlo_modules()]
    return {
        "memory": _figures(executable.get_compiled_memory_stats),
        "cost": _figures(executable.cost_analysis),
        "inputs": _shardings(executable.get_parameter_shardings),
        "outputs": _shardings(executable.get_output_shardings),
    }, [texts[0].encode()]


@lru_cache
def _devices(platform: str, topology: str, target: str) -> list[Any]:
    from jax.experimental import topologies

    if platform == "tpu":
        return list(topologies.get_topology_desc(platform="tpu", topology_name=topology).devices)
    described = topologies.get_topology_desc(
        platform=platform, topology_name="", target_config=target, topology=topology
    )
    return list(described.devices)


def _compile(devices: list[Any], module: bytes, request: dict[str, Any]) -> Any:
    import jax
    import numpy as np
    from jax._src import compiler
    from jax._src.interpreters import mlir, pxla
    from jax._src.lib import xla_client  # pyright: ignore[reportPrivateImportUsage]
    from jax._src.lib.mlir import ir  # pyright: ignore[reportPrivateImportUsage]

    for name, value in request["settings"].items():
        jax.config.update(name, value)
    client = devices[0].client
    with mlir.make_ir_context():
        parsed = ir.Module.parse(module)
        options = pxla.create_compile_options(
            parsed,
            False,
            request["propagate_inputs"],
            request["propagate_outputs"],
            client,
            np.array(devices),
            dict(request["options"]),
        )
        return compiler.backend_compile_and_load(client, parsed, xla_client.DeviceList(tuple(devices)), options, [])


def _serialized(devices: list[Any], module: bytes, request: dict[str, Any]) -> bytes:
    import jax
    import numpy as np
    from jax import export
    from jax.experimental.serialize_executable import serialize

    for name, value in request["settings"].items():
        jax.config.update(name, value)
    exported = export.deserialize(bytearray(module))
    count, axes = exported.nr_devices, request["axes"]
    if count == 1:
        outputs: Any = jax.sharding.SingleDeviceSharding(devices[0])
        inputs: Any = [outputs] * len(exported.in_avals)
    else:
        mesh = jax.sharding.Mesh(np.array(devices[:count]).reshape([*axes.values()]), [*axes])
        inputs, outputs = exported.in_shardings_jax(mesh), list(exported.out_shardings_jax(mesh))
    with jax.enable_x64(request["x64"]):
        shapes = [
            jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding, weak_type=aval.weak_type)
            for aval, sharding in zip(exported.in_avals, inputs, strict=True)
        ]
        jitted = jax.jit(exported.call, donate_argnums=request["donated"], out_shardings=outputs)
        return serialize(jitted.lower(*shapes).compile(dict(request["options"])))[0]


def _figures(read: Callable[[], Any]) -> dict[str, float] | None:
    try:
        value = read()
    except Exception:  # the platform has no such figures
        return None
    value = value[0] if isinstance(value, list) and value else value
    if isinstance(value, dict):
        return {str(key): float(number) for key, number in value.items() if isinstance(number, int | float)}
    names = [name for name in dir(value) if name.endswith("_in_bytes")]
    return {name: int(getattr(value, name)) for name in names} or None


def _shardings(read: Callable[[], Any]) -> list[str] | None:
    sharded = read()  # `None` for a program on one device
    return None if sharded is None else [each.SerializeToString().hex() for each in sharded]


if __name__ == "__main__":
    main()
