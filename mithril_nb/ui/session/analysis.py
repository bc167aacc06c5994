"""Analysis of a design: specs, problems, programs, costs. Computed once per design, expensive parts on demand."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import jax

from mithril_nb import cost, stages
from mithril_nb.analysis.whatif import WhatIf, what_if
from mithril_nb.backends.jax import JaxBackend
from mithril_nb.compilation import PhysicalModel
from mithril_nb.errors import DataError, Diagnostic
from mithril_nb.graph.boundary import INPUT
from mithril_nb.graph.check import run_order
from mithril_nb.graph.paths import component
from mithril_nb.graph.records import BOUNDARY, Endpoint
from mithril_nb.graph.spec import Dim, TensorSpec
from mithril_nb.inspection import Inspection
from mithril_nb.jobs import in_thread
from mithril_nb.models.naming import input_names, input_specs
from mithril_nb.models.shape_inference.infer import Inference, infer
from mithril_nb.stages.stage_kinds import STAGE_KINDS, stages_on
from mithril_nb.targets.mithril_models import has_names, inspect_model, inspect_with_names
from mithril_nb.train.data import read_data
from mithril_nb.train.losses import Loss, resolve_loss
from mithril_nb.ui.session.design import Design
from mithril_nb.ui.session.templates import TEMPLATES
from mithril_nb.ui.session.train_settings import TrainSettings


class Analysis:
    """The analysis of one design: a model with its input shapes and the inspected program."""

    def __init__(
        self,
        design: Design,
        version: int,
        backend: JaxBackend,
        training: Mapping[str, Any],
        program: LazyProgram | None = None,
        device: Any = None,
    ):
        self.design, self.version, self._device = design, version, device
        self.settings = TrainSettings(training, design.training)
        self._backend, self._training = backend, self.settings.fit_options
        self._shapes = _shapes_of(design, self._training)
        self._given = input_specs(design.graph, self._shapes, backend.default_dtype)
        self.inference: Inference = infer(design.graph, self._given, backend.default_dtype)
        self.problems: tuple[Diagnostic, ...] = self.inference.problems + self._open_inputs()
        self.program = program or LazyProgram(self.program_name)
        self.fixes: dict[tuple[Diagnostic, str], Any] = {}  # buttons by problem and failed command
        self.inferred_for_fixes = 0  # number of blocks

    @cached_property
    def shaped(self) -> frozenset[str]:
        """Names of the inputs whose shape is known, in numbers or in the user's names."""
        return frozenset(
            name for name, spec in self.inference.inputs.items() if spec.is_concrete or name in self._given
        )

    def _open_inputs(self) -> tuple[Diagnostic, ...]:
        graph, problems = self.design.graph, []
        for name, spec in self.inference.inputs.items():
            if name in self.shaped:
                continue
            target = next(iter(graph.targets_of.get(Endpoint(BOUNDARY, name), ())), Endpoint("", name))
            fixes = [f'wb.do("set_shape", name="{name}", shape={self._example(target, spec)})']
            if target.node and name != "input":  # suggest a connection from the block that runs just before the target
                names = [node.name for node in run_order(graph) if node.block.outputs or node.name == target.node]
                before = names[: names.index(target.node)]
                source = f"{component(before[-1])}.{graph.by_name[before[-1]].block.outputs[0].name}" if before else ""
                fixes += [f'wb.do("connect", source="{source}", target="{target}")'] if before else []
            summary = f"input {name!r} of the model has no shape."
            if name != "input":
                summary = f"'{target}' is not connected, and input {name!r} of the model has no shape."
            problems.append(
                Diagnostic(
                    summary,
                    (("known", str(spec.shape) if spec.shape != ("...",) else "nothing"),),
                    "  # or ".join(reversed(fixes)),
                    component(target.node) if target.node else "",
                    target.port,
                    (name, str(target)),
                    "UnconnectedPortError",
                )
            )
        return tuple(problems)

    def _example(self, target: Endpoint, spec: TensorSpec) -> list[Any]:
        others = self.inference.blocks[target.node].inputs.values() if target.node in self.inference.blocks else ()
        shapes = [
            other.shape for other in others if isinstance(other, TensorSpec) and other.is_concrete and other.shape
        ]
        if spec.shape == ("...",):
            return [*shapes[0]] if shapes else [32, 64]
        return [dim if isinstance(dim, int) else 32 for dim in spec.shape]

    @property
    def is_empty(self) -> bool:
        """True if the model has no block."""
        return not self.design.graph.nodes

    @property
    def why_not(self) -> str:
        """Reason why the model has no programs; `""` if it has."""
        return "there is no block yet" if self.is_empty else "the model has problems" if self.problems else ""

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the stages that programs for the device have."""
        return stages_on(jax.default_backend() if self._device is None else self._device.platform)

    @property
    def can_run(self) -> bool:
        """True if the model has programs."""
        return not self.why_not

    @cached_property
    def warning(self) -> Diagnostic | None:
        """A problem that does not keep the model from running: parameters of more than 2 GiB."""
        parameters = self.inference.parameters
        size = sum(parameter.spec.nbytes or 0 for parameter in parameters)
        if size <= 2**31:
            return None
        largest = max(parameters, key=lambda parameter: parameter.spec.nbytes or 0)
        return Diagnostic(
            f"the parameters of this model need {size / 1e9:.1f} GB, and training needs a multiple of it.",
            (("largest", f"{largest.name!r} {largest.spec}"),),
            "use smaller sizes.",
            block=largest.path,
            code="Memory",
        )

    @cached_property
    def loss(self) -> Loss:
        """The loss, applied to the output to train on."""
        outputs = self.inference.outputs
        if losses := {output: loss for output, loss in self.design.losses if output in outputs}:
            return resolve_loss(losses)
        name, output = self.design.loss or self._training.get("loss", "cross_entropy"), self.design.output
        return resolve_loss(name, output if output in outputs else None)

    @cached_property
    def why_not_trained(self) -> str:
        """Reason why the model has only a forward program; `""` if it has all programs."""
        outputs = self.inference.outputs
        if not self.loss.needs_output(outputs):
            return ""
        count, loss = len(outputs), self.loss.name
        return f"the model has {count} outputs, but the loss {loss} takes one: choose the output to train on"

    @property
    def program_name(self) -> str:
        """Name of the inspected program: that of the design, or `"forward"` if the model cannot be trained."""
        return "forward" if self.why_not_trained else self.design.program

    @cached_property
    def physical(self) -> PhysicalModel:
        """The physical model."""
        self.inference.raise_problems()
        return PhysicalModel(self.design.graph, self._backend, self.inference, self._backend.jit)

    @property
    def is_symbolic(self) -> bool:
        """True if dims of the inputs are names."""
        return has_names(spec.shape for spec in self.inference.inputs.values())

    def advice_for(self, stage: stages.Stage) -> str:
        """Return advice for a stage that needs a number for each size; `""` for other stages."""
        is_missing = self.is_symbolic and stage.unavailable and STAGE_KINDS[stage.name].needs_numbers
        return "Enter a number for each size of the inputs, such as 32, 64." if is_missing else ""

    def with_sizes_of(self, data: Any, batch_size: int) -> Analysis:
        """Return the analysis of the design in which sizes of the data replace names; `self` if no size is a name."""
        if not self.is_symbolic:
            return self
        specs, sizes = self.inference.inputs, dict[str, int]()
        inputs = read_data(data, tuple(specs)).inputs
        for name, spec in specs.items():
            for axis, (dim, size) in enumerate(zip(spec.shape, (batch_size, *inputs[name].shape[1:]), strict=False)):
                if isinstance(dim, str) and sizes.setdefault(dim, size) != size:
                    renamed = [f"{label}_2" if position == axis else label for position, label in enumerate(spec.shape)]
                    raise DataError(
                        f"size {dim!r} has two values in the data: {sizes[dim]} and {size}.",
                        (("input", f"{name!r} {spec}"), ("data", f"{inputs[name].shape}, in batches of {batch_size}")),
                        f'wb.do("set_shape", name="{name}", shape={renamed})',
                    )
        shapes = {name: tuple(sizes.get(str(dim), dim) for dim in spec.shape) for name, spec in specs.items()}
        return self.with_design(replace(self.design, shapes=tuple(shapes.items())))

    def with_design(self, design: Design) -> Analysis:
        """Return the analysis of an edited design."""
        return Analysis(self.with_shapes_before(design), self.version, self._backend, self.settings.options)

    def with_shapes_before(self, design: Design) -> Design:
        """Return an edited design, in which each input keeps its shape.

        One array of data, and a shape of `"input"`, refer to the only input. They no longer do if an edit adds another
        input, so the design then gets the shape of the input before.
        """
        before, after = self._shapes, _shapes_of(design, self._training)
        ports = {port.name for port in design.graph.inputs}
        lost = {name: shape for name, shape in before.items() if name in ports and name not in after}
        of_others = [(name, shape) for name, shape in design.shapes if name != INPUT or name in before]
        return replace(design, shapes=(*of_others, *lost.items())) if lost else design

    @property
    def has_data(self) -> bool:
        """True if there is data to train on."""
        return "data" in self.settings.options or self.design.template in TEMPLATES

    @property
    def inspection(self) -> Inspection:
        """The stages of the inspected program, on the chosen device."""
        return self.program.on(self._device, self.local)

    @property
    def local(self) -> Inspection:
        """The stages of the inspected program on this machine."""
        return self.program.inspection(self.physical, self.loss, self._training)

    @property
    def cost(self) -> cost.Cost:
        """Cost of each block, from the jaxpr only."""
        return self.program.cost(self.physical, self.loss, self._training)

    def what_if(self) -> WhatIf:
        """Return a `WhatIf` for the program, to compute its costs with other settings."""
        optimizer = self._training.get("optimizer", "adam")
        on = {} if self._device is None else {"device": self._device}
        return what_if(self.physical, program=self.program_name, loss=self.loss, optimizer=optimizer, **on)


def _shapes_of(design: Design, training: Mapping[str, Any]) -> dict[str, tuple[Dim, ...]]:
    """Return the shapes of inputs that the user or the data give."""
    # The design keeps shapes of removed inputs, because undo or a new edit may bring an input back.
    ports = input_names(design.graph)
    shapes = {name: shape for name, shape in design.shapes if name in ports}
    if len(ports) == 1 and not shapes and INPUT in (of_inputs := dict(design.shapes)):
        shapes = {ports[0]: of_inputs[INPUT]}
    return {**_shapes_in(training, ports), **shapes}


def _shapes_in(training: Mapping[str, Any], ports: Sequence[str]) -> dict[str, tuple[int, ...]]:
    data = training.get("data")
    samples = data[0] if isinstance(data, tuple | list) and len(data) in (2, 3) else None
    arrays = samples if isinstance(samples, Mapping) else {INPUT: samples} if len(ports) == 1 else {}
    if len(ports) == 1 and arrays.keys() == {INPUT}:  # as in `read_data`
        arrays = {ports[0]: arrays[INPUT]}
    batch = training.get("batch_size", 32)
    shapes = {name: getattr(array, "shape", ()) for name, array in arrays.items() if name in ports}
    return {name: (batch, *shape[1:]) for name, shape in shapes.items() if len(shape) > 0}


class LazyProgram:
    """The stages and costs of one design, computed once on first use."""

    def __init__(self, name: str):
        self._name = name
        self._lock = threading.RLock()
        self._inspection: Inspection | None = None
        self._elsewhere: dict[str, Inspection] = {}
        self._cost: cost.Cost | None = None

    def inspection(self, model: PhysicalModel, loss: Loss, training: Mapping[str, Any]) -> Inspection:
        """Return the stages of the program."""
        with self._lock:
            if self._inspection is None:
                shapes = {name: spec.shape for name, spec in model.input_specs.items()}
                settings = {"program": self._name, "loss": loss, "optimizer": training.get("optimizer", "adam")}
                if has_names(shapes.values()):
                    self._inspection = in_thread(partial(inspect_with_names, model, shapes, **settings))
                else:
                    self._inspection = in_thread(partial(inspect_model, model, **settings, options={}))
            return self._inspection

    def on(self, device: Any, local: Inspection) -> Inspection:
        """Return the stages of the program on a device; `None` is that of `local`."""
        with self._lock:
            if device is not None and str(device) not in self._elsewhere:
                self._elsewhere[str(device)] = local.on(device)
            return local if device is None else self._elsewhere[str(device)]

    def cost(self, model: PhysicalModel, loss: Loss, training: Mapping[str, Any]) -> cost.Cost:
        """Return the cost of each block, from the jaxpr only."""
        with self._lock:
            if self._cost is None:
                self._cost = in_thread(cost.cost_of, self.inspection(model, loss, training))
            return self._cost
