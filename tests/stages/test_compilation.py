"""A program compiles once, and its files are the same if they are requested or read early or late."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import pytest
from jax_programs import spec

from benchmarks.corpus import corpus
from mithril_nb.analysis.measure import profile
from mithril_nb.cost.hlo.instruction_costs import hlo_costs
from mithril_nb.errors import StageUnavailableError
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.stages.hlo.text import fingerprint
from mithril_nb.stages.xla.compilation import EarlyRead
from mithril_nb.stages.xla.dump import LEAST_EFFORT, NO_MACHINE_CODE
from mithril_nb.stages.xla.passes import files_of_passes
from tests.stress import is_long


def program(x, w):
    with jax.named_scope("net"):
        return jax.grad(lambda x: jnp.tanh(x @ w @ w).sum())(x)


def look():
    return inspect(program, spec(8, 8), spec(8, 8))


def figures_of(inspection) -> list[object]:
    return [(one.name, one.pipeline, one.before, one.after) for one in inspection.passes]


@pytest.fixture
def compilations(monkeypatch):
    """Record each compilation by XLA, and the files it was to write."""
    found: list[str] = []
    compile = jax.stages.Lowered.compile

    def recorded(self, compiler_options=None, **options):
        given = compiler_options or {}
        what = "passes" if "xla_dump_hlo_pass_re" in given else "files" if "xla_dump_to" in given else "nothing"
        what += ", least effort" if "xla_backend_optimization_level" in given else ""
        try:
            compiled = compile(self, compiler_options, **options)
        except Exception as error:
            if "No such compile option" not in str(error):  # it did not start
                found.append(what)
            raise
        found.append(what)
        return compiled

    monkeypatch.setattr(jax.stages.Lowered, "compile", recorded)
    return found


@pytest.fixture
def all_modules_differ(monkeypatch) -> Callable[[], None]:
    """Return a function after which no two modules have the same fingerprint."""
    numbers = iter(range(9))
    return lambda: monkeypatch.setattr(
        "mithril_nb.stages.xla.compilation.fingerprint", lambda text: bytes([next(numbers)])
    )


@pytest.fixture
def counted(monkeypatch, request):
    """Record the names of the stages of HLO whose costs are counted."""
    found: list[str] = []
    held_up = request.getfixturevalue("held_up") if "held_up" in request.fixturenames else threading.Event()

    def count(stage, *args):
        found.append(stage.name)
        if stage.name == "hlo":
            held_up.set()  # only now: waiting for the end here would never return
        return hlo_costs(stage, *args)

    monkeypatch.setattr("mithril_nb.cost.counting.hlo_costs", count)
    return found


def test_late_passes_equal_early_passes(compilations):
    first, late = look(), look()
    assert figures_of(first)
    lines = late.stage("hlo").instructions
    assert compilations == ["passes, least effort", "nothing, least effort"]
    assert figures_of(late) == figures_of(first)
    assert [late.who_changed("hlo", one.id).appeared for one in lines] == [
        late.passes[made.number] if (made := first.who_changed("hlo", one.id).appeared) else None for one in lines
    ]
    assert lines == first.stage("hlo").instructions
    assert compilations == ["passes, least effort", "nothing, least effort", "passes"]


def test_costs_and_memory_need_one_compilation(compilations):
    inspection, alone = look(), look()
    assert inspection.costs()["compiled"] == alone.cost("compiled")
    assert inspection.memory.peak_bytes
    assert compilations == ["files, least effort", "nothing, least effort"]


@pytest.fixture
def held_up(monkeypatch) -> Iterator[threading.Event]:
    """Make XLA wait for this event after its passes, before code generation."""
    compile, may_go_on = jax.stages.Lowered.compile, threading.Event()

    def slowly(self, compiler_options=None, **options):
        compiled = compile(self, compiler_options, **options)
        assert may_go_on.wait(60)
        return compiled

    monkeypatch.setattr(jax.stages.Lowered, "compile", slowly)
    yield may_go_on
    may_go_on.set()


def test_background_compilation_does_not_block(held_up):
    inspection = look()
    inspection.begin_compiling()
    inspection.begin_compiling()
    assert inspection.cost("lowered").total.flops
    ahead = inspection.hlo_ahead()
    assert not inspection.is_optimized
    held_up.set()
    assert ahead is not None
    assert inspection.stage("hlo").instructions is ahead.instructions


def test_costs_are_counted_before_code_generation(held_up, counted):
    inspection = look()
    first = inspection.costs()
    assert counted == ["hlo_before", "hlo"]
    assert inspection.costs()["compiled"] is first["compiled"]
    assert inspection.kernels
    assert inspection.costs("compiled")["compiled"] is first["compiled"]
    assert counted == ["hlo_before", "hlo"]


def test_background_error_is_raised_on_use():
    inspection = inspect(lambda x: x @ x, spec(3, 4))
    inspection.begin_compiling()
    with pytest.raises(TypeError, match="contracting dimensions"):
        _ = inspection.optimized


def test_kernels_and_memory_need_one_compilation(compilations):
    inspection, late = look(), look()
    assert inspection.stage("asm").text
    assert inspection.kernels
    assert inspection.memory.peak_bytes
    assert inspection.cost("compiled").total.flops
    assert compilations == ["files"]
    assert late.cost("compiled") == inspection.cost("compiled")
    assert late.memory == inspection.memory
    assert late.stage("asm").text == inspection.stage("asm").text
    assert compilations == ["files", "nothing, least effort", "files, least effort", "files"]
    assert figures_of(inspection) == figures_of(late)
    assert compilations[4:] == ["passes", "passes"]


def test_figures_belong_to_the_program_that_ran(compilations):
    inspection = look()
    x = jnp.ones((8, 8))
    assert inspection.compiled(x, x).shape == (8, 8)
    assert inspection.cost("compiled").total.flops
    assert compilations == ["nothing"]
    assert set(inspection.elapsed) == {"trace", "lower", "compile"}
    assert inspection.memory.peak_bytes
    assert compilations == ["nothing", "files, least effort"]


def test_machine_code_of_another_program_is_rejected(all_modules_differ):
    inspection = look()
    assert inspection.stage("hlo").text
    all_modules_differ()
    assert "XLA compiled the program twice" in (inspection.stage("asm").unavailable or "")
    with pytest.raises(StageUnavailableError, match="XLA compiled the program twice"):
        profile(inspection)


@pytest.mark.parametrize(
    "name", [name for name in corpus() if not name.startswith("sharded")][:: 1 if is_long() else 6]
)
def test_least_effort_keeps_module_and_memory_plan(name):
    jax.config.update("jax_disable_most_optimizations", False)  # else least effort is compared with little effort
    fn, args = corpus()[name]()
    lowered = jax.jit(fn).lower(*args)
    full, least = (lowered.compile(compiler_options=dict(options)) for options in ({}, LEAST_EFFORT))
    assert fingerprint(least.as_text() or "") == fingerprint(full.as_text() or "")
    assert least.cost_analysis() == full.cost_analysis()
    assert memory_figures(least) == memory_figures(full)


def memory_figures(compiled: jax.stages.Compiled) -> dict[str, int]:
    found = compiled.memory_analysis()
    return {name: getattr(found, name) for name in dir(found) if name.endswith("_in_bytes")}


def test_requested_files_need_one_compilation(compilations):
    inspection = look()
    inspection.want(passes=True)
    assert inspection.stage("hlo").text
    assert inspection.passes
    assert inspection.live_ranges.sequence
    assert look().to_dict()["passes"]
    assert look().to_dict("hlo")["passes"]
    assert compilations == ["passes", "passes", "passes, least effort"]


def test_convolution_gradients_get_names_from_the_passes(compilations):
    def loss(kernel, image):
        with jax.named_scope("conv"):
            return jnp.tanh(jax.lax.conv(image, kernel, (1, 1), "SAME")).sum()

    inspection = inspect(jax.grad(loss), spec(4, 3, 3, 3), spec(2, 3, 8, 8))
    assert inspection.optimized is not None
    assert compilations == ["passes, least effort"]


def test_passes_of_a_different_program_are_rejected(all_modules_differ):
    inspection = look()
    assert inspection.compiled is not None
    all_modules_differ()
    with pytest.raises(StageUnavailableError, match="XLA compiled the program twice, to two different modules"):
        _ = inspection.passes


@pytest.mark.parametrize("part", ["passes", "kernels", "buffers", "live_ranges"])
@pytest.mark.parametrize("first", [True, False])
def test_user_dump_folder_is_named_in_the_error(tmp_path, part, first, compilations):
    inspection = inspect(program, spec(8, 8), spec(8, 8), compiler_options={"xla_dump_to": str(tmp_path)})
    if not first:
        assert inspection.cost("compiled").total.flops
    with pytest.raises(StageUnavailableError, match="remove 'xla_dump_to' from the compiler options"):
        getattr(inspection, part)
    assert compilations == ["files"], "once, in full, and without our options"
    assert not list(tmp_path.glob("*.before_pipeline-start.txt"))


@pytest.mark.parametrize("part", ["passes", "kernels", "buffers"])
@pytest.mark.parametrize("first", [True, False])
def test_missing_dump_folder_is_reported(tmp_path, part, first, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    inspection = look()
    if not first:
        assert inspection.cost("compiled").total.flops
    with pytest.raises(StageUnavailableError, match="set TMPDIR to a writable folder before you start Python"):
        getattr(inspection, part)


def test_module_waits_for_a_running_compilation(compilations):
    inspection = look()
    _ = inspection.lowered
    compilation = inspection._pipeline.compilation
    has_begun, may_go_on = threading.Event(), threading.Event()
    run = compilation._run

    def slowly(*args, **options):
        has_begun.set()
        assert may_go_on.wait(30)
        return run(*args, **options)

    compilation._run = slowly
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
    assert compilations == ["nothing"]
    assert inspection.optimized is inspection.compiled


def test_concurrent_compilations_are_compared(all_modules_differ):
    inspection = look()
    _ = inspection.lowered
    all_modules_differ()
    compilation = inspection._pipeline.compilation
    has_begun, may_go_on = threading.Event(), threading.Event()
    run = compilation._run

    def least_slowly(effort, *args, **options):
        if effort:
            has_begun.set()
            assert may_go_on.wait(30)
        return run(effort, *args, **options)

    compilation._run = least_slowly
    thread = threading.Thread(target=lambda: inspection.stage("hlo"))
    thread.start()
    assert has_begun.wait(30)
    threading.Timer(0.5, may_go_on.set).start()
    with pytest.raises(LookupError, match="XLA compiled the program twice"):
        _ = inspection.compiled
    thread.join(60)


def test_dump_flags_compile_the_program_in_full(compilations, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=somewhere")  # XLA has read it already, and writes nothing now
    assert look().cost("compiled").total.flops
    assert look().costs()["compiled"].total.flops
    assert compilations == ["nothing", "nothing"]


def test_passes_are_read_if_code_generation_continues(monkeypatch, compilations):
    """A compiler that does not support the option to stop early continues."""
    monkeypatch.setattr("mithril_nb.stages.xla.dump._unknown", {*NO_MACHINE_CODE})
    inspection = look()
    assert inspection.stage("hlo").text
    assert figures_of(inspection) == figures_of(look())
    assert compilations == ["nothing, least effort", "passes", "passes, least effort"]


def test_program_that_does_not_compile_has_no_passes(monkeypatch):
    inspection = look()
    assert inspection.stage("hlo").text

    def fail(self, compiler_options=None):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(jax.stages.Lowered, "compile", fail)
    with pytest.raises(StageUnavailableError, match="out of memory"):
        _ = inspection.passes


@pytest.fixture
def reading_at_once(monkeypatch):
    """Read even a small program early: make XLA wait for the reader."""
    monkeypatch.setattr(
        EarlyRead, "__exit__", lambda self, *_: self._over.set() if self._thread.join(60) is None else None
    )


def everything(inspection) -> list[object]:
    histories = inspection._pipeline.compilation.histories.get()
    hlo = inspection.stage("hlo")
    return [
        hlo.text, hlo.instructions, [(one.name, one.pipeline, one.after) for one in inspection.passes],
        {name: one.number for name, one in histories.appeared.items()},
        {name: one.number for name, one in histories.vanished.items()},
    ]  # fmt: skip


@pytest.fixture
def afterwards(monkeypatch) -> list[object]:
    with monkeypatch.context() as patch:
        patch.setattr(EarlyRead, "_run", lambda self: None)
        inspection = look()
        found = everything(inspection)
        assert inspection._pipeline.compilation._early_module() is None
    return found


@pytest.mark.usefixtures("reading_at_once")
@pytest.mark.parametrize("changes_later", [False, True])
def test_early_read_equals_late_read(afterwards, all_modules_differ, changes_later):
    if changes_later:
        all_modules_differ()
    inspection = look()
    assert everything(inspection) == afterwards
    early = inspection._pipeline.compilation._early_module()
    assert early is not None
    assert (inspection.stage("hlo").instructions is early.hlo[1]) == (not changes_later)
    assert inspection.passes is early.passes


@pytest.mark.usefixtures("reading_at_once")
@pytest.mark.parametrize("changes_later", [False, True])
def test_costs_are_recounted_if_the_module_changes_later(changes_later, all_modules_differ, counted):
    if changes_later:
        all_modules_differ()
    found = look().costs()
    assert counted == ["hlo_before", "hlo", *(["hlo"] if changes_later else [])]
    assert found["compiled"] == look().cost("compiled")


@pytest.mark.usefixtures("reading_at_once")
def test_error_of_an_early_read_is_raised_on_use(monkeypatch):
    def fail(*_):
        raise ValueError("text of a newer XLA")

    monkeypatch.setattr("mithril_nb.stages.pipeline.read_hlo", fail)
    inspection = look()
    assert inspection.compiled is not None
    assert "text of a newer XLA" in str(inspection.stage("hlo").unavailable)


def test_failed_compilation_leaves_no_thread():
    with pytest.raises(RuntimeError, match="out of memory"), EarlyRead(lambda: None) as ahead:
        raise RuntimeError("out of memory")
    deadline = time.monotonic() + 10
    while any("early read" in thread.name for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert ahead.get() is None


def test_fingerprints_of_different_modules_differ():
    text = '  %a = f32[] add(%b, %c), backend_config={"x":{"y":1},"z":2}\n'
    assert fingerprint(text) == fingerprint(text.replace('"x":{"y":1},"z":2', '"z":2,"x":{"y":1}'))
    assert fingerprint(text) != fingerprint(text.replace("add(%b", "add(%d"))
    assert fingerprint(text) != fingerprint(text.replace(":2", ":3"))
    assert fingerprint(text.replace(":2", ":12")) != fingerprint(text.replace(":2", ":21"))
    assert fingerprint(f'{text}op_name="ab"') != fingerprint(f'{text}op_name="ba"')
    assert fingerprint("backend_config={no json}") != fingerprint("backend_config={json no}")


def test_program_is_read_late_without_threads(afterwards, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert everything(look()) == afterwards


@pytest.mark.usefixtures("reading_at_once")
def test_passes_written_later_are_included():
    inspection = look()
    compilation = inspection._pipeline.compilation
    compilation.want(passes=True)
    dump = compilation.dump.get()
    names = files_of_passes(dump)
    last = dump.path(names[-1], "txt").read_text()
    dump.path(f"{len(names) + 50:04d}.later.after_late-pass.before_end", "txt").write_text(
        last.replace(" tanh(", " negate(")
    )
    assert compilation._early_module() is None
    assert inspection.passes[-1].name == "late-pass"
