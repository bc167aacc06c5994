"""A program compiles without writing its passes down; who asks for them has the same ones, early or late."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from fresh import run_fresh
from jax_programs import spec

from benchmarks.corpus import corpus
from mithril_nb.cost.hlo.instruction_costs import hlo_costs
from mithril_nb.errors import StageUnavailableError
from mithril_nb.inspection import Inspection, inspect
from mithril_nb.measure import profile
from mithril_nb.stages.xla.early_read import fingerprint
from mithril_nb.stages.xla.options import LEAST_EFFORT, NO_MACHINE_CODE
from tests.stress import is_long


def program(x, w):
    with jax.named_scope("net"):
        return jax.grad(lambda x: jnp.tanh(x @ w @ w).sum())(x)


def look() -> Inspection:
    return inspect(program, spec(8, 8), spec(8, 8))


def told(inspection: Inspection) -> list[object]:
    return [(one.name, one.pipeline, one.before, one.after) for one in inspection.passes]


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How often XLA was asked to compile, and what it was to write down."""
    found: list[str] = []
    compile = jax.stages.Lowered.compile

    def told(self, compiler_options=None, **options):
        asked = compiler_options or {}
        what = "passes" if "xla_dump_hlo_pass_re" in asked else "files" if "xla_dump_to" in asked else "nothing"
        what += ", least effort" if "xla_backend_optimization_level" in asked else ""
        try:
            compiled = compile(self, compiler_options, **options)
        except Exception as error:
            if "No such compile option" not in str(error):  # it did not start
                found.append(what)
            raise
        found.append(what)
        return compiled

    monkeypatch.setattr(jax.stages.Lowered, "compile", told)
    return found


def test_passes_asked_for_late_are_those_asked_for_first(turns: list[str]) -> None:
    first, late = look(), look()
    assert told(first)
    lines = late.stage("hlo").instructions
    assert turns == ["passes, least effort", "nothing, least effort"]
    assert told(late) == told(first)
    assert [late.who_changed("hlo", one.id).appeared for one in lines] == [
        late.passes[made.number] if (made := first.who_changed("hlo", one.id).appeared) else None for one in lines
    ]
    assert lines == first.stage("hlo").instructions
    assert turns == ["passes, least effort", "nothing, least effort", "passes"]


def test_all_costs_and_the_memory_after_them_take_one_turn(turns: list[str]) -> None:
    inspection, alone = look(), look()
    assert inspection.costs()["compiled"] == alone.cost("compiled")
    assert inspection.memory.peak_bytes
    assert turns == ["files, least effort", "nothing, least effort"]


@pytest.fixture
def held_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Has XLA, when its passes are done and all is written down, wait with its machine code for this event."""
    compile, may_go_on = jax.stages.Lowered.compile, threading.Event()

    def slowly(self, compiler_options=None, **options):
        compiled = compile(self, compiler_options, **options)
        assert may_go_on.wait(60)
        return compiled

    monkeypatch.setattr(jax.stages.Lowered, "compile", slowly)
    yield may_go_on
    may_go_on.set()


def test_who_has_it_compiled_beside_goes_on_while_xla_is_at_work(held_up: threading.Event) -> None:
    inspection = look()
    inspection.begin_compiling()
    inspection.begin_compiling()
    assert inspection.cost("lowered").total.flops
    ahead = inspection.hlo_ahead()
    assert not inspection.is_optimized
    held_up.set()
    assert ahead is not None
    assert inspection.stage("hlo").instructions is ahead.instructions


def test_costs_are_counted_before_machine_code_is_made(held_up: threading.Event, monkeypatch) -> None:
    counted: list[str] = []

    def count(stage, *args):
        counted.append(stage.name)
        if stage.name == "hlo":
            held_up.set()  # not before: who would wait for the end here would wait for ever
        return hlo_costs(stage, *args)

    monkeypatch.setattr("mithril_nb.cost.counting.hlo_costs", count)
    inspection = look()
    first = inspection.costs()
    assert counted == ["hlo_before", "hlo"]
    assert inspection.costs()["compiled"] is first["compiled"]
    assert inspection.kernels
    assert inspection.costs("compiled")["compiled"] is first["compiled"]
    assert counted == ["hlo_before", "hlo"]


def test_who_has_a_program_compiled_beside_that_is_refused_is_told_when_asking_for_it() -> None:
    inspection = inspect(lambda x: x @ x, spec(3, 4))
    inspection.begin_compiling()
    with pytest.raises(TypeError, match="contracting dimensions"):
        _ = inspection.optimized


def test_what_the_persistent_cache_holds_of_the_same_program_is_not_taken_for_ours(tmp_path: Path) -> None:
    """JAX takes programs for the same that differ in names alone: in the cache ours would have none."""
    code = f"""
import jax, jax.numpy as jnp
from mithril_nb.inspection import inspect
jax.config.update("jax_compilation_cache_dir", {str(tmp_path / "cache")!r})
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

def net(x):
    with jax.named_scope("net"):
        return jnp.tanh(x) @ x

x = jnp.ones((3, 3))
jax.jit(net)(x)
cost = inspect(net, x).cost("compiled")
print([*cost.by_block], cost.unattributed.flops)
"""
    assert run_fresh(code).strip() == "['net'] 0"


def test_kernels_and_memory_are_written_down_in_one_turn_if_kernels_are_asked_for_first(turns: list[str]) -> None:
    inspection, late = look(), look()
    assert inspection.stage("asm").text
    assert inspection.kernels
    assert inspection.memory.peak_bytes
    assert inspection.cost("compiled").total.flops
    assert turns == ["files"]
    assert late.cost("compiled") == inspection.cost("compiled")
    assert late.memory == inspection.memory
    assert late.stage("asm").text == inspection.stage("asm").text
    assert turns == ["files", "nothing, least effort", "files, least effort", "files"]
    assert told(inspection) == told(late)
    assert turns[4:] == ["passes", "passes"]


def test_who_runs_a_program_first_is_told_of_that_one(turns: list[str]) -> None:
    inspection = look()
    x = jnp.ones((8, 8))
    assert inspection.compiled(x, x).shape == (8, 8)
    assert inspection.cost("compiled").total.flops
    assert turns == ["nothing"]
    assert set(inspection.elapsed) == {"trace", "lower", "compile"}
    assert inspection.memory.peak_bytes
    assert turns == ["nothing", "files, least effort"]


def test_machine_code_of_another_program_is_not_taken_for_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    inspection = look()
    assert inspection.stage("hlo").text
    numbers = iter(range(9))
    monkeypatch.setattr("mithril_nb.stages.xla.compilation.fingerprint", lambda text: bytes([next(numbers)]))
    assert "XLA made another program when it compiled this one again" in (inspection.stage("asm").unavailable or "")
    with pytest.raises(StageUnavailableError, match="XLA made another program when it compiled this one again"):
        profile(inspection)


@pytest.mark.parametrize(
    "name", [name for name in corpus() if not name.startswith("sharded")][:: 1 if is_long() else 3]
)
def test_with_the_least_effort_xla_makes_the_same_module_and_the_same_plan_of_memory(name: str) -> None:
    fn, args = corpus()[name]()
    lowered = jax.jit(fn).lower(*args)
    full, least = (lowered.compile(compiler_options=dict(options)) for options in ({}, LEAST_EFFORT))
    assert fingerprint(least.as_text() or "") == fingerprint(full.as_text() or "")
    assert least.cost_analysis() == full.cost_analysis()
    assert told_of_memory(least) == told_of_memory(full)


def told_of_memory(compiled: jax.stages.Compiled) -> dict[str, int]:
    found = compiled.memory_analysis()
    return {name: getattr(found, name) for name in dir(found) if name.endswith("_in_bytes")}


def test_who_says_so_has_everything_written_down_in_one_turn(turns: list[str]) -> None:
    inspection = look()
    inspection.want(passes=True)
    assert inspection.stage("hlo").text
    assert inspection.passes
    assert inspection.live_ranges.sequence
    assert look().to_dict()["passes"]
    assert look().to_dict("hlo")["passes"]
    assert turns == ["passes", "passes", "passes, least effort"]


def test_gradients_of_convolutions_have_their_names_from_the_passes_at_once(turns: list[str]) -> None:
    def loss(kernel, image):
        with jax.named_scope("conv"):
            return jnp.tanh(jax.lax.conv(image, kernel, (1, 1), "SAME")).sum()

    inspection = inspect(jax.grad(loss), spec(4, 3, 3, 3), spec(2, 3, 8, 8))
    assert inspection.optimized is not None
    assert turns == ["passes, least effort"]


def test_another_program_the_second_time_has_no_passes_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    inspection = look()
    assert inspection.compiled is not None
    numbers = iter(range(9))
    monkeypatch.setattr("mithril_nb.stages.xla.compilation.fingerprint", lambda text: bytes([next(numbers)]))
    with pytest.raises(StageUnavailableError) as caught:
        _ = inspection.passes
    assert str(caught.value) == (
        "program 'program' has no passes.\n"
        "    OtherProgramError  XLA made another program when it compiled this one again; "
        "ask for this of a new inspection before anything else\n"
        '    Try: inspection.stage("hlo")  # shows whether it compiles'
    )


@pytest.mark.parametrize("part", ["passes", "kernels", "buffers", "live_ranges"])
@pytest.mark.parametrize("first", [True, False])
def test_who_has_xla_write_elsewhere_is_told_so(tmp_path: Path, part: str, first: bool, turns: list[str]) -> None:
    inspection = inspect(program, spec(8, 8), spec(8, 8), compiler_options={"xla_dump_to": str(tmp_path)})
    if not first:
        assert inspection.cost("compiled").total.flops
    with pytest.raises(StageUnavailableError, match="leave 'xla_dump_to' out of the compiler options"):
        getattr(inspection, part)
    assert turns == ["files"], "once, in full, and with no wish of ours"
    assert not list(tmp_path.glob("*.before_pipeline-start.txt"))


@pytest.mark.parametrize("part", ["passes", "kernels", "buffers"])
@pytest.mark.parametrize("first", [True, False])
def test_where_there_is_no_place_for_the_files_that_is_said(
    tmp_path: Path, part: str, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    inspection = look()
    if not first:
        assert inspection.cost("compiled").total.flops
    with pytest.raises(StageUnavailableError, match="start Python with TMPDIR set to a folder that can be written"):
        getattr(inspection, part)


def test_who_asks_for_the_module_while_machine_code_is_made_waits_for_that(turns: list[str]) -> None:
    inspection = look()
    _ = inspection.lowered
    compilation = inspection._pipeline.compilation
    has_begun, may_go_on = threading.Event(), threading.Event()
    turn = compilation._turn

    def slowly(*args, **options):
        has_begun.set()
        assert may_go_on.wait(30)
        return turn(*args, **options)

    compilation._turn = slowly
    threads = [
        threading.Thread(target=lambda: inspection.compiled),
        threading.Thread(target=lambda: inspection.stage("hlo")),
    ]
    threads[0].start()
    assert has_begun.wait(30)
    threads[1].start()
    may_go_on.set()
    for thread in threads:
        thread.join(60)
    assert turns == ["nothing"]
    assert inspection.optimized is inspection.compiled


def test_two_turns_at_once_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    inspection = look()
    _ = inspection.lowered
    numbers = iter(range(9))
    monkeypatch.setattr("mithril_nb.stages.xla.compilation.fingerprint", lambda text: bytes([next(numbers)]))
    compilation = inspection._pipeline.compilation
    has_begun, may_go_on = threading.Event(), threading.Event()
    turn = compilation._turn

    def least_slowly(effort, *args, **options):
        if effort:
            has_begun.set()
            assert may_go_on.wait(30)
        return turn(effort, *args, **options)

    compilation._turn = least_slowly
    thread = threading.Thread(target=lambda: inspection.stage("hlo"))
    thread.start()
    assert has_begun.wait(30)
    threading.Timer(0.5, may_go_on.set).start()
    with pytest.raises(LookupError, match="XLA made another program"):
        _ = inspection.compiled
    thread.join(60)


def test_who_has_xla_write_by_its_flags_has_the_program_in_full(
    turns: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=somewhere")  # XLA has read it already, and writes nothing now
    assert look().cost("compiled").total.flops
    assert look().costs()["compiled"].total.flops
    assert turns == ["nothing", "nothing"]


def test_passes_are_written_where_the_compiler_goes_on_to_machine_code(
    monkeypatch: pytest.MonkeyPatch, turns: list[str]
) -> None:
    """As one does that does not know the option which has it stop."""
    monkeypatch.setattr("mithril_nb.stages.xla.options._unknown", {*NO_MACHINE_CODE})
    inspection = look()
    assert inspection.stage("hlo").text
    assert told(inspection) == told(look())
    assert turns == ["nothing, least effort", "passes", "passes, least effort"]


def test_who_cannot_compile_has_no_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    inspection = look()
    assert inspection.stage("hlo").text

    def fail(self, compiler_options=None):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(jax.stages.Lowered, "compile", fail)
    with pytest.raises(StageUnavailableError, match="out of memory"):
        _ = inspection.passes
