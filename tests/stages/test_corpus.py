"""Corpus of programs: every equation has a block, and every product has a role."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from benchmarks.corpus import corpus
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.stages.hlo.text import fingerprint
from mithril_nb.stages.trace.traced import Program
from mithril_nb.stages.trace.tracing import trace

CORPUS = {name: make for name, make in corpus().items() if not name.startswith("sharded")}
PRODUCTS = ("dot_general", "conv_general_dilated")


@pytest.mark.parametrize("name", CORPUS)
def test_equations_have_blocks_and_products_have_roles(name):
    check(name)


def check(name):
    fn, args = corpus()[name]()
    program = Program(trace(fn, args), "params")
    assert [one.id for one in program.equations if not one.block or not one.origin] == []
    assert [one.id for one in program.equations if not one.is_call and one.role is None] == []
    roles = {one.role for one in program.equations if one.primitive in PRODUCTS}
    if name.endswith("forward"):
        assert roles <= {"forward"}
    elif name.endswith("train step"):
        assert roles == {"forward", "backward"}
        assert "update" in {one.role for one in program.equations}


def test_a_sharded_step_on_8_devices():
    code = "import test_corpus; test_corpus.check_sharded()"
    environment = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "NPROC": "8",
        "PYTHONPATH": os.pathsep.join(
            (os.getcwd(), os.path.dirname(__file__), os.path.dirname(os.path.dirname(__file__)))
        ),
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def check_sharded():
    """Run the checks of the test above in a process with 8 devices."""
    name = "sharded, train step"
    check(name)
    fn, args = corpus()[name]()
    inspection = inspect(fn, *args)
    assert fingerprint(inspection.optimized.as_text() or "") == fingerprint(inspection.compiled.as_text() or "")
    partitioned = inspection.who_changed("hlo", "all-reduce").appeared
    assert partitioned is not None
    assert partitioned.name == "spmd-partitioning"
    apart = [jax.device_put(jnp.ones(()), device) for device in jax.devices()[1:3]]
    assert "incompatible devices" in str(inspect(jnp.add, *apart).stage("stablehlo").unavailable)
    alone = inspect(jnp.sin, apart[0])
    assert alone.compiled(apart[0]).devices() == {jax.devices()[1]}
    for stage in ("stablehlo", "hlo"):
        made = inspection.stage(stage)
        assert made.unavailable is None, made.unavailable
        products = [one for one in made.instructions if one.opcode in ("stablehlo.dot_general", "dot")]
        assert products
        for one in products:
            assert set(one.blocks) == {"compute_loss/mlp/dense"}
            assert one.role in ("forward", "backward")
