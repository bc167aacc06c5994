"""The files that XLA writes while it compiles: their folder, their lifetime, and their removal."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from fresh import run_fresh
from jax_programs import dump_of, spec

from mithril_nb.atomic_write import HELD
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.stages.jax_jit import without_compilation_cache
from mithril_nb.stages.xla.dump import FILES, KERNELS, Dump, compile_with

ALONE = "import sys; from mithril_nb.stages.xla.dump import Dump; assert 'jax' not in sys.modules; "
"""Starts Python code with a `Dump` and without JAX, which takes seconds to import."""


@pytest.fixture(autouse=True)
def temp(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("mithril_nb.stages.xla.dump._unknown", set())
    return tmp_path


def left(temp):
    gc.collect()
    return [path.name for path in temp.iterdir()]


def python(code, temp) -> subprocess.Popen[str]:
    """Start another Python process that runs some code; its folders are created in `temp`."""
    environment = os.environ | {"TMPDIR": str(temp)}
    return subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_files_are_removed_with_their_last_reference(temp):
    inspection = inspect(lambda x: jnp.tanh(x) * 2, spec(3))
    passes = inspection.passes
    assert len(left(temp)) == 1
    del inspection
    assert len(left(temp)) == 1
    assert "tanh" in passes[0].before
    del passes
    assert left(temp) == []


def test_files_are_removed_at_exit_and_after_a_crash(temp):
    make = f"{ALONE}dump = Dump(); print(dump.folder, flush=True); "
    crashed, ended = python(make + "sys.stdin.read()", temp), python(make, temp)
    for process in (crashed, ended):
        assert process.stdout is not None
        assert Path(process.stdout.readline().strip()).parent.parent == temp
    ended.communicate()
    assert ended.returncode == 0
    assert len(left(temp)) == 1
    mine = Dump()
    assert len(left(temp)) == 2  # the other process still runs
    os.kill(crashed.pid, signal.SIGKILL)
    crashed.communicate()
    assert len(left(temp)) == 2
    assert mine.folder is not None
    home = mine.folder.parent
    assert Dump().folder is not None  # leftovers are removed when a home is created, and this process has one
    assert len(left(temp)) == 2
    del mine
    assert left(temp) == [next(one.name for one in temp.iterdir() if one != home)]
    other = Dump()
    assert other.folder is not None
    assert left(temp) == [other.folder.parent.name]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_fork_keeps_the_files_of_its_parent(temp):
    code = (
        f"{ALONE}import os; dump = Dump(); child = os.fork()\n"
        "if not child: sys.exit()\n"
        "os.waitpid(child, 0); print(dump.folder.exists(), flush=True)"
    )
    assert run_fresh(code, TMPDIR=str(temp)) == "True\n"
    assert left(temp) == []


def test_dumps_of_threads_are_separate(temp):
    found: list[Dump] = []

    def make(number):
        found.append(dump_of(**{"before_optimizations.txt": str(number)}))

    threads = [threading.Thread(target=make, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(dump.text("before_optimizations.txt") for dump in found) == [str(number) for number in range(8)]
    assert len(left(temp)) == 1
    assert len({dump.folder for dump in found}) == 8
    assert len([*temp.glob(f"**/{HELD}")]) == 1  # an open file; the number of open files is limited
    found.clear()
    assert left(temp) == []


def test_files_of_others_are_kept(temp):
    for name in ("mithril_nb-xla-half-made", "mithril_nb-other", "somebody"):
        (temp / name).mkdir()
    (temp / "mithril_nb-xla-file").write_text("")
    target = temp / "somebody"
    (target / HELD).write_text("")
    (temp / "mithril_nb-xla-link").symlink_to(target)
    dump = Dump()
    assert dump.folder is not None
    assert (target / HELD).exists()
    assert len(left(temp)) == 6


def test_folder_without_our_mark_is_kept(temp):
    """Nothing proves that it is ours, even if its name does: another program may have made it."""
    (temp / "mithril_nb-xla-link").symlink_to(temp / "mithril_nb-xla-new")
    for name in ("old", "new"):
        (temp / f"mithril_nb-xla-{name}" / "some").mkdir(parents=True)
        (temp / f"mithril_nb-xla-{name}" / "some" / "module_0001.txt").write_text("text")
    hours_ago = time.time() - 7200
    os.utime(temp / "mithril_nb-xla-old", (hours_ago, hours_ago))
    dump = Dump()
    assert dump.folder is not None
    assert sorted(left(temp)) == sorted(
        ["mithril_nb-xla-link", "mithril_nb-xla-new", "mithril_nb-xla-old", dump.folder.parent.name]
    )


def test_dump_folder_may_be_removed_by_others(temp):
    first = Dump()
    assert first.folder is not None
    shutil.rmtree(first.folder.parent)
    second = dump_of(**{"before_optimizations.txt": "text"})
    assert second.text("before_optimizations.txt") == "text"
    del first, second
    assert left(temp) == []


def test_file_names_with_and_without_a_middle_part(temp):
    names = (
        "before_optimizations.txt", "ptx", "a.b.ptx", "ir-with-opt.ll", "wrapped_sin_kernel_module.ir-with-opt.ll",
        "0000.p.after_x.before_y.txt",
    )  # fmt: skip
    dump = dump_of(**dict.fromkeys(names, "text"))
    assert dump.folder is not None
    (dump.folder / "module_0001.jit_f_2.ptx").write_text("of another program")
    assert dump.prefix == "module_0001.jit_f"
    assert dump.names("ptx") == ["", "a.b"]
    assert dump.names("ir-with-opt.ll") == ["", "wrapped_sin_kernel_module"]
    assert dump.names("txt") == ["0000.p.after_x.before_y", "before_optimizations"]
    assert {dump.text(name, "ptx") for name in dump.names("ptx")} == {"text"}


def test_largest_module_is_the_program():
    def lower(options):
        for name, size in (("1.tiny", 1), ("2.program", 100), ("3.autotuned", 50)):
            (Path(options["xla_dump_to"]) / f"module_000{name}.before_optimizations.txt").write_text("x" * size)

    dump = Dump()
    dump.compile(lower, {})
    assert dump.prefix == "module_0002.program"


def test_user_dump_folder_gets_the_files(tmp_path):
    wanted = tmp_path / "mine"
    inspection = inspect(lambda x: x + 1, spec(3), compiler_options={"xla_dump_to": str(wanted)})
    assert inspection.stage("hlo").unavailable is None
    assert list(wanted.glob("*.before_optimizations.txt"))
    dump = Dump()
    assert dump.compile(lambda options: options, {"xla_dump_to": str(wanted)}) == {"xla_dump_to": str(wanted)}
    with pytest.raises(LookupError) as error:
        _ = dump.prefix
    assert str(error.value) == (
        f"XLA writes its files to {str(wanted)!r}; remove 'xla_dump_to' from the compiler options to read them here"
    )


@pytest.mark.parametrize("place", ["no-such-folder", "file"])
def test_program_compiles_without_a_dump_folder(place, temp, monkeypatch):
    (temp / "file").write_text("")
    monkeypatch.setattr(tempfile, "tempdir", str(temp / place))
    dump = Dump()
    assert dump.folder is None
    assert dump.compile(lambda options: options, {"some": 1}) == {"some": 1}
    with pytest.raises(LookupError) as error:
        dump.names("txt")
    why = {"no-such-folder": "No such file or directory", "file": "Not a directory"}[place]
    assert str(error.value) == (
        f"no folder can be created for the files of XLA ({why}); "
        "set TMPDIR to a writable folder before you start Python"
    )


def test_compiler_without_files_is_reported():
    dump = Dump()
    dump.compile(lambda options: None, {})
    with pytest.raises(LookupError, match=re.escape("XLA wrote no files when it compiled this program")):
        dump.names("txt")


def test_the_persistent_cache_is_bypassed(tmp_path):
    """JAX's cache treats programs that differ only in names as equal, so a cached program has no tags of ours."""
    code = f"""
import jax, jax.numpy as jnp
from mithril_nb.inspection import inspect_function as inspect
jax.config.update("jax_compilation_cache_dir", {str(tmp_path / "cache")!r})
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
x = jax.ShapeDtypeStruct((3, 3), jnp.float32)
def fn(x):
    with jax.named_scope("net"):
        return jnp.tanh(x) @ x
jax.jit(fn)(jnp.ones((3, 3)))
for _ in range(2):
    cost = inspect(fn, x).cost("compiled")
    print(len(inspect(fn, x).passes) > 0, [*cost.by_block], cost.unattributed.flops)
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event))
jax.clear_caches()
jax.jit(fn)(jnp.ones((3, 3)))
print(sum("cache_hits" in one for one in hits) > 0)
"""
    assert run_fresh(code).splitlines() == ["True ['net'] 0"] * 2 + ["True"]


def test_cache_state_is_restored_after_an_error(monkeypatch):
    cache = pytest.importorskip("jax._src.compilation_cache")
    monkeypatch.setattr(type(jax.config), "jax_compilation_cache_dir", "somewhere", raising=False)
    monkeypatch.setattr(cache, "_cache_checked", True)
    monkeypatch.setattr(cache, "_cache_used", True)

    def compiles():
        with without_compilation_cache():
            assert (cache._cache_checked, cache._cache_used) == (True, False)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        compiles()
    assert (cache._cache_checked, cache._cache_used) == (True, True)


def test_only_unsupported_options_are_dropped():
    tried = []

    def compile(options):
        tried.append(set(options))
        for name in ("xla_dump_emitter_re", "xla_dump_compact_gte"):
            if name in options:
                raise RuntimeError(f"INVALID_ARGUMENT: No such compile option: '{name}'")
        return options

    asked = {**FILES, **KERNELS, "xla_dump_to": "here"}
    told = compile_with(asked, {"xla_cpu_enable_fast_math": True}, compile)
    assert told == {"xla_cpu_enable_fast_math": True, "xla_dump_to": "here"}
    assert tried[0] == asked.keys() | {"xla_cpu_enable_fast_math"}
    assert len(tried) == 3
    compile_with(asked, {}, compile)
    assert tried[3:] == [{"xla_dump_to"}], "an unsupported option is passed only once"


def test_user_options_are_kept():
    def compile(options):
        if options["xla_dump_emitter_re"] != "llvm|mlir":
            raise AssertionError(options)
        raise RuntimeError("No such compile option: 'xla_dump_emitter_re'")

    with pytest.raises(RuntimeError, match="No such compile option: 'xla_dump_emitter_re'"):
        compile_with(KERNELS, {"xla_dump_emitter_re": "llvm|mlir"}, compile)


def test_other_compiler_errors_are_raised_unchanged():
    count = []

    def compile(options):
        count.append(1)
        raise ValueError("RESOURCE_EXHAUSTED: out of memory")

    with pytest.raises(ValueError, match="RESOURCE_EXHAUSTED"):
        compile_with(KERNELS, {}, compile)
    assert len(count) == 1
