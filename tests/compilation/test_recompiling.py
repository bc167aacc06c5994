"""Memory of a thousand recompilations, except the memory that JAX itself keeps."""

from __future__ import annotations

import json

import pytest
from fresh import run_fresh

MIB_PER_RECOMPILE = 0.02
OBJECTS_PER_RECOMPILE = 45
"""JAX keeps some 20 small objects of every new shape: `jax._src.pjit._seen_qdds`, which `jax.clear_caches` leaves."""
WARM_UP = 3

PROGRAM = """
import ctypes, gc, json, sys
import jax, numpy as np
import mithril_nb as ml
from mithril_nb.models import Linear, Model, Relu

what, warm_up, count, every = sys.argv[1], *map(int, sys.argv[2:])
x = np.ones((8, 8), "float32")

def model(width):
    model = Model()
    model |= Linear(width)
    model += Relu()
    model += Linear(4)
    return model

def compile(width):
    pm = ml.compile(model(width), shapes={"input": [8, 8]})
    pm.evaluate(pm.randomize_params(), {"input": x})

def inspect(width):
    inspection = ml.inspect(model(width), shapes={"input": [8, 8]})
    inspection.stage("hlo"), inspection.cost(), inspection.memory

def bare(width):
    arrays = [np.ones(shape, "float32") for shape in ((8, width), width, (width, 4), 4)]
    def f(w, x):
        return jax.nn.relu(x @ w[0] + w[1]) @ w[2] + w[3]
    np.asarray(jax.jit(f)(arrays, x))

def memory():
    jax.clear_caches()
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096 / 2**20
    return 0.0

recompile = {"compile": compile, "inspect": inspect, "bare": bare}[what]
for number in range(warm_up):
    recompile(16 + number)  # every width is a new program
memory()
objects, points = len(gc.get_objects()), []
for number in range(count):
    recompile(16 + warm_up + number)
    if number % every == every - 1:
        points.append((number, memory()))
memory()
print(json.dumps({
    "objects": (len(gc.get_objects()) - objects) / count,
    "mib": np.polyfit(*np.transpose(points), 1)[0],
}))
"""


def measured(what: str, warm_up: int, count: int) -> dict[str, float]:
    """Return Python objects and the slope of resident memory in MiB per recompilation, in a separate process."""
    out = run_fresh(PROGRAM, what, str(warm_up), str(count), str(max(1, count // 50)), timeout=1400)
    return json.loads(out.splitlines()[-1])


@pytest.mark.parametrize(("what", "long"), [("compile", 1000), ("inspect", 500)])
def test_recompiling_leaks_nothing(stress, what, long):
    count = stress.size(short=8, long=long)
    found = measured(what, stress.size(short=WARM_UP, long=100), count)
    assert found["objects"] <= OBJECTS_PER_RECOMPILE
    stress.report(recompiles=count, **{f"{name}_each": round(value, 4) for name, value in found.items()})
    if count == long:  # a dozen recompiles are too few for a slope
        bare = measured("bare", 100, 300)
        stress.report(**{f"bare_jax_{name}_each": round(value, 4) for name, value in bare.items()})
        assert found["mib"] <= MIB_PER_RECOMPILE
