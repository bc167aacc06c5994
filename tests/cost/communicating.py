"""Programs on eight devices whose communication is known in closed form; they run in separate processes."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, prod
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import mithril_nb as ml
from mithril_nb.cost import SOURCES, Cost
from mithril_nb.inspection import Inspection
from mithril_nb.inspection import inspect_function as inspect

DEVICES = 8
FIGURES = ("payload_bytes", "wire_bytes")


def mesh(**sizes: int) -> jax.sharding.Mesh:
    return jax.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes))


def on(body: Callable[..., Any], over: jax.sharding.Mesh, specs: Any, out: Any) -> Callable[..., Any]:
    return jax.shard_map(body, mesh=over, in_specs=specs, out_specs=out, check_vma=False)


def array(*shape: int, sharding: Any = None, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


def sums(cost: Cost) -> tuple[int | None, int | None]:
    """Payload and wire bytes of the total; blocks, roles, lines and rows add up to it."""
    total = cost.total
    for name in FIGURES:
        whole = getattr(total, name)
        assert whole is not None, (cost.source, cost.notes)
        by_block = [*cost.by_block.values(), cost.unattributed]
        for parts in (by_block, cost.by_role.values(), cost.by_line.values(), cost.rows):
            assert sum(getattr(one, name) for one in parts) == whole
    return total.payload_bytes, total.wire_bytes


def by_source(program: Inspection) -> list[tuple[int | None, int | None]]:
    return [sums(program.cost(source)) for source in SOURCES]


def by_role(cost: Cost) -> dict[str, tuple[int | None, int | None]]:
    return {role: (of.payload_bytes, of.wire_bytes) for role, of in cost.by_role.items() if of.communicates}


WIDTHS = {"up": (12, 20), "down": (20, 5)}
PARAMS = {name: {"w": shape, "b": shape[1:]} for name, shape in WIDTHS.items()}
PARAM_BYTES = {name: 4 * sum(prod(shape) for shape in of.values()) for name, of in PARAMS.items()}
GRADIENTS = sum(PARAM_BYTES.values())


def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    with jax.named_scope("up"):
        x = jnp.tanh(x @ params["up"]["w"] + params["up"]["b"])
    with jax.named_scope("down"):
        x = x @ params["down"]["w"] + params["down"]["b"]
    with jax.named_scope("error"):
        return jnp.mean((x - y) ** 2)


def updated(params: Any, gradients: Any) -> Any:
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)


def params_like(sharding: Any = None) -> Any:
    return {name: {key: array(*shape, sharding=sharding) for key, shape in of.items()} for name, of in PARAMS.items()}


def data_parallel_by_xla() -> None:
    """The gradients are reduced by collectives that XLA's partitioner adds, combined into one."""
    over = mesh(d=DEVICES)
    rows = NamedSharding(over, P("d"))

    def step(params: Any, x: jax.Array, y: jax.Array) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, x, y)
        return value, updated(params, gradients)

    args = params_like(NamedSharding(over, P())), array(32, 12, sharding=rows), array(32, 5, sharding=rows)
    program = inspect(step, *args)
    for source in ("analytic", "lowered"):
        cost = program.cost(source)
        assert (cost.total.payload_bytes, cost.total.wire_bytes) == (None, None)
        assert any(note.endswith('cost("compiled") counts them') for note in cost.notes)
    cost = program.cost("compiled")
    assert [row.opcode for row in cost.rows if row.payload_bytes] == ["all-reduce"]
    value = 4  # the loss itself is reduced, too
    assert sums(cost) == (GRADIENTS + value, ring(GRADIENTS + value))
    lowered = jax.jit(step).lower(*args)
    assert sums(ml.inspect(lowered.compile()).cost("compiled")) == sums(cost)
    for given in (lowered, lowered.as_text()):
        found = ml.inspect(given)
        assert found.cost("lowered").total.wire_bytes is None
        assert sums(found.cost("compiled")) == sums(cost)
    assert by_role(cost) == {"forward": (value, ring(value)), "backward": (GRADIENTS, ring(GRADIENTS))}
    blocks = {path: of.payload_bytes for path, of in cost.by_block.items() if of.communicates}
    assert blocks == {
        **PARAM_BYTES,
        "error": value,
    }  # split by bytes, not by the number of arrays
    instruction = next(one for one in program.stage("hlo").instructions if one.opcode == "all-reduce")
    assert len(instruction.equations) == 5
    whole = GRADIENTS + value
    for path, share in instruction.shares:
        assert abs(share - (PARAM_BYTES.get(path, value)) / whole) < 1e-12


def ring(size: int, devices: int = DEVICES) -> int:
    return ceil(2 * (devices - 1) * size / devices)


def data_parallel() -> None:
    """The same with `psum`: all ways of counting agree."""
    over = mesh(d=DEVICES)

    def local(params: Any, x: jax.Array, y: jax.Array) -> Any:
        gradients = jax.tree.map(lambda g: lax.pmean(g, "d"), jax.grad(loss)(params, x, y))
        return updated(params, gradients)

    program = inspect(on(local, over, (P(), P("d"), P("d")), P()), params_like(), array(32, 12), array(32, 5))
    assert by_source(program) == [(GRADIENTS, 2 * 7 * GRADIENTS // 8)] * 3
    assert program.cost().total.to_dict()["payload_bytes"] == GRADIENTS


def fully_sharded() -> None:
    """Each device holds an eighth of the weights, gathers them for each use, and scatters the sum of the gradients."""
    over, size = mesh(d=DEVICES), 64 * 24 * 4

    def local(shard: jax.Array, x: jax.Array) -> jax.Array:
        def error(shard: jax.Array) -> jax.Array:
            with jax.named_scope("gather"):
                whole = lax.all_gather(shard, "d", tiled=True)
            with jax.named_scope("layer"):
                return (jnp.tanh(x @ whole) ** 2).sum()

        return shard - 0.1 * jax.grad(error)(shard)

    program = inspect(on(local, over, (P("d"), P("d")), P("d")), array(64, 24), array(16, 64))
    for source in SOURCES:
        cost = program.cost(source)
        assert sums(cost) == (2 * size, 2 * 7 * size // 8), source
        assert by_role(cost) == {"forward": (size, 7 * size // 8), "backward": (size, 7 * size // 8)}, source
        assert cost.subtree("local/gather" if "local/gather" in cost.by_block else "gather").payload_bytes == 2 * size


def pipeline() -> None:
    """A value passed from stage to stage in a loop counts once for each iteration."""
    over, rounds, size = mesh(stage=DEVICES), 11, 6 * 10 * 4

    def local(weight: jax.Array, x: jax.Array) -> jax.Array:
        def step(x: jax.Array, _: None) -> tuple[jax.Array, None]:
            x = jnp.tanh(x @ weight[0])
            return lax.ppermute(x, "stage", [(place, place + 1) for place in range(DEVICES - 1)]), None

        return lax.scan(step, x, None, length=rounds)[0]

    program = inspect(on(local, over, (P("stage"), P()), P("stage")), array(DEVICES, 10, 10), array(6, 10))
    assert by_source(program) == [(rounds * size, rounds * size)] * 3


def tensor_parallel() -> None:
    """A Megatron MLP, forward and backward: one all-reduce of the activations each, over one axis of a mesh."""
    over, size = mesh(data=2, model=4), 8 * 16 * 4

    def layer(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
        return lax.psum(jax.nn.relu(x @ up) @ down, "model")

    def two(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
        return layer(layer(x, up, down), up, down)

    specs = P("data"), P(None, "model"), P("model", None)
    program = inspect(on(two, over, specs, P("data")), array(16, 16), array(16, 64), array(64, 16))
    assert by_source(program) == [(2 * size, 2 * ring(size, 4))] * 3
    # The same program without collectives, which XLA adds.
    placed = [
        array(*shape, sharding=NamedSharding(over, spec))
        for shape, spec in zip([(16, 16), (16, 64), (64, 16)], specs, strict=True)
    ]

    def plain(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
        for _ in range(2):
            x = lax.with_sharding_constraint(jax.nn.relu(x @ up) @ down, NamedSharding(over, P("data")))
        return x

    assert sums(inspect(plain, *placed).cost("compiled")) == (2 * size, 2 * ring(size, 4))


def sharded_only_inside() -> None:
    """Outside `shard_map`, sharded arrays may need collectives; replicated arrays need none."""
    over = mesh(d=DEVICES)
    total = on(lambda x: lax.psum(x.sum(0), "d"), over, P("d"), P())
    double = on(lambda x: 2 * x, over, P("d"), P("d"))
    x = array(16, 4)
    assert sums(inspect(lambda x: jnp.sin(total(x)), x).cost()) == (16, 28)
    cost = inspect(lambda x: jnp.sin(double(x)) + total(x), x).cost()
    assert [row.opcode for row in cost.rows if row.payload_bytes is None] == ["sin", "add"]
    assert (cost.total.payload_bytes, cost.total.unknown_communication) == (16, 2)
    assert "≥ 16" in str(cost)
    rows = NamedSharding(over, P("d"))
    for fn in (
        lambda x: lax.with_sharding_constraint(x, rows).sum(),
        lambda x: lax.with_sharding_constraint(x, NamedSharding(over, P(P.UNCONSTRAINED, None))).sum(),
        lambda x: jax.device_put(x, rows).sum(),
        jax.jit(lambda x: x.sum(), in_shardings=rows),
        lambda x: jax.jit(lambda x: x.sum(), in_shardings=rows)(x),
        lambda x: lax.scan(lambda c, row: (c + row.sum(), None), 0.0, lax.with_sharding_constraint(x, rows))[0],
        lambda x: lax.fori_loop(0, 3, lambda _, x: lax.with_sharding_constraint(x, rows), x).sum(),
    ):
        assert inspect(fn, x).cost().total.payload_bytes is None
    whole = NamedSharding(over, P())
    assert sums(inspect(lambda x: lax.with_sharding_constraint(x, whole) * 2, x).cost()) == (0, 0)


def partly_automatic() -> None:
    """In a `shard_map` over some axes, XLA partitions arrays along the others: communication there is unknown."""
    over = mesh(a=2, b=4)

    def body(x: jax.Array) -> jax.Array:
        return lax.psum(x * 2, "a")

    partly = jax.shard_map(body, mesh=over, in_specs=P("a"), out_specs=P(), axis_names={"a"})
    assert sums(inspect(partly, array(16, 4)).cost()) == (128, 128)
    placed = array(16, 4, sharding=NamedSharding(over, P("a", "b")))
    program = inspect(partly, placed)
    assert [row.opcode for row in program.cost().rows if row.wire_bytes is None] == ["mul", "psum_invariant"]
    assert sums(program.cost("compiled")) == (32, 32)  # each device has its part of `b`


def silent() -> None:
    """Collectives that send nothing."""
    over = mesh(one=1, d=DEVICES)
    x = array(16, 4)

    def body(x: jax.Array) -> jax.Array:
        alone = lax.psum(x, "one") + lax.all_gather(x, "one", tiled=True)
        kept = lax.ppermute(x, "d", [(place, place) for place in range(DEVICES)])
        return alone + kept + lax.axis_index("d") + lax.psum(1, "d")

    program = inspect(on(body, over, P("d"), P("d")), x)
    assert by_source(program) == [(0, 0)] * 3
    batched = inspect(jax.vmap(lambda x: x - lax.pmean(x, "batch"), axis_name="batch"), x)
    assert batched.cost().total.communicates is False


def unknown() -> None:
    """Unknown figures are `None`, and the notes give the reason."""
    over = mesh(d=DEVICES)

    def until(x: jax.Array) -> jax.Array:
        return lax.while_loop(lambda x: lax.psum(x.sum(), "d") < 9.0, lambda x: x + lax.psum(x, "d"), x)

    cost = inspect(on(until, over, P("d"), P("d")), array(16, 4)).cost()
    assert (cost.total.payload_bytes, cost.total.wire_bytes) == (None, None)
    assert "payload_bytes and wire_bytes of 2 × psum: trip count unknown" in cost.notes

    def ragged(x: jax.Array, sizes: jax.Array) -> jax.Array:
        return lax.ragged_all_to_all(x, jnp.zeros_like(x), sizes, sizes, sizes, sizes, axis_name="d")

    cost = inspect(on(ragged, over, (P("d"), P()), P("d")), array(64, 4), array(8, dtype="int32")).cost()
    assert cost.total.payload_bytes is None
    assert "payload_bytes and wire_bytes of 1 × ragged_all_to_all: the bytes sent depend on values" in cost.notes


def branches() -> None:
    """The most expensive branch counts; the others count 0."""
    over = mesh(d=DEVICES)

    def body(x: jax.Array) -> jax.Array:
        return lax.cond(x[0, 0] > 0, lambda x: lax.psum(x @ x.T @ x, "d"), lambda x: x, x)

    program = inspect(on(body, over, P("d"), P("d")), array(16, 4))
    assert by_source(program) == [(32, 56)] * 3


def light_branches() -> None:
    """Communication of a branch with fewer FLOPs is 0 if the most expensive one sends as much, else unknown."""
    over = mesh(d=DEVICES)

    def program(heavy: Callable[..., Any], light: Callable[..., Any]) -> Any:
        def body(x: jax.Array) -> jax.Array:
            return lax.cond(x[0, 0] > 0, heavy, light, x)

        return inspect(on(body, over, P("d"), P("d")), array(16, 4), name="program")

    def gathered(x: jax.Array) -> jax.Array:
        return lax.all_gather(x, "d", tiled=True)[:2]

    def reduced_often(x: jax.Array) -> jax.Array:
        return lax.scan(lambda c, _: (lax.psum(c, "d"), None), x, None, length=5)[0]

    def product(x: jax.Array) -> jax.Array:
        return x @ x.T @ x @ x.T @ x

    why = "in a branch that has fewer FLOPs but may send more than the counted branch"
    for source in SOURCES:
        for light in (gathered, lambda x: lax.psum(x, "d"), reduced_often):
            cost = program(product, light).cost(source)
            assert (cost.total.payload_bytes, cost.total.wire_bytes) == (None, None), source
            assert cost.total.flops == sum(row.flops or 0 for row in cost.rows) > 0
            assert cost.total.unknown_communication == 1
            (note,) = (note for note in cost.notes if note.startswith("payload_bytes"))
            assert note.startswith("payload_bytes and wire_bytes of 1 × ")
            assert note.endswith(f": {why}")
        # The product sends 32 and 56 bytes; the others send as much, and more.
        heavy = lambda x: lax.psum(product(x), "d")  # noqa: E731
        assert sums(program(heavy, lambda x: lax.psum(x, "d")).cost(source)) == (32, 56), source
        cost = program(heavy, reduced_often).cost(source)
        assert (cost.total.payload_bytes, cost.total.wire_bytes) == (32, 56)
        assert cost.total.unknown_communication == 1
        assert "≥ 56" in str(cost)
        # A branch within an idle branch.
        nested = program(product, lambda x: lax.cond(x[1, 1] > 0, gathered, lambda x: x, x)).cost(source)
        assert nested.total.payload_bytes is None, source
    cost = program(product, gathered).cost()
    for field in FIGURES:
        assert cost.formula(field=field) == f"0 + unknown (1 × all_gather: {why})"
    assert "unknown" not in cost.formula()


def shown() -> None:
    """The columns, the line of the total, and the same in data."""
    over = mesh(d=DEVICES)

    def body(x: jax.Array) -> jax.Array:
        with jax.named_scope("reduce"):
            return lax.psum(x, "d")

    program = inspect(on(body, over, P("d"), P()), array(16, 4), name="program", params=())
    cost = program.cost()
    assert str(cost).splitlines() == [
        "program: analytic",
        "block           FLOPs  transcendentals  bytes  payload bytes  wire bytes  params  share",
        "reduce             64                0    512             32          56       0  100 %",
        "(unattributed)      0                0      0              0           0       0    0 %",
        "total              64                0    512             32          56       0  100 %",
        "shard_map: equations inside run on each device, and are counted for all devices together",
        "",
        "source                FLOPs  transcendentals  bytes",
        "analytic                 64                0    512",
        "analytic, loops once      8                0     64",
        "",
        "communication of one device: payload 32 B, wire 56 B",
    ]
    page = cost._repr_mimebundle_()["text/html"]
    for text in ("payload bytes", "wire bytes", "communication of one device: payload 32 B, wire 56 B"):
        assert text in page
    assert "payload bytes" in str(cost.by_line)
    assert "wire bytes before" in str(program.cost("lowered").compare(program.cost("compiled")))
    assert "wire bytes" in str(program.costs())
    row = next(row for row in cost.to_dict()["rows"] if row["opcode"] == "psum")
    assert (row["payload_bytes"], row["wire_bytes"]) == (32, 56)
    table = cost.to_pandas()
    assert table["wire_bytes"].sum() == 56
    assert cost.to_pandas("block")["payload_bytes"].sum() == 32
    plain = inspect(jnp.sin, array(4)).cost()
    assert "payload" not in str(plain) + plain.to_json() + plain._repr_mimebundle_()["text/html"]
    assert "payload_bytes" not in plain.to_pandas()


CASES = {
    one.__name__: one
    for one in (
        data_parallel_by_xla, data_parallel, fully_sharded, pipeline, tensor_parallel, sharded_only_inside,
        partly_automatic, silent, unknown, branches, light_branches, shown,
    )
}  # fmt: skip


def random_programs(count: int) -> int:
    """Check random collectives over random axes of random meshes; return how many there were."""
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st

    counted = 0

    @st.composite
    def programs(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[str, tuple[str, ...], int, int]]]:
        sizes = draw(st.sampled_from([(8,), (2, 4), (4, 2), (2, 2, 2), (1, 8), (4,), (3,), (2, 3), (6,)]))
        names = "abc"[: len(sizes)]
        axes = st.lists(st.sampled_from(names), min_size=1, max_size=len(names), unique=True).map(tuple)
        kind = st.sampled_from([*RANDOM])
        calls = st.tuples(kind, axes, st.integers(1, 3), st.integers(1, 4))
        return sizes, draw(st.lists(calls, min_size=1, max_size=4))

    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(programs())
    def check(program: tuple[tuple[int, ...], list[tuple[str, tuple[str, ...], int, int]]]) -> None:
        nonlocal counted
        sizes, calls = program
        over = mesh(**dict(zip("abc", sizes, strict=False)))
        counted += len(calls)
        payload = wire = 0
        operands = []
        for kind, axes, width, _ in calls:
            group = prod(over.shape[name] for name in axes)
            operands.append(array(group * width, 5))
            each = 4 * 5 * group * width
            each_payload, each_wire = closed_form(kind, each, group)
            payload, wire = payload + each_payload, wire + each_wire

        def body(*arrays: jax.Array) -> list[jax.Array]:
            # Each goes through a different operation, because XLA merges equal ones.
            return [
                RANDOM[kind](x * (2.0 + number), axes, prod(over.shape[name] for name in axes))
                for number, ((kind, axes, _, _), x) in enumerate(zip(calls, arrays, strict=True))
            ]

        found = inspect(on(body, over, P(), [P()] * len(calls)), *operands)
        for source in SOURCES:
            assert sums(found.cost(source)) == (payload, wire), (source, program)

    check()
    return counted


def closed_form(kind: str, size: int, group: int) -> tuple[int, int]:
    """Payload and wire bytes for an operand of a size, by counting the steps of the ring."""
    if group == 1:
        return 0, 0
    if kind in ("psum", "pmax", "pmean"):
        return size, ceil((group - 1) * size / group + (group - 1) * size / group)  # reduce-scatter, then all-gather
    if kind == "all_gather":
        return group * size, sum(size for _ in range(group - 1))
    if kind in ("psum_scatter", "all_to_all"):
        return size, ceil(sum(size / group for _ in range(group - 1)))
    return size, size


RANDOM: dict[str, Callable[[jax.Array, tuple[str, ...], int], jax.Array]] = {
    "psum": lambda x, axes, group: lax.psum(x, axes),
    "pmax": lambda x, axes, group: lax.pmax(x, axes),
    "pmean": lambda x, axes, group: lax.pmean(x, axes),
    "all_gather": lambda x, axes, group: lax.all_gather(x, axes, tiled=True),
    "psum_scatter": lambda x, axes, group: lax.psum_scatter(x, axes, tiled=True),
    "all_to_all": lambda x, axes, group: lax.all_to_all(x, axes, 0, 0, tiled=True),
    "ppermute": lambda x, axes, group: lax.ppermute(x, axes, [(i, (i + 1) % group) for i in range(group)]),
}
