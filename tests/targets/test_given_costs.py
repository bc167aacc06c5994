"""Costs and results of programs that start at a later stage than Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax_programs import spec
from transcript import message_of

import mithril_nb as ml
from mithril_nb.errors import CostBoundError, StageUnavailableError
from tests.targets.given_programs import at_every_step, lowered


def step(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w).sum()


ARGS = spec(2, 4), spec(4, 8)


@pytest.mark.parametrize("kind", ["lowered", "compiled", "StableHLO text", "HLO bytes", "HLO before"])
def test_costs_are_checked_without_a_source(kind: str, tmp_path: Path) -> None:
    found = ml.inspect(at_every_step(step, ARGS)[kind](tmp_path))
    source = "lowered" if found.stage("hlo_before").unavailable is None else "compiled"
    assert found.cost().source == source
    flops = found.cost().total.flops
    ml.assert_cost(found, flops=(flops, flops))
    with pytest.raises(CostBoundError) as caught:
        ml.assert_cost(found, flops=flops - 1)
    assert f"({source})" in str(caught.value)
    with pytest.raises(StageUnavailableError):
        ml.assert_cost(found, flops=flops, source="analytic")


def test_costs_of_symbolic_sizes_fail_with_working_advice() -> None:
    (batch,) = jax.export.symbolic_shape("batch")
    assert message_of(lambda: ml.inspect(jax.export.export(jax.jit(step))(spec(batch, 4), spec(4, 8))).cost()) == (
        "StageUnavailableError: program 'step' has no lowered costs.\n"
        "    reason  XLA needs a number for each size, and has none for batch\n"
        "    Try: ml.inspect(exported.call, *arrays)  # arrays of fixed sizes"
    )


def test_a_bound_of_memory_that_is_unknown() -> None:
    with pytest.raises(CostBoundError) as caught:
        ml.assert_cost(lowered(step, ARGS).compile().as_text(), peak_bytes=1)
    assert "peak_bytes  unknown (compiled)" in str(caught.value)


def test_results_are_those_of_the_function() -> None:
    def several(x: Any) -> Any:
        return {"a": x * 2, "b": (x, x.sum())}

    wanted = [(one.name, one.spec) for one in ml.inspect(several, spec(3)).outputs]
    made = lowered(several, (spec(3),))
    exported = jax.export.export(jax.jit(several))(spec(3))
    for target in (made, made.as_text(), exported):
        found = ml.inspect(target)
        assert [(one.name, one.spec) for one in found.outputs] == wanted
        assert [one["name"] for one in found.to_dict("stablehlo", passes=False)["outputs"]] == [
            "result['a']", "result['b'][0]", "result['b'][1]",
        ]  # fmt: skip
    for target in (made.compile(), made.as_text(dialect="hlo")):
        assert [(one.name, one.spec) for one in ml.inspect(target).outputs] == [
            (f"result[{place}]", specs) for place, (_, specs) in enumerate(wanted)
        ]
    assert [one.name for one in ml.inspect(lowered(step, ARGS).compile()).outputs] == ["result"]


def test_a_given_program_does_not_change_its_arguments() -> None:
    assert message_of(lambda: ml.inspect(lowered(step, ARGS)).altered(lambda args: args)) == (
        "StageUnavailableError: program 'step' has no jaxpr.\n"
        "    reason  this program was given as a jax.stages.Lowered: it has no jaxpr\n"
        '    Try: inspection.stage("stablehlo")  # the first stage of this program'
    )
