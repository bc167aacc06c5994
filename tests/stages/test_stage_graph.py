"""The graph of a stage: blocks in levels, equal ones folded, loops and branches as regions, nothing lost."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import pytest

from mithril_nb.graph.spec import TensorSpec
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.stages import Stage
from mithril_nb.stages.graph.stage_graph import MOST
from mithril_nb.stages.graph.tree import stage_graph
from mithril_nb.stages.records import Instruction
from mithril_nb.viz.costs.node_values import dtypes_of_stage
from mithril_nb.viz.diagrams.stages import nested_stage, stage_graph_text, stage_layout
from mithril_nb.viz.diagrams.svg import scene_svg

ROW = TensorSpec((4, 8))


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, "float32")


def made(*rows: tuple[str, str, str | tuple[str, ...]], **options):
    """Return a stage of `(opcode, block, operands)`; ids are numbers."""
    found = []
    for at, (opcode, block, operands) in enumerate(rows):
        taken = (operands,) if isinstance(operands, str) else operands
        shares = ((block, 1.0),) if block else ()
        found.append(
            Instruction(
                str(at), opcode, at + 1, (str(at),), shares, "forward", operands=taken, shapes=(ROW,), **options
            )
        )
    return Stage("jaxpr", "\n" * len(rows), tuple(found))


def seen(graph, opened=()):
    return [f"{node.name} ×{node.repeat}" if node.repeat > 1 else node.name for node in graph.visible(opened)]


def wires(graph, opened=()) -> list[tuple[str, str, str]]:
    """Return source, target and shape of each wire of the picture."""
    nested = nested_stage(graph)
    bundles = nested.wires(nested.visible_groups(opened))
    return [(one.source, one.target, nested.shape_text(one.shapes)) for one in bundles]


def layers(count):
    """Return a chain of layers of two ops, with a residual sum."""
    rows = [("mul", "stem", ())]
    for at in range(count):
        first = len(rows)
        rows += [
            ("dot", f"layer_{at}/linear", str(first - 1)),
            ("max", f"layer_{at}/relu", str(first)),
            ("add", f"layer_{at}/sum", (str(first + 1), str(first - 1))),
        ]
    return made(*rows, ("dot", "head", str(len(rows) - 1)))


def test_equal_neighbours_fold_into_one_node():
    graph = stage_graph(layers(12))
    assert seen(graph) == ["stem", "layer_0 ×12", "head"]
    layer = graph.nodes["layer_0"]
    assert layer.members == tuple(f"layer_{at}" for at in range(12))
    assert layer.counts == (36, 0, 0, 0)
    assert wires(graph) == [
        ("stem", "layer_0", "4×8"),
        ("layer_0", "head", "4×8"),
    ]


def test_open_fold_shows_one_round():
    graph = stage_graph(layers(12))
    assert seen(graph, {"layer_0"}) == ["stem", "layer_0 ×12", "linear", "relu", "sum", "head"]
    assert {wire[:2] for wire in wires(graph, {"layer_0"})} == {
        ("stem", "layer_0/linear"),
        ("layer_0/linear", "layer_0/relu"),
        ("layer_0/relu", "layer_0/sum"),
        ("stem", "layer_0/sum"),
        ("layer_0/sum", "head"),
    }


def test_different_block_is_not_folded():
    stage = layers(6)
    other = [*stage.instructions]
    at = next(at for at, one in enumerate(other) if one.blocks.get("layer_3/relu"))
    other[at] = Instruction("10", "tanh", 11, ("10",), other[at].shares, "forward", operands=("9",), shapes=(ROW,))
    graph = stage_graph(Stage("jaxpr", stage.text, tuple(other)))
    assert seen(graph) == ["stem", "layer_0 ×3", "layer_3", "layer_4 ×2", "head"]
    alike = stage_graph(Stage("hlo", stage.text, tuple(other)), like=stage_graph(stage))
    assert seen(alike) == ["stem", "layer_0 ×6", "head"]


def test_layers_with_other_input_sizes_are_not_equal():
    def tower(weights, x):
        for at, weight in enumerate(weights):
            with jax.named_scope(f"layer_{at}"):
                x = x @ weight
        return x

    graph = inspect(tower, [f32(16, 32), f32(32, 32), f32(32, 32)], f32(2, 16)).graph()
    assert [one for one in seen(graph) if one.startswith("layer")] == ["layer_0", "layer_1 ×2"]


def test_every_instruction_is_in_one_node():
    stage = layers(7)
    graph = stage_graph(stage)
    ids = [id for node in graph.visible() for id in graph.instructions_of(node.key)]
    assert sorted(ids, key=int) == [one.id for one in stage.instructions]
    assert len(graph.instructions_of("layer_0")) == 21


def test_many_alternating_blocks_fold_into_rounds():
    rows = [("mul", "stem", ())]
    for at in range(40):
        rows += [("dot", f"linear_{at}", str(len(rows) - 1)), ("max", f"relu_{at}", str(len(rows)))]
    graph = stage_graph(made(*rows))
    assert seen(graph) == ["stem", "linear_0 … relu_0 ×40"]
    fold = graph.level()[1]
    assert [node.name for node in graph.level(fold.key)] == ["linear_0", "relu_0"]


@pytest.mark.parametrize("count", [26, 200, 3000])
def test_levels_have_few_nodes(count):
    rows = [(f"op{at * at % 997}", f"block_{at}/inner", str(at - 1) if at else ()) for at in range(count)]
    graph = stage_graph(made(*rows))
    assert all(len(node.children) <= MOST for node in graph.nodes.values())
    assert sum(node.counts[0] for node in graph.level()) == count


def test_a_stage_of_50_000_instructions_opens_in_linear_time():
    spent = []
    for count in (10_000, 50_000):
        rows = [(f"op{at % 13}", f"layer_{at // 500}/part_{at // 50 % 10}", str(at - 1)) for at in range(count)]
        stage = made(*rows)
        start = time.process_time()
        graph = stage_graph(stage)
        assert len(graph.visible(graph.first_view())) <= MOST
        wires(graph, graph.first_view())
        spent.append(time.process_time() - start)
    assert spent[1] < 15 * spent[0] + 1


def test_a_call_without_a_name_has_the_name_of_the_function_inside():
    def stem(x):
        with jax.named_scope("stem"):
            return jax.nn.relu(x) * 2

    graph = stage_graph(inspect(stem, f32(3)).stage("jaxpr"))
    assert [node.name for node in graph.level("stem")] == ["relu", "mul"]


def test_loop_region_shows_its_trip_count():
    def scanned(x, ws):
        with jax.named_scope("stack"):
            return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, ws)[0]

    graph = stage_graph(inspect(scanned, f32(4, 8), f32(5, 8, 8)).stage("jaxpr"))
    loop = next(node for node in graph.nodes.values() if node.kind == "loop")
    assert (loop.name, loop.note) == ("scan", "×5 rounds")
    assert {"dot_general", "tanh"} <= {node.name for node in graph.level(loop.key)}


def test_branches_are_separate():
    def chosen(flag, x):
        return jax.lax.cond(flag, lambda v: jnp.sin(v) * 2, lambda v: jnp.cos(v) + 1, x)

    graph = stage_graph(inspect(chosen, jax.ShapeDtypeStruct((), "bool"), f32(3)).stage("jaxpr"))
    names = {node.name: [one.name for one in graph.level(node.key)] for node in graph.nodes.values() if node.children}
    assert names["branch 0"] == ["cos", "add"]
    assert names["branch 1"] == ["sin", "mul"]


def test_forward_and_backward_of_a_scanned_block_are_one_node():
    def layer(h, w):
        with jax.named_scope("linear"):
            return jnp.tanh(h @ w), None

    def loss(ws, x):
        with jax.named_scope("stack"):
            return jax.lax.scan(layer, x, ws)[0].sum()

    graph = stage_graph(inspect(jax.grad(loss), f32(5, 8, 8), f32(4, 8)).stage("jaxpr"))
    loops = [node for node in graph.nodes.values() if node.kind == "loop"]
    assert [loop.note for loop in loops] == ["×5 rounds"]
    assert all(loops[0].counts[:2])


def test_unrolled_python_loop_is_detected():
    rows: list[tuple[str, str, str | tuple[str, ...]]] = [("mul", "model/embed", ())]
    for _ in range(6):
        at = len(rows)
        rows += [
            ("sub", "model/norm", str(at - 1)),
            ("dot", "model/attention", str(at)),
            ("add", "model", str(at + 1)),
            ("sub", "model/norm", str(at + 2)),
            ("dot", "model/mlp", str(at + 3)),
            ("add", "model", str(at + 4)),
        ]
    rows.append(("sub", "model/norm", str(len(rows) - 1)))
    graph = stage_graph(made(*rows))
    (model,) = graph.level()
    inside = graph.level(model.key)
    assert [(node.kind, node.repeat) for node in inside] == [("block", 1), ("repeat", 6), ("block", 1)]
    assert [node.name for node in graph.level(inside[1].key)] == ["norm", "attention", "add", "norm #2", "mlp", "add"]
    assert {tuple(end.rpartition("/")[2] for end in wire[:2]) for wire in wires(graph, {model.key})} == {
        ("embed", "round:1:0"),
        ("round:1:0", "norm"),
    }


def test_inputs_of_the_forward_pass_are_named_nodes():
    def used(params, data, batch, unused):
        return params["w"] * data["x"] * batch

    graph = stage_graph(inspect(used, {"w": f32(3)}, {"x": f32(3)}, f32(3), f32(7)).stage("jaxpr"))
    assert [(node.kind, node.name) for node in graph.level()][:2] == [("input", "data['x']"), ("input", "batch")]
    # The last input is unused, and the parameter belongs to the block that computes with it.
    assert {"unused", "params['w']"}.isdisjoint(node.name for node in graph.nodes.values())


def test_a_parameter_of_several_blocks_is_a_node():
    def tied(params, batch):
        with jax.named_scope("embed"):
            batch = batch * params["w"]
        with jax.named_scope("head"):
            return batch + params["w"]

    graph = stage_graph(inspect(tied, {"w": f32(3)}, f32(3)).stage("jaxpr"))
    assert ("input", "params['w']") in {(node.kind, node.name) for node in graph.level()}


def test_the_first_view_opens_named_parts_before_lines_of_a_function():
    def gpt(x, w):
        with jax.named_scope("tokens"):
            x = jnp.tanh(x @ w)
        for at in range(12):
            with jax.named_scope(f"block_{at}"):
                with jax.named_scope("attention"):
                    x = x + jax.nn.softmax(x @ x.T) @ x
                with jax.named_scope("mlp"):
                    x = x + jnp.tanh(x @ w) @ w
        for name in ("norm", "head", "pool", "logits", "scale", "shift"):
            with jax.named_scope(name):
                for _ in range(4):
                    y = x - x.mean()
                    x = y / jnp.sqrt((y * y).mean())
        return x

    graph = stage_graph(inspect(gpt, f32(8, 8), f32(8, 8)).stage("jaxpr"))
    assert graph.first_view(fits=lambda opened, scale: scale <= 0.95) == {"block_0"}
    assert graph.first_view(fits=lambda opened, scale: "block_0" not in opened) == set()
    assert [node.name for node in graph.level("block_0")] == ["attention", "mlp"]


def test_unavailable_stage_has_no_nodes():
    graph = stage_graph(Stage("asm", "", unavailable="no object files on this platform"))
    assert graph.visible() == ()
    assert graph.first_view() == frozenset()
    assert wires(graph) == []


@pytest.mark.parametrize("stage", ["jaxpr", "stablehlo", "hlo"])
def test_all_stages_of_a_program_have_a_graph(stage):
    def step(w, x):
        with jax.named_scope("linear"):
            h = x @ w
        with jax.named_scope("head"):
            return jnp.sum(jnp.tanh(h))

    inspection = inspect(jax.value_and_grad(step), f32(8, 8), f32(4, 8))
    graph = inspection.graph(stage)
    names = [(node.name, node.kind) for node in graph.level()]
    assert [name for name, kind in names if kind == "input"] == ["w", "x"]
    assert [name for name, kind in names if kind == "block"] == ["linear", "head"]
    assert wires(graph)


def test_block_result_excludes_its_parameters():
    def network(params, x):
        with jax.named_scope("head"):
            return x @ params["v"]

    graph = inspect(network, {"v": jnp.zeros((512, 10))}, jnp.zeros((128, 512))).graph()
    assert {node.name: node.shape for node in graph.level()}["head"] == "128×10"


def test_a_failed_trace_has_a_graph_up_to_the_failing_equation():
    def program(x):
        with jax.named_scope("a"):
            y = jnp.tanh(x)
        return y @ jnp.ones((7,))

    graph = inspect(program, jnp.ones((3, 4))).graph("jaxpr")
    *known, failed = graph.level()
    assert "a" in [node.name for node in known]
    assert (failed.kind, failed.name) == ("failure", "TypeError")
    assert "test_stage_graph.py:" in failed.note
    assert [box.problem for box in nested_stage(graph).boxes if box.kind == "failure"] == [0]
    assert scene_svg(stage_layout(graph)).count("\nproblem") == 1
    assert "TypeError  failure" in stage_graph_text(graph)
    assert inspect(program, jnp.ones((3, 4))).graph("hlo").level() == ()


def nested(*steps):
    """Return a program with one block for each step, one after the other."""

    def run(x):
        for at, step in enumerate(steps):
            with jax.named_scope(f"block_{at}"):
                x = step(x)
        return x

    return run


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: jnp.tanh(x) + x, lambda x: (h := jnp.tanh(x)) + h),
        (lambda x: jnp.cumsum(x, 0), lambda x: jnp.cumsum(x, 1)),
        (lambda x: jnp.sin(x) - x, lambda x: x - jnp.sin(x)),
    ],
)
def test_blocks_with_other_wires_or_options_are_not_folded(one, other):
    x = jnp.ones((3, 3))
    for stage in ("jaxpr", "hlo_before"):
        repeats = [node.repeat for node in inspect(nested(one, other), x).graph(stage).level() if node.kind == "block"]
        assert repeats == [1, 1]
        repeats = [node.repeat for node in inspect(nested(one, one), x).graph(stage).level() if node.kind == "block"]
        assert repeats == [2]


def test_nodes_keep_the_dtype_of_symbolic_results():
    def net(x):
        with jax.named_scope("block"):
            return jnp.sin(jnp.concatenate([x, x[:1]]))

    n = jax.export.symbolic_shape("n, 4")
    for dtype in ("float32", "bfloat16"):
        graph = inspect(net, jax.ShapeDtypeStruct(n, dtype)).graph("jaxpr")
        assert graph.nodes["block"].shape.startswith("n + 1×4")
        assert dtypes_of_stage(graph)["block"] == dtype


def test_blocks_that_read_different_places_of_their_own_arrays_differ():
    def chain(starts):
        def program(x):
            for at, start in enumerate(starts):
                with jax.named_scope(f"block_{at}"):
                    x = jnp.concatenate([jnp.sin(x[start : start + 2]), x[:2]])
            return x

        return inspect(program, f32(4)).graph()

    assert [node.repeat for node in chain((0, 0, 0)).level() if node.kind == "block"] == [3]
    assert [node.repeat for node in chain((0, 2, 2)).level() if node.kind == "block"] == [1, 2]


@pytest.mark.parametrize("as_given", [True, False], ids=["parameters", "cast"])
def test_blocks_may_read_different_parts_of_one_array(as_given):
    def program(x, params):
        params = params if as_given else params.astype("bfloat16")
        for at in range(4):
            with jax.named_scope(f"block_{at}"):
                x = jnp.tanh(x @ params[at])
        return x

    graph = inspect(program, f32(2, 3), f32(4, 3, 3)).graph()
    assert [node.repeat for node in graph.level() if node.kind == "block" and node.name == "block_0"] == [4]
