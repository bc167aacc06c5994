"""Placement of a model's parts on devices."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import jax

from mithril_nb.backends.jax.devices import Device, device_name, find_device
from mithril_nb.errors import UnknownBlockError, UnknownOptionError
from mithril_nb.models.model import Model


class PlacedModel(Model):
    """A model with the devices of its parts, returned by `place_model`.

    Attributes:
        placement: Device by path of a block.
    """

    placement: Mapping[str, Device]

    def _seal(self) -> None:
        """Do nothing: the placed model keeps the block of the original model."""


def place(model: Model, placement: Mapping[str, int | str | Device], platform: str) -> Model:
    """Return a model with a placement; see `JaxBackend.place_model`."""
    if not isinstance(model, Model) or not isinstance(placement, Mapping):
        name = next(iter(model.graph.by_name), "linear_0") if isinstance(model, Model) else "linear_0"
        raise UnknownOptionError(
            f"cannot place {type(model).__name__} with {type(placement).__name__}.",
            (("needs", "a model, and a dict from block names to devices"),),
            f"backend.place_model(model, {{{name!r}: 0}})",
        )
    paths = [path for path, _ in model.graph.walk()]
    devices: dict[str, Any] = dict(devices_of(model))
    for name, device in placement.items():
        path = str(name).replace(".", "/")
        if path not in paths:
            near = difflib.get_close_matches(path, paths, 1, 0.5)
            raise UnknownBlockError(
                f"the model has no block {name!r}.",
                (("blocks", ", ".join(map(repr, paths)) or "none"),),
                f"{{{(near or paths or ['name'])[0]!r}: {device!r}}}  # Linear(64, name=...) names a block",
            )
        is_number = isinstance(device, int) and not isinstance(device, bool)
        devices[path] = find_device(f"{platform}:{device}" if is_number else device, f'{{{{{str(name)!r}: "{{}}"}}}}')
    placed = PlacedModel(model.name)
    placed._block, placed._members = model.block, dict(model._members)
    placed.placement = devices
    return placed


def placement_names(placement: Mapping[str, Device]) -> dict[str, str]:
    """Return the placement with device names."""
    return {path: device_name(device) for path, device in placement.items()}


def devices_of(model: object) -> Mapping[str, Device]:
    """Return the placement of a model; empty if it has none."""
    return model.placement if isinstance(model, PlacedModel) else {}


def put(array: jax.Array, device: Device | None) -> jax.Array:
    """Return the array on a device; unchanged if `device` is `None`."""
    return array if device is None else jax.device_put(array, device)
