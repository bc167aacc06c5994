"""Times of the blocks of one program on several backends."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from transcript import message_of

import mithril_nb as ml
from mithril_nb import models
from mithril_nb.analysis.measure import BackendTimes, time_backends
from mithril_nb.emission.arrays.emitter import emit_arrays
from mithril_nb.emission.c.emit import emit


@pytest.fixture(scope="module")
def inspection() -> Any:
    model = models.Model() + models.Linear(8, name="first") + models.Softmax() + models.Linear(3, name="second")
    return ml.compile(model, shapes={"input": [5, 4]}).inspect("forward+backward")


def test_each_block_has_a_time_on_each_backend(inspection: Any) -> None:
    found = time_backends(inspection, backends=["numpy", "c"], runs=3)
    analytic = inspection.cost("analytic").by_block
    assert found.flops == {path: one.flops for path, one in analytic.items()}
    for name in ("numpy", "c"):
        assert found.seconds[name].keys() >= found.flops.keys()
        assert all(found.seconds[name][path] > 0 for path in found.flops)
    assert [*found.totals] == ["XLA", "numpy", "c"]


def test_a_block_includes_the_blocks_inside_it_on_each_backend() -> None:
    def program(x: Any) -> Any:
        with jax.named_scope("outer"):
            y = jnp.tanh(x @ x)
            with jax.named_scope("inner"):
                return y @ y

    found = time_backends(program, jnp.ones((32, 32)), backends=["numpy"], runs=3)
    assert found.flops == {"outer": 2 * 2 * 32**3, "outer/inner": 2 * 32**3}
    for seconds in found.seconds.values():
        assert seconds["outer"] > seconds["outer/inner"] > 0


def test_lines_contain_every_equation_that_computes(inspection: Any) -> None:
    program = inspection.traced_program
    counted = {row.id for row in inspection.cost("analytic").rows if row.flops}
    for source in (emit_arrays(program, "numpy"), emit_arrays(program, "torch"), emit(program).source):
        assert counted - {one for line in source.lines for one in line.equations} == set()


def test_the_table_of_times() -> None:
    found = BackendTimes({"a": 1200, "a/b": None}, {"XLA": {"a": 2e-6}, "c": {"a": 1e-3}}, {"XLA": 4e-6, "c": 2e-3})
    assert str(found).splitlines() == [
        "block      FLOPs  XLA, us  c, us",
        "a          1,200        2  1,000",
        "a/b      unknown",
        "program                 4  2,000",
    ]


def test_an_unknown_backend_is_rejected(inspection: Any) -> None:
    assert message_of(lambda: time_backends(inspection, backends=["numpi"])) == (
        "UnknownOptionError: time_backends has no backend 'numpi'.\n"
        "    known  numpy, torch, c\n"
        "    Try: backends=['numpy', 'torch', 'c']"
    )
