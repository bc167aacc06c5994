"""Sharding of a model's params and inputs over a mesh. The compiler derives the sharding of all other values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.core import Tracer
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from mithril_nb.backends.jax.devices import check_even
from mithril_nb.errors import DeviceNotFoundError, ShapeError
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.models.shape_inference.infer import Parameter


class ModelSharding:
    """Shards params and inputs over a mesh.

    Args:
        mesh: The mesh.
        parallelism: `"data"` splits batches over the first mesh axis, `"model"` splits params over the last mesh axis,
            `"mixed"` does both, `None` neither. Params that are not split are replicated.
        replicates_inputs: True to replicate each input on all devices.
    """

    def __init__(self, mesh: Mesh | AbstractMesh, parallelism: str | None, replicates_inputs: bool = False):
        self.mesh, self.parallelism, self.replicates_inputs = mesh, parallelism, replicates_inputs
        self.first, self.last = mesh.axis_names[0], mesh.axis_names[-1]
        self.splits_batch = parallelism in ("data", "mixed")
        self.splits_params = parallelism in ("model", "mixed")

    def check(self, inputs: Mapping[str, TensorSpec], parameters: Sequence[Parameter]) -> None:
        """Check that the batch and the parameters can be split over the mesh. Unknown shapes are not checked.

        Raises:
            ShapeError: The batch size is not a multiple of the first mesh axis, or no parameter has a size that is a
                multiple of the last mesh axis.
        """
        if self.splits_batch:
            for name, spec in inputs.items():
                if spec.shape and isinstance(spec.shape[0], int):
                    check_even(f"the batch of input {name!r}", spec.shape, 0, self.mesh.shape[self.first], name)
        # With open shapes, the first call checks.
        are_concrete = all(parameter.spec.is_concrete for parameter in parameters)
        parts = self.mesh.shape[self.last]
        if self.splits_params and parameters and are_concrete and parts > 1:
            shapes = [tuple(map(int, parameter.spec.shape)) for parameter in parameters]
            # One parameter is enough: small ones, such as biases of odd sizes, are replicated.
            if all(_axis(parameter, shape, parts) is None for parameter, shape in zip(parameters, shapes, strict=True)):
                raise ShapeError(
                    f"no parameter can be split evenly over {parts} devices.",
                    tuple((parameter.name, str(shape)) for parameter, shape in zip(parameters, shapes, strict=True)),
                    f'parallelism="data"  # or a parameter with a size that is a multiple of {parts}',
                )

    def inputs(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Return the sharded inputs.

        Raises:
            ShapeError: The batch size is not a multiple of the first mesh axis.
        """
        if self.replicates_inputs:
            return {name: self._sharded(array, PartitionSpec()) for name, array in arrays.items()}
        if not self.splits_batch:
            return dict(arrays)
        for name, array in arrays.items():
            if array.ndim:
                check_even(f"the batch of input {name!r}", array.shape, 0, self.mesh.shape[self.first], name)
        return {
            name: self._sharded(array, PartitionSpec(self.first)) if array.ndim else array
            for name, array in arrays.items()
        }

    def params(self, parameters: Sequence[Parameter], arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arrays with parameters or states sharded or replicated; other arrays do not change."""
        shapes = {name: tuple(getattr(array, "shape", ())) for name, array in arrays.items()}  # a number has none
        specs = dict.fromkeys((parameter.name for parameter in parameters), PartitionSpec())
        for parameter in parameters if self.splits_params else ():
            axis = _axis(parameter, shapes[parameter.name], self.mesh.shape[self.last])
            if axis is not None:
                specs[parameter.name] = PartitionSpec(*[None] * axis, self.last)
        return {name: self._sharded(array, specs[name]) if name in specs else array for name, array in arrays.items()}

    def _sharded(self, array: Any, spec: PartitionSpec) -> Any:
        sharding = NamedSharding(self.mesh, spec)
        # Inside a jitted program, XLA reads the sharding from a constraint; outside, the array is moved.
        if isinstance(array, Tracer):
            return jax.lax.with_sharding_constraint(array, sharding)
        if isinstance(self.mesh, AbstractMesh):
            raise DeviceNotFoundError(
                "a model on a mesh without devices can be inspected, but not run.",
                (("mesh", str(dict(self.mesh.shape))),),
                'pm.inspect(device="v5e:4x4")',
            )
        return jax.device_put(array, sharding)


def _axis(parameter: Parameter, shape: tuple[int, ...], parts: int) -> int | None:
    lead = parameter.stacked
    rank = len(shape) - lead
    if rank < 1 or parts == 1:
        return None
    # The output axis first: then each device computes a part of the features, without a sum over devices.
    first = [parameter.initializer.out_axis, parameter.initializer.in_axis] if rank > 1 else [-1]
    rest = sorted(range(lead, len(shape)), key=lambda axis: -shape[axis])
    # The axes of an initializer count without the stacked ones of `Repeat`.
    axes = [axis % rank + lead for axis in first if -rank <= axis < rank] + rest
    return next((axis for axis in axes if shape[axis] % parts == 0 and shape[axis]), None)
