"""Python lines of programs that start at a later stage: read from the locations that JAX recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from jax_programs import spec
from stress import Stress

import mithril_nb as ml
from benchmarks.corpus import corpus
from mithril_nb.inspection import Inspection
from mithril_nb.stages.given.locations import GivenLines
from tests.targets.given_programs import at_every_step

HERE = Path(__file__).name
SHORT = ("MLP, forward", "LeNet, forward", "cond, gradient", "steps in a scan", "LSTM by scan, forward")


@jax.jit
def shared(x: Any) -> Any:
    return jnp.sin(x) * 3


# fmt: off
def net(x: Any, w: Any) -> Any:
    a = jax.nn.relu(x @ w)
    b = jax.nn.relu(a @ w + 1)
    c = jnp.where(
        b > 0, jnp.tanh(b), 0.0
    ) + shared(a)
    return optax.l2_loss(c) + shared(b)
# fmt: on


ARGS = spec(8, 8), spec(8, 8)
FIRST = net.__code__.co_firstlineno


def lowered() -> jax.stages.Lowered:
    return jax.jit(net).lower(*ARGS)


OBJECTS = ("lowered", "compiled", "exported", "StableHLO file", "HLO file", "HLO before", "HLO proto")


def flops_by_line(inspection: Inspection, source: str) -> dict[str, float | None]:
    return {line: figures.flops for line, figures in inspection.cost(source).by_line.items() if figures.flops}


@pytest.mark.parametrize("kind", OBJECTS)
def test_lines_and_costs_are_those_of_the_traced_program(kind: str, tmp_path: Path) -> None:
    traced, found = ml.inspect(net, *ARGS), ml.inspect(at_every_step(net, ARGS)[kind](tmp_path))
    assert found.given is not None
    for source in found.given.sources:
        assert flops_by_line(found, source) == flops_by_line(traced, source)
    lines = {line for one in found.stage(found.given.stages[0]).instructions for line in one.source}
    known = {line for one in traced.stage("stablehlo").instructions for line in one.source}
    assert lines <= known
    assert f"{HERE}:{FIRST + 3}-{FIRST + 5}" in lines
    assert {f"{HERE}:{FIRST + 1}", f"{HERE}:{FIRST + 2}", f"{HERE}:{FIRST + 6}"} <= lines


def test_an_op_of_a_shared_function_has_the_lines_of_all_calls() -> None:
    found = ml.inspect(lowered()).stage("stablehlo").instructions
    (relu,) = [one for one in found if one.opcode == "stablehlo.maximum"]
    assert relu.source == (f"{HERE}:{FIRST + 1}", f"{HERE}:{FIRST + 2}"), "JAX lowers the library's function once"
    (sine,) = [one for one in found if one.opcode == "stablehlo.sine"]
    assert sine.source == (f"{HERE}:{shared.__wrapped__.__code__.co_firstlineno + 2}",), "the user's function"


def test_lines_of_libraries_are_second() -> None:
    found = [one for one in ml.inspect(lowered()).stage("stablehlo").instructions if one.library_source]
    assert {one.source for one in found} == {(f"{HERE}:{FIRST + 6}",)}
    assert {line.rpartition(":")[0] for one in found for line in one.library_source} == {"optax/losses/_regression.py"}


@pytest.mark.parametrize("kind", OBJECTS)
def test_python_pane(kind: str, tmp_path: Path) -> None:
    stage = ml.inspect(at_every_step(net, ARGS)[kind](tmp_path)).stage("python")
    assert stage.unavailable is None
    assert "    a = jax.nn.relu(x @ w)\n" in stage.text
    assert "    return jnp.sin(x) * 3\n" in stage.text
    assert "import" not in stage.text, "only the functions that contributed"
    first = next(one for one in stage.instructions if one.id == f"{HERE}:{FIRST + 1}")
    assert stage.text.splitlines()[first.line - 1] == "    a = jax.nn.relu(x @ w)"
    assert any(id.endswith("/dot_general") for id in first.equations)


def test_python_files_that_are_not_here(tmp_path: Path) -> None:
    text = lowered().as_text(debug_info=True)
    assert ml.inspect(lowered().as_text()).stage("python").unavailable == (
        "this program was given as StableHLO text: it has no Python"
    )
    found = ml.inspect(text.replace(str(Path(__file__)), str(tmp_path / "gone.py")))
    assert found.stage("python").unavailable == "the Python files of this program are not available: gone.py"
    assert f"gone.py:{FIRST + 1}" in found.cost("lowered").by_line


OLDER = """HloModule jit_f, is_scheduled=true

ENTRY %main.3 (x.1: f32[4]) -> f32[4] {
  %x.1 = f32[4]{0} parameter(0), metadata={op_name="x"}
  %sin.1 = f32[4]{0} sine(%x.1), metadata={op_name="jit(f)/sin" source_file="/a/old.py" source_line=7}
  ROOT %neg.1 = f32[4]{0} negate(%sin.1), metadata={op_name="jit(f)/neg" source_file="FILE" source_line=9}
}
"""


def test_source_file_and_line_of_older_hlo() -> None:
    library = "/usr/lib/python3.11/site-packages/optax/x.py"
    found = ml.inspect(OLDER.replace("FILE", library)).stage("hlo").instructions
    assert [(one.id, one.source) for one in found if one.source] == [("sin.1", ("old.py:7",))]
    assert found[2].library_source == ("optax/x.py:9",)


PLACE = '"/a/net.py":3:4'
LOCATIONS = {
    PLACE: (("net.py:3",), ()),
    f"{PLACE} to :9": (("net.py:3",), ()),
    f"{PLACE} to 5:9": (("net.py:3-5",), ()),
    f'"add"({PLACE})': (("net.py:3",), ()),
    f'callsite("f"({PLACE}) at "/a/main.py":8:1)': (("net.py:3",), ()),
    f'callsite("f"("{jax.nn.__file__}":2:1) at "g"({PLACE}))': (("net.py:3",), ("jax/nn/__init__.py:2",)),
    f'fused[{PLACE}, "add"("/a/main.py":8:1 to :3)]': (("net.py:3", "main.py:8"), ()),
    f'fused<"pass">[{PLACE}]': (("net.py:3",), ()),
    f"callsite(#loc1 at {PLACE})": (("net.py:3",), ()),
    "#loc2": (("n\u00f6t.py:6",), ()),
    "#loc3": ((), ()),
    '"add"': ((), ()),
    "unknown": ((), ()),
    'callsite("f"(': ((), ()),
    "fused[": ((), ()),
    '"net.py":x': ((), ()),
}
TABLE = {"#loc1": "unknown", "#loc2": '"mul"("/a/n\\C3\\B6t.py":6:2)', "#loc3": '"x"(#loc3)'}


@pytest.mark.parametrize("location", LOCATIONS)
def test_locations_of_mlir(location: str) -> None:
    assert GivenLines().of_mlir(TABLE)([location]) == LOCATIONS[location]


def test_damaged_tables_are_read_in_bounded_time() -> None:
    table = {f"#loc{n}": f"callsite(#loc{n + 1} at #loc{n + 1})" for n in range(200)} | {"#loc200": PLACE}
    assert GivenLines().of_mlir(table)(["#loc0"]) == (("net.py:3",), ())
    chain = {f"#loc{n}": f'"x"(#loc{n + 1})' for n in range(100_000)}
    assert GivenLines().of_mlir(chain)(["#loc0"]) == ((), ())
    rows = "\n".join(f"{n} {{file_location_id=1 parent_frame_id={n % 3 + 1}}}" for n in range(1, 4))
    place = '1 "/usr/lib/python3.11/site-packages/optax/a.py"'
    text = f"HloModule f\n\nFileNames\n{place}\n\nFileLocations\n1 {{file_name_id=1 line=4}}\n\nStackFrames\n{rows}\n"
    assert GivenLines().of_hlo(text)(["1", "99"]) == ((), ("optax/a.py:4",))


def test_files_of_one_name_have_the_same_labels_in_every_stage() -> None:
    lines = GivenLines()
    assert lines.of_mlir({})(['"/a/net.py":3']) == (("net.py:3",), ())
    assert lines.of_hlo("HloModule f")(['"/b/net.py":4', '"/a/net.py":5']) == (("b/net.py:4", "net.py:5"), ())
    assert lines.files == {"net.py": "/a/net.py", "b/net.py": "/b/net.py"}


def test_lines_of_the_corpus(stress: Stress) -> None:
    """Nearly all of XLA's FLOPs have the same line as in the traced program."""
    names = SHORT[: stress.size(short=2, long=len(SHORT))]
    least = 1.0
    for name in names:
        fn, args = corpus()[name]()
        traced, found = ml.inspect(fn, *args), ml.inspect((fn if hasattr(fn, "lower") else jax.jit(fn)).lower(*args))
        for source in ("lowered", "compiled"):
            wanted, by_line = flops_by_line(traced, source), flops_by_line(found, source)
            assert "" not in by_line
            equal = sum(min(flops or 0.0, by_line.get(line) or 0.0) for line, flops in wanted.items())
            least = min(least, equal / (traced.cost(source).total.flops or 1.0))
    stress.report(programs=len(names), least=round(least, 3))
    assert least >= 0.9


def test_labels_of_files_do_not_depend_on_the_stage_that_is_read_first(tmp_path: Path) -> None:
    names: list[dict[str, Any]] = []
    codes = {"a": "def gone(x):\n    return x.reshape(3, 1).reshape(3)", "b": "def kept(x):\n    return jnp.sin(x)"}
    for folder, code in codes.items():
        (tmp_path / folder).mkdir()
        file = tmp_path / folder / "net.py"
        file.write_text(code)
        names.append({"jnp": jnp})
        exec(compile(code, str(file), "exec"), names[-1])
    gone, kept = names[0]["gone"], names[1]["kept"]
    lowered = jax.jit(lambda x: kept(gone(x))).lower(jnp.ones(3))
    found = []
    for order in (("stablehlo", "hlo"), ("hlo", "stablehlo")):
        inspection = ml.inspect(lowered)
        sources = {stage: {one.source for one in inspection.stage(stage).instructions} for stage in order}
        found.append(sources)
    assert found[0] == found[1]
    assert any("b/net.py:2" in source for source in found[0]["hlo"])


def test_copies_of_xla_have_the_line_that_they_serve() -> None:
    def turn(state: tuple[Any, ...]) -> tuple[Any, ...]:
        at, x, y = state
        return at + 1, y, x.at[at].set(jnp.sin(x[at]))

    def swapped(x: Any) -> Any:
        return jax.lax.while_loop(lambda state: state[0] < 5, turn, (0, x, x + 1))

    for made in (jax.jit(swapped).lower(jnp.ones(8)), jax.jit(swapped).lower(jnp.ones(8)).compile()):
        copies = [one for one in ml.inspect(made).stage("hlo").instructions if one.opcode == "copy"]
        assert copies
        assert {one.source[0].partition(":")[0] for one in copies} == {"test_given_lines.py"}
