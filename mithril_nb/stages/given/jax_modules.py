"""Read, print and compile StableHLO and HLO modules from files, through JAX. Nothing is executed.

Like `jax_versions`, this file depends on JAX's internals; tested with 0.10.2 and 0.12.0. Its classes replace
`jax.stages.Lowered` and `jax.stages.Compiled`, and have the methods of these that `stages` and `cost` use.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax._src.interpreters import mlir
from jax._src.lib import hlo  # pyright: ignore[reportAttributeAccessIssue]
from jax.extend import backend
from jaxlib import _jax, xla_client  # pyright: ignore[reportAttributeAccessIssue]
from jaxlib.mlir import ir

from mithril_nb.hardware import Device, RemoteExecutable, compile_remotely
from mithril_nb.stages import jax_jit

_RESULT = "jax.result_info"
# MLIR writes larger constants as hexadecimal numbers.
_MOST_ELEMENTS = 100
_GPUS = frozenset({"cuda", "rocm"})
# MLIR reads these constants, but XLA of JAX 0.10.2 gets no items of them and ends the process.
_FLOAT6 = re.compile(r"constant dense<[^>]*> : tensor<[^>]*\b\w*(f6E\w+)>")


class StableHlo:
    """A StableHLO module, with some methods of `jax.stages.Lowered`.

    Args:
        text: The module as text, with or without locations.

    Attributes:
        module: The module as an `ir.Module` of MLIR.
        name: Name of the module; `""` if it has none.
    """

    def __init__(self, text: str, device: Any = None, platforms: Sequence[str] = ()):
        self._device, self._platforms = device, tuple(platforms)
        try:
            with mlir.make_ir_context():
                self.module = ir.Module.parse(text)
        except ir.MLIRError as error:
            raise ValueError(str(error)) from error
        self.name = name_of(self.module)
        self._float6 = _FLOAT6.search(text)

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """Return the StableHLO text of the module, or with the dialect "hlo" its HLO text before XLA's passes."""
        if dialect != "hlo":
            return mlir.module_to_string(self.module, enable_debug_info=debug_info)
        return _text_before_passes(self._hlo, debug_info)

    def cost_analysis(self) -> Any:
        """Return XLA's cost analysis of the module before XLA's passes."""
        return _jax.hlo_module_cost_analysis(backend.get_backend(), self._hlo)

    def compile(self, compiler_options: Mapping[str, Any] | None = None) -> Executable | RemoteExecutable:
        """Compile the module for its device, or for several devices if it is partitioned."""
        self._check_constants()
        first = self._device or backend.get_default_device()
        if self._platforms and not {first.platform, *(_GPUS if first.platform == "gpu" else ())} & {*self._platforms}:
            raise LookupError(f"it was exported for {', '.join(self._platforms)}, but the device is a {first.platform}")
        sizes = [_attribute(self.module, f"mhlo.num_{unit}", ir.IntegerAttr, 1) for unit in ("replicas", "partitions")]
        # Each replica is divided into the same number of partitions.
        count = sizes[0] * sizes[1]
        propagated = self._have_no_sharding("arg_attrs"), self._have_no_sharding("res_attrs")
        if isinstance(first, Device):
            facts = {
                "partitions": count,
                "propagate_inputs": propagated[0],
                "propagate_outputs": propagated[1],
                "settings": jax_jit.compiler_settings(),
            }
            return compile_remotely(first, mlir.module_to_bytecode(self.module), compiler_options or {}, facts)
        present = jax.devices(first.platform)
        if count > len(present):
            raise LookupError(f"it needs {count} devices, but JAX has {len(present)}")
        devices = [first] if count == 1 else present[:count]
        options = backend.get_compile_options(
            num_replicas=sizes[0],
            num_partitions=sizes[1],
            device_assignment=np.array(devices).reshape(sizes),
            env_options_overrides=dict(compiler_options or {}),
        )
        build = options.executable_build_options
        build.allow_spmd_sharding_propagation_to_parameters = propagated[0]
        build.allow_spmd_sharding_propagation_to_output = propagated[1]
        client = first.client
        return Executable(client.compile_and_load(self.module, xla_client.DeviceList(tuple(devices)), options), count)

    def _check_constants(self) -> None:
        if self._float6:
            raise ValueError(f"XLA cannot read constants of {self._float6[1]}")

    @cached_property
    def _hlo(self) -> Any:
        self._check_constants()
        code = mlir.module_to_bytecode(self.module)
        return _jax.mlir.mlir_module_to_xla_computation(code, use_tuple_args=False).as_hlo_module()

    def _have_no_sharding(self, attributes: str) -> list[bool]:
        main = entry_of(self.module)
        kinds = main.type.inputs if attributes == "arg_attrs" else main.type.results
        if attributes not in main.attributes:
            return [True] * len(kinds)
        # GSPMD and its successor Shardy, which JAX uses by default, name the attribute differently.
        shardings = ("mhlo.sharding", "sdy.sharding")
        return [not any(name in each for name in shardings) for each in main.attributes[attributes]]


class Executable:
    """A `StableHlo` that XLA compiled, with some methods of `jax.stages.Compiled`."""

    def __init__(self, loaded: Any, device_count: int):
        self._loaded, self.device_count = loaded, device_count

    def as_text(self) -> str:
        """Return the text of the optimized HLO."""
        return self._loaded.get_hlo_text()

    def cost_analysis(self) -> Any:
        """Return XLA's cost analysis of the optimized module."""
        return self._loaded.cost_analysis()

    def memory_analysis(self) -> Any:
        """Return the sizes of XLA's buffers, in bytes."""
        return self._loaded.get_compiled_memory_stats()


class HloText:
    """An HLO module, with some methods of `jax.stages.Lowered` and `jax.stages.Compiled`.

    Args:
        module: HLO text, or the bytes of an `HloModuleProto` or `HloProto`.

    Attributes:
        is_optimized: True if XLA's passes have run on the module: it has a schedule or fusions.
        instruction_count: Number of instructions in all computations.
    """

    def __init__(self, module: str | bytes):
        try:
            if isinstance(module, str):
                self._module = hlo.hlo_module_from_text(module)
            else:
                try:
                    self._module = hlo.HloModule.from_serialized_hlo_module_proto(module)
                except (RuntimeError, ValueError):
                    inner = _first_field(module)  # XLA's dumps are an `HloProto`, whose first field is the module
                    if inner is None:
                        raise
                    self._module = hlo.HloModule.from_serialized_hlo_module_proto(inner)
        except RuntimeError as error:
            raise ValueError(str(error)) from error
        # XLA reads any layout of the text, and prints one instruction per line. It keeps names that are unique.
        self._text = self._module.to_string()
        self.name = self._module.name
        self.instruction_count = sum(len(computation.instructions()) for computation in self._module.computations())
        # XLA schedules a module at the end of its passes. A module saved between two passes may have fusions only.
        head = self._text.partition("\n")[0]
        self.is_optimized = ", is_scheduled=true" in head or " fusion(" in self._text
        if not self.is_optimized:
            self._text = _text_before_passes(self._module)
        self.device_count = _number(head, "replica_count") * _number(head, "num_partitions")

    def as_text(self, dialect: str | None = None, *, debug_info: bool = True) -> str:
        """Return the text of the module."""
        return self._text

    def cost_analysis(self) -> Any:
        """Return XLA's cost analysis of the module."""
        return _jax.hlo_module_cost_analysis(backend.get_backend(), self._module)

    def memory_analysis(self) -> Any:
        """Raise `NotImplementedError`: HLO text does not contain the sizes of buffers."""
        raise NotImplementedError("HLO text does not contain the sizes of buffers")


def lowered_text(lowered: Any, dialect: str = "stablehlo") -> str:
    """Return the text of a lowered program with its locations, but without the values of large constants."""
    # Printed by JAX, a constant of 16 MB has 32 MB of StableHLO, and 50 MB of HLO.
    if isinstance(lowered, HloText):
        return lowered.as_text()
    if dialect == "stablehlo":
        module = lowered.module if isinstance(lowered, StableHlo) else lowered.compiler_ir()
        return str(module.operation.get_asm(enable_debug_info=True, large_elements_limit=_MOST_ELEMENTS))
    if isinstance(lowered, StableHlo):
        return lowered.as_text("hlo", debug_info=True)
    return _text_before_passes(lowered.compiler_ir("hlo").as_hlo_module())


def _text_before_passes(module: Any, with_metadata: bool = True) -> str:
    options = hlo.HloPrintOptions.short_parsable()
    options.print_metadata = with_metadata
    options.print_large_constants = False
    return module.to_string(options)


def mosaic_text(bytecode: bytes) -> str:
    """Return a Pallas kernel for TPUs, as JAX wrote it into the call that runs it, as text of MLIR."""
    from jax._src.lib import tpu  # pyright: ignore[reportPrivateImportUsage]
    from jaxlib.mlir import passmanager

    with mlir.make_ir_context() as context:
        tpu.register_dialect(context)
        context.allow_unregistered_dialects = True  # in the bytecode, those of operations are `stable_mosaic.tpu` etc.
        module = ir.Module.parse(bytecode)
        passmanager.PassManager.parse("builtin.module(mosaic-serde{serialize=false})").run(module.operation)
        return str(module)


def name_of(module: Any) -> str:
    """Return the name of a StableHLO module; `""` if it has none."""
    return _attribute(module, "sym_name", ir.StringAttr, "")


def entry_of(module: Any) -> Any:
    """Return the function `@main` of a module, or raise `ValueError` if the module has none."""
    for operation in module.body.operations:
        if operation.operation.name == "func.func" and operation.name.value == "main":
            return operation
    raise ValueError("it has no function @main")


def arrays_of(module: Any) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return name and type of each parameter and of each result of `@main`; the name is `""` if it has none."""
    main = entry_of(module)
    parameters: list[tuple[str, str]] = []
    for argument in main.arguments:
        location = str(argument.location)
        start, end = location.find('loc("'), location.rfind('")')
        parameters.append((location[start + 5 : end] if start >= 0 and end > start else "", str(argument.type)))
    kinds = [str(result) for result in main.type.results]
    attributes = main.attributes["res_attrs"] if "res_attrs" in main.attributes else [{}] * len(kinds)
    names = [ir.StringAttr(result[_RESULT]).value if _RESULT in result else "" for result in attributes]
    return parameters, list(zip(names, kinds, strict=True))


def devices_of(compiled: Any) -> int:
    """Return the number of devices that a compiled program runs on."""
    if isinstance(compiled, (Executable, HloText, RemoteExecutable)):
        return compiled.device_count
    shardings = jax.tree.leaves((compiled.input_shardings, compiled.output_shardings))
    return max((len(sharding.device_set) for sharding in shardings), default=1)


def partitions_of(lowered: Any) -> int:
    """Return the number of devices among which XLA's partitioner divides a lowered program."""
    if isinstance(lowered, HloText):
        return lowered.device_count
    module = lowered.module if isinstance(lowered, StableHlo) else lowered.compiler_ir()
    return _attribute(module, "mhlo.num_partitions", ir.IntegerAttr, 1)


def _attribute(module: Any, name: str, kind: Any, default: Any) -> Any:
    attributes = module.operation.attributes
    return kind(attributes[name]).value if name in attributes else default


def _number(head: str, name: str) -> int:
    digits = head.partition(f", {name}=")[2].partition(",")[0]
    return int(digits) if digits.isdigit() else 1


def _first_field(data: bytes) -> bytes | None:
    # 0x0a is the key of field 1 with a length. The length follows as a varint: seven bits per byte, lowest bits first.
    if data[:1] != b"\x0a":
        return None
    length, position = 0, 1
    for shift in range(0, 35, 7):
        if position >= len(data):
            return None
        length |= (data[position] & 0x7F) << shift
        position += 1
        if not data[position - 1] & 0x80:
            return data[position : position + length] if position + length <= len(data) else None
    return None
