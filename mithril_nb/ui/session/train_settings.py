"""The settings of the Train tab: their fields, and the options of `fit` that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from math import inf
from typing import Any, cast

from mithril_nb.errors import UnknownOptionError
from mithril_nb.graph.records import Value
from mithril_nb.models.fields import Field, Range, converted_value, unmet_need
from mithril_nb.train.optimizers import (
    DEFAULT_RATES,
    SCHEDULES,
    WARM_UP,
    Optimizer,
    named_optimizer,
    parameters_of,
    resolve_optimizer,
    schedule_of,
)
from mithril_nb.ui.session.what_if import FieldValue, SettingField, form_field

# Pairs of name and value that differ from the options of the workbench.
Settings = tuple[tuple[str, Value], ...]

CONSTANT = "constant"
TRAINING_FIELDS = ("epochs", "batch_size", "seed")
_OF_RUN = {"epochs", "seed", "accuracy", "schedule", "learning_rate", "warmup", "norms"}
_LABELS = {"batch_size": "batch size", "learning_rate": "peak rate", "warmup": "warm-up steps"}
_PARAMETER_DOCS = {
    "b1": "Decay of the running mean of gradients.",
    "b2": "Decay of the running mean of squared gradients.",
    "eps": "Added to the denominator, so that it is never 0.",
    "weight_decay": "Share of each weight that a step with learning rate 1 removes.",
    "momentum": "Decay of the running sum of gradients; empty for none.",
    "nesterov": "Look ahead by one step of momentum (Nesterov).",
}


@dataclass(frozen=True)
class TrainSettings:
    """The options of a workbench for `fit`, with the choices of the Train tab."""

    options: Mapping[str, Any]
    chosen: Settings = ()

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The fields of the Train tab, with the options of the workbench as defaults."""
        options, chosen = self.options, dict(self.chosen)
        own = options.get("optimizer", "adam")
        is_named = isinstance(own, str)
        optimizer = chosen["optimizer"] if chosen.get("optimizer") in DEFAULT_RATES else own
        fields = [
            Field("epochs", "int", options.get("epochs", 10), range=Range(1, 100_000), doc="Passes over the data."),
            Field("batch_size", "int", options.get("batch_size", 32), range=Range(1, 1 << 20),
                  doc="Samples in a step."),
            Field("optimizer", "choice", own if is_named else None, is_optional=not is_named,
                  choices=tuple(DEFAULT_RATES), doc="How gradients become updates of the parameters."),
            *(_parameters(optimizer) if isinstance(optimizer, str) else ()),
        ]  # fmt: skip
        # A transformation has its own rate, and a schedule from code is none of the choices.
        if not callable(options.get("learning_rate")) and not hasattr(optimizer, "init"):
            doc = "How the learning rate changes from step to step."
            fields.append(Field("schedule", "choice", CONSTANT, choices=(CONSTANT, *SCHEDULES), doc=doc))
            if (schedule := chosen.get("schedule", CONSTANT)) != CONSTANT:
                rate = options.get("learning_rate") or resolve_optimizer(optimizer).learning_rate
                fields.append(Field("learning_rate", "float", rate, range=Range(0, 1), doc="Largest learning rate."))
            if schedule == WARM_UP:
                doc = "Steps in which the rate grows from 0 to its peak."
                fields.append(Field("warmup", "int", 100, range=Range(1, 1_000_000), doc=doc))
        seed_doc = "Decides the first parameters, the order of samples, and dropout."
        fields.append(Field("seed", "int", options.get("seed", 0), range=Range(0, 2**31 - 1), doc=seed_doc))
        metrics = options.get("metrics")
        wants_accuracy = metrics is None or bool(metrics)
        fields.append(Field("accuracy", "bool", wants_accuracy, doc="Compute the share of correct predictions."))
        doc = "Steps between two computations of the norms that the graph shows; empty for none."
        fields.append(Field("norms", "int", options.get("norms"), is_optional=True, range=Range(1, 1 << 20), doc=doc))
        return tuple(fields)

    @cached_property
    def values(self) -> dict[str, Value]:
        """The value of each field. An invalid choice, such as one of an edited file, counts as none."""
        chosen = dict(self.chosen)
        usable = {f.name for f in self.fields if f.name in chosen and not unmet_need(f, chosen[f.name])}
        return {f.name: chosen[f.name] if f.name in usable else f.default for f in self.fields}

    def form(self, *, has_accuracy: bool) -> list[SettingField]:
        """Return the fields as data for a front end."""
        names = [field for field in self.fields if has_accuracy or field.name != "accuracy"]
        rows: list[SettingField] = []
        for field in names:
            label = _LABELS.get(field.name, field.name.replace("_", " "))
            row: SettingField = {
                **form_field(field),
                "label": label,
                "value": cast(FieldValue, self.values[field.name]),
            }
            if field.name == "optimizer" and field.is_optional:
                row["unset"] = f"{resolve_optimizer(self.options['optimizer']).name}, from the code"
            rows.append(row)
        return rows

    def changed(self, name: str, value: Any) -> Settings:
        """Return the choices after another one.

        Raises:
            UnknownOptionError: There is no such setting, or it does not take the value.
        """
        field = next((field for field in self.fields if field.name == name), None)
        need = "one of " + ", ".join(f.name for f in self.fields) if field is None else unmet_need(field, value)
        if field is None or need:
            what = f"there is no setting {name!r} of training" if field is None else f"{name} cannot be {value!r}"
            advice = 'wb.do("set_training", name="epochs", value=20)' if field is None else f"value={field.default!r}"
            raise UnknownOptionError(f"{what}.", (("needs", need),), advice)
        converted = converted_value(field, value)
        others = {key: other for key, other in self.chosen if key != name}
        return tuple(sorted((others if converted == field.default else {**others, name: converted}).items()))

    @property
    def of_program(self) -> Settings:
        """The choices that change the compiled program: the batch size, the optimizer and its parameters."""
        return tuple((name, value) for name, value in self.chosen if name not in _OF_RUN)

    @cached_property
    def fit_options(self) -> dict[str, Any]:
        """The options of `fit`, except a schedule, which depends on the number of steps."""
        values, options = self.values, dict(self.options)
        options |= {name: values[name] for name, _ in self.chosen if name in ("epochs", "batch_size", "seed", "norms")}
        optimizer = values["optimizer"] or options["optimizer"]
        if any(name == "accuracy" for name, _ in self.chosen):
            options["metrics"] = None if values["accuracy"] else ()
        if isinstance(optimizer, str):
            chosen = {name for name, _ in self.chosen}
            own = tuple((f.name, values[f.name]) for f in _parameters(optimizer) if f.name in chosen)
            options["optimizer"] = named_optimizer(optimizer, own) if own else optimizer
        return options

    @cached_property
    def optimizer(self) -> Optimizer:
        """The optimizer; with a schedule, the rate is a factor on it."""
        options = self.fit_options
        return resolve_optimizer(options.get("optimizer", "adam"), self.schedule(1) or options.get("learning_rate"))

    def schedule(self, steps: int) -> Callable[[Any], Any] | None:
        """Return the learning rate as a function of the step, for a run of so many steps; `None` if it is constant."""
        values = self.values
        kind = values.get("schedule", CONSTANT)
        if kind == CONSTANT:
            return None
        return schedule_of(str(kind), cast(float, values["learning_rate"]), cast(int, values.get("warmup", 0)), steps)


@cache
def _parameters(optimizer: str) -> tuple[Field, ...]:
    fields = []
    for name, default in parameters_of(optimizer).items():
        doc = _PARAMETER_DOCS.get(name, "")
        if isinstance(default, bool) and not name.endswith("_mask"):  # a mask may be a tree
            fields.append(Field(name, "bool", default, doc=doc))
        elif isinstance(default, float) or name == "momentum":
            # A mean with decay 1 would ignore all gradients, and Adam would divide by 0.
            is_decay = name in ("b1", "b2", "b3", "decay", "momentum")
            limits = Range(0, 0.999999 if is_decay else 1 if (default or 0) <= 1 else inf)
            fields.append(Field(name, "float", default, is_optional=default is None, range=limits, doc=doc))
    return tuple(fields)
