"""Attribution against an oracle: each layer has its own odd width, so shapes identify the layer of a line."""

from __future__ import annotations

import re
from itertools import pairwise

import jax
import optax
import pytest
from jax_programs import linear_params, mlp, spec, train_step

from benchmarks.corpus.own_widths import by_width, own_widths
from mithril_nb.inspection import Inspection, inspect

BATCH = 3
WIDTHS = (5, 7, 11, 13, 17)
LAYERS = {frozenset(pair): f"linear_{index}" for index, pair in enumerate(pairwise(WIDTHS))}
STEP = train_step(mlp(WIDTHS), linear_params(WIDTHS), [spec(BATCH, WIDTHS[0])], spec(BATCH, WIDTHS[-1]))


def backward() -> tuple:
    forward = mlp(WIDTHS)

    def loss(params, x):
        out = forward(params, x)
        with jax.named_scope("role:loss"):
            return (out**2).mean()

    return jax.value_and_grad(loss), (linear_params(WIDTHS), spec(BATCH, WIDTHS[0]))


PROGRAMS = {
    "forward": (mlp(WIDTHS), (linear_params(WIDTHS), spec(BATCH, WIDTHS[0]))),
    "forward and backward": backward(),
    "train step": STEP,
    "clipped train step": train_step(
        mlp(WIDTHS), linear_params(WIDTHS), [spec(BATCH, WIDTHS[0])], spec(BATCH, WIDTHS[-1]),
        optimizer=optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3)),
    ),
}  # fmt: skip


@pytest.fixture(params=PROGRAMS, scope="module")
def inspection(request: pytest.FixtureRequest) -> Inspection:
    fn, args = PROGRAMS[request.param]
    return inspect(fn, *args, name=request.param)


def shapes_by_name(text: str) -> dict[str, set[int]]:
    """Return the sizes in the result of each HLO instruction, without the parser under test."""
    return {
        name: {int(size) for size in sizes.split(",") if size}
        for name, sizes in re.findall(r"%([\w.\-]+) = \w+\[([\d,]*)\]", text)
    }


def dots(inspection: Inspection, stage: str) -> list[tuple]:
    """Return every matrix product with all sizes of its operands and result."""
    made = inspection.stage(stage)
    lines = made.text.splitlines()
    found = []
    for instruction in made.instructions:
        if instruction.opcode not in ("dot_general", "stablehlo.dot_general", "dot"):
            continue
        line = lines[instruction.line - 1]
        if stage == "hlo":
            shapes = shapes_by_name(made.text)
            sizes = set().union(*(shapes[name] for name in re.findall(r"%([\w.\-]+)", line)))
        elif stage == "stablehlo":
            sizes = {int(size) for shape in re.findall(r"tensor<([\dx]+)x\w+>", line) for size in shape.split("x")}
        else:
            equation = next(one for one in inspection.equations if one.id == instruction.id)
            sizes = {int(size) for one in (*equation.inputs, *equation.outputs) for size in one.shape}
        found.append((instruction, frozenset(sizes - {BATCH}), line))
    return found


@pytest.mark.parametrize("stage", ["jaxpr", "stablehlo", "hlo"])
def test_products_belong_to_the_layer_of_their_widths(inspection: Inspection, stage: str) -> None:
    found = dots(inspection, stage)
    layers = len(WIDTHS) - 1
    expected = layers if inspection.name == "forward" else layers + layers + (layers - 1)
    assert len(found) == expected
    for instruction, sizes, line in found:
        assert instruction.blocks == {LAYERS[sizes]: 1.0}, line
        assert instruction.origin == "tagged", line


@pytest.mark.parametrize("stage", ["jaxpr", "stablehlo", "hlo"])
def test_products_have_their_roles(inspection: Inspection, stage: str) -> None:
    roles = [instruction.role for instruction, _, _ in dots(inspection, stage)]
    layers = len(WIDTHS) - 1
    assert roles.count("forward") == layers
    assert roles.count("backward") == (0 if inspection.name == "forward" else 2 * layers - 1)


@pytest.mark.parametrize("stage", ["stablehlo", "hlo"])
def test_linked_products_have_the_same_widths(inspection: Inspection, stage: str) -> None:
    by_id = {instruction.id: sizes for instruction, sizes, _ in dots(inspection, stage)}
    links = inspection.links("jaxpr", stage)
    for instruction, sizes, line in dots(inspection, "jaxpr"):
        linked = {by_id[id] for id in links[instruction.id] if id in by_id}
        assert linked == {sizes}, line


def owners_of(sizes: set[int]) -> set[str]:
    """Return the blocks that may contain a line with these sizes: adjacent layers share a width."""
    widths = sizes & set(WIDTHS)
    if len(widths) == 2:
        return {LAYERS[frozenset(widths)]}
    (width,) = widths
    place = WIDTHS.index(width)
    return {f"linear_{place - 1}", f"act_{place - 1}", f"linear_{place}", "(loss)" if width == WIDTHS[-1] else ""}


def test_hlo_lines_belong_to_blocks_of_their_widths(inspection: Inspection) -> None:
    text = inspection.stage("hlo").text
    shapes = shapes_by_name(text)
    checked = 0
    for instruction in inspection.stage("hlo").instructions:
        sizes = shapes.get(instruction.id, set())
        known = sizes & set(WIDTHS)
        if not known or instruction.opcode in ("fusion", "call", "broadcast", "parameter"):
            continue
        assert set(instruction.blocks) <= owners_of(sizes) | {"(optimizer)"}, text.splitlines()[instruction.line - 1]
        checked += 1
    assert checked >= 10


def test_stablehlo_lines_belong_to_blocks_of_their_widths(inspection: Inspection) -> None:
    lines = inspection.stage("stablehlo").text.splitlines()
    checked = 0
    for instruction in inspection.stage("stablehlo").instructions:
        if instruction.opcode.endswith(("return", "func", "constant", "broadcast_in_dim")):
            continue
        line = lines[instruction.line - 1]
        result = re.findall(r"tensor<([\dx]+)x\w+>", line)
        sizes = {int(size) for size in result[-1].split("x")} if result else set()
        if sizes & set(WIDTHS):
            assert set(instruction.blocks) <= owners_of(sizes), line
            checked += 1
    assert checked >= 10


def test_updates_after_a_global_norm_belong_to_their_layer() -> None:
    fn, args = PROGRAMS["clipped train step"]
    updates = [one for one in inspect(fn, *args).equations if one.role == "update"]
    matrices = [one for one in updates if len(one.outputs[0].shape) == 2]
    assert len(matrices) > 4 * 10
    for equation in matrices:
        assert equation.block == LAYERS[frozenset(equation.outputs[0].shape)], equation


OWN_WIDTHS = own_widths()


@pytest.mark.parametrize("name", OWN_WIDTHS)
def test_lines_belong_to_the_block_of_their_width(name: str) -> None:
    own = OWN_WIDTHS[name]()
    # Compile one of them too: XLA's inliner gives unnamed instructions the name of the function around them.
    compiled = ("hlo",) if name == "blocks of Flax nnx, hand-written train step" else ()
    for stage in ("jaxpr", "stablehlo", *compiled):
        found = by_width(own.stage(stage).instructions)
        assert len(found) > 250
        assert [one for one, is_right in found if not is_right] == []
