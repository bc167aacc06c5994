"""The puzzles of the sets: each accepts three different solutions, and rejects two wrong ones with a reason."""

from __future__ import annotations

import re
from typing import Any

import jax.numpy as jnp
import pytest
from fresh import run_fresh
from process import EIGHT_DEVICES
from puzzle_solutions import SOLUTIONS

import mithril_nb as ml
from mithril_nb.errors import DeviceNotFoundError, UnknownOptionError

PUZZLES = [puzzle for name in ("trace", "transform", "compile") for puzzle in ml.teach.puzzles(name)]


def test_there_are_ten_in_each_set() -> None:
    assert [len(ml.teach.puzzles(name)) for name in ("trace", "transform", "compile")] == [10, 10, 10]
    assert list(SOLUTIONS) == [puzzle.name for puzzle in PUZZLES]
    assert all(puzzle.text for puzzle in PUZZLES)
    with pytest.raises(UnknownOptionError, match='"trace"'):
        ml.teach.puzzles("tracing")


@pytest.mark.parametrize("puzzle", PUZZLES, ids=lambda puzzle: puzzle.name)
def test_right_solutions_are_accepted_and_wrong_ones_rejected(puzzle: ml.teach.Puzzle) -> None:
    right, wrong = SOLUTIONS[puzzle.name]
    assert len(right) == 3
    assert [puzzle.check(solution).reason for solution in right] == ["", "", ""]
    assert len(wrong) == 2
    results = [puzzle.check(solution) for solution in wrong]
    assert [result.right for result in results] == [False, False]
    assert all(len(result.reason) > 20 for result in results)


@pytest.mark.parametrize(("name", "wrong"), [
    ("embedded", lambda table, ids: table[:10][ids]),
    ("halvings", lambda n: jnp.searchsorted(2 ** jnp.arange(10), n, side="right").astype("int32")),
    ("halvings", lambda n: jnp.int32(int(n).bit_length())),
    ("mean_of_first", lambda x, count: x[: int(count)].mean(axis=0)),
    ("mean_of_first", lambda x, count: jnp.where(jnp.arange(16)[:, None] < min(count, 9), x, 0).sum(0) / count),
    ("chosen", lambda x, is_sine: jnp.sin(x) if is_sine else jnp.cos(x)),
    ("chosen", lambda x, is_sine: jnp.sin(x)),
    ("scaled", lambda x, rate: x * float(rate)),
])  # fmt: skip
def test_more_wrong_solutions(name: str, wrong: Any) -> None:
    puzzle = next(puzzle for puzzle in PUZZLES if puzzle.name == name)
    assert [puzzle.check(wrong).right for _ in range(4)] == [False] * 4


ON_EIGHT_DEVICES = """
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import mithril_nb as ml

(puzzle,) = ml.teach.puzzles("devices")
mesh = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Auto,))


def split(*axes):
    return NamedSharding(mesh, P(*axes))


def network(x, up, down):
    return jax.nn.relu(x @ up) @ down


def on_each(body, out):
    return jax.jit(jax.shard_map(body, mesh=mesh, in_specs=(P(), P(None, "d"), P("d")), out_specs=out))


def constrained(x, up, down):
    up, down = (lax.with_sharding_constraint(*each) for each in ((up, split(None, "d")), (down, split("d"))))
    return network(x, up, down)


def gathered(x, up, down):
    total = lax.all_gather(network(x, up, down), "d").sum(0)
    return lax.dynamic_slice_in_dim(total, 8 * lax.axis_index("d"), 8)


def gathered_if_needed(x, up, down):
    parts = lax.psum_scatter(network(x, up, down), "d", tiled=True)
    gather = lambda parts: lax.all_gather(parts, "d", tiled=True)[:8]
    return lax.cond(parts[0, 0] == 0.5, gather, lambda parts: parts, parts)


SHARDINGS = {
    "by columns, then by rows": (split(), split(None, "d"), split("d")),
    "weights by rows, and rows of x": (split("d"), split("d"), split("d")),
    "twice by columns": (split(), split(None, "d"), split(None, "d")),
    "rows of x alone": (split("d"), split(), split()),
    "by rows, then by columns": (split(), split("d"), split(None, "d")),
}
tries = {name: jax.jit(network, in_shardings=each) for name, each in SHARDINGS.items()}
tries |= {
    "constraints": jax.jit(constrained),
    "sum": on_each(lambda *args: lax.psum(network(*args), "d"), P()),
    "sum of slices": on_each(lambda *args: lax.psum_scatter(network(*args), "d", tiled=True), P("d")),
    "own gather": on_each(gathered, P("d")),
    "gather in a branch": on_each(gathered_if_needed, P("d")),
    "mean": on_each(lambda *args: lax.pmean(network(*args), "d"), P()),
    "one device": jax.jit(network),
}
for name, fn in tries.items():
    print(f"{name}: {puzzle.check(fn)}")
x, up, down = (jax.ShapeDtypeStruct(shape, "float32") for shape in ((64, 256), (256, 1024), (1024, 256)))
sums = ml.teach.puzzle(network, x, up, down, collectives={"all-reduce": 1})
print("at most 1:", sums.check(tries["by columns, then by rows"]))
twice = lambda x, up, down: network(network(x, up, down) * 0 + x, up, down)
print("at most 1, twice:", sums.check(jax.jit(twice, in_shardings=SHARDINGS["by columns, then by rows"])))
"""


@pytest.mark.slow
def test_a_network_is_divided_without_all_gathers() -> None:
    results = dict(line.split(": ", 1) for line in run_fresh(ON_EIGHT_DEVICES, **EIGHT_DEVICES).splitlines())
    right = ("by columns, then by rows", "constraints", "sum", "sum of slices")
    assert [results[name].startswith("right: 0 all-gather collectives, ") for name in right] == [True] * 4
    assert "it has 2 `all-gather`, and at most 0" in results["weights by rows, and rows of x"]
    assert "it has 1 `all-gather`, and at most 0" in results["twice by columns"]
    assert "They pass 262,144 bytes: the parts along d are collected" in results["twice by columns"]
    for name in ("rows of x alone", "by rows, then by columns", "one device"):
        assert re.search(r"it has [\d,]+ bytes at its peak, and at most 600,000", results[name])
    assert "element (0, 0) of the result" in results["mean"]
    assert "it has 1 `all-gather`, and at most 0" in results["own gather"]
    assert "at most 0 are allowed. They pass unknown bytes" in results["gather in a branch"]
    assert results["at most 1"].startswith("right: 1 all-reduce collective")
    assert "it has 2 `all-reduce`, and at most 1" in results["at most 1, twice"]


def test_puzzles_of_many_devices_are_refused_on_one() -> None:
    with pytest.raises(DeviceNotFoundError, match="xla_force_host_platform_device_count=8"):
        ml.teach.puzzles("devices")
    with pytest.raises(DeviceNotFoundError, match="a bound of collectives needs 2 devices"):
        ml.teach.puzzle(jnp.sin, jnp.ones(3), collectives={"all-gather": 0})
    for collectives in ({"gather": 0}, {"all-gather": -1}, ["all-gather"]):
        with pytest.raises(UnknownOptionError, match="accept") as refusal:
            ml.teach.puzzle(jnp.sin, jnp.ones(3), collectives=collectives)  # pyright: ignore
        assert 'Try: collectives={"all-gather": 0}' in str(refusal.value)
