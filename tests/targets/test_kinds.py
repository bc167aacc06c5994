"""A target of a new kind is inspected by the kind that accepts it; other targets keep theirs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import mithril_nb as ml
from mithril_nb.targets import kinds
from mithril_nb.targets.kinds import TargetCall, TargetKind, kind_of, register_kind


class Scale:
    """A layer of a library that mithril_nb does not include."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def apply(self, x: jax.Array) -> jax.Array:
        return self.factor * x


@pytest.fixture
def scales(monkeypatch: pytest.MonkeyPatch) -> TargetKind:
    monkeypatch.setattr(kinds, "_KINDS", list(kinds._KINDS))
    kind = TargetKind(
        "scales",
        lambda call: isinstance(call.target, Scale),
        lambda call: ml.inspect(call.target.apply, *call.args, name=call.options["name"]),
    )
    register_kind(kind)
    return kind


def test_a_registered_kind_builds_the_inspection(scales: TargetKind) -> None:
    inspection = ml.inspect(Scale(2.0), jnp.ones(3), name="doubled")
    assert inspection.name == "doubled"
    assert inspection.cost().total.flops == 3


def test_without_its_kind_the_target_is_refused() -> None:
    with pytest.raises(ml.errors.UnknownOptionError, match="cannot inspect <"):
        ml.inspect(Scale(2.0), jnp.ones(3))


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("module @f {}", "lowered and compiled programs"),
        (ml.models.Linear(3), "models of mithril_nb"),
        (jnp.sin, "functions"),
        (jax.jit(jnp.sin), "functions"),
        ("sin", None),
        (dict, None),
    ],
)
def test_built_in_kinds_keep_their_targets(scales: TargetKind, target: object, name: str | None) -> None:
    options = dict.fromkeys(("program", "loss", "optimizer"))
    found = kind_of(TargetCall(target, (), {}, options))
    assert (found and found.name) == name
