"""Devices that the machine need not have, and XLA's compilers for them."""

from __future__ import annotations

from mithril_nb.hardware.calibration import calibrated
from mithril_nb.hardware.compilers import COMPILERS, Compiler, compiler_of, cuda_tool, other_compilers
from mithril_nb.hardware.device import (
    Device,
    Devices,
    as_device,
    device_mesh,
    device_named,
    devices,
    known_devices,
    register_device,
)
from mithril_nb.hardware.remote import RemoteExecutable, compile_remotely, serialize_remotely

__all__ = [
    "COMPILERS",
    "Compiler",
    "Device",
    "Devices",
    "RemoteExecutable",
    "as_device",
    "calibrated",
    "compile_remotely",
    "compiler_of",
    "cuda_tool",
    "device_mesh",
    "device_named",
    "devices",
    "known_devices",
    "other_compilers",
    "register_device",
    "serialize_remotely",
]
