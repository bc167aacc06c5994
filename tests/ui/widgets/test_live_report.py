"""The output of a watched function is updated, and the magic shows the traces of a cell."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import pytest
from IPython.core.interactiveshell import InteractiveShell

import mithril_nb as ml
from mithril_nb.cli import ipython
from mithril_nb.ui.widgets import live

PATIENCE_S = 20.0
X = jnp.ones((3, 2))


@pytest.fixture
def outputs(monkeypatch):
    seen: list = []

    monkeypatch.setattr(live, "_WAIT_S", 0.05)
    monkeypatch.setattr(live, "is_jupyter", lambda: True)
    monkeypatch.setattr(live, "display", lambda data, raw, display_id: seen.append((data, display_id)))
    monkeypatch.setattr(live, "update_display", lambda data, raw, display_id: seen.append((data, display_id)))
    yield seen
    time.sleep(0.2)  # updates that are under way end in this test


def wait_for(condition):
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_output_follows_a_watched_function(outputs):
    step = ml.watch(jax.jit(lambda x: x + 71))
    step._ipython_display_()
    ((first, name),) = outputs
    assert first["text/plain"].endswith("no retraces")
    assert first["text/html"].startswith('<div class="mnb">')
    step(X)
    step(X[0])
    wait_for(lambda: "argument 1 `x` changed from f32[3,2] to f32[2]" in outputs[-1][0]["text/plain"])
    assert {one for _, one in outputs} == {name}
    time.sleep(0.3)
    count = len(outputs)
    step(X)
    time.sleep(0.2)
    assert len(outputs) == count, "a cache hit changes nothing that is urgent"


def test_output_follows_a_block(outputs):
    with ml.watch() as seen:
        seen._ipython_display_()
        jax.jit(lambda x: x + 72)(X)
        wait_for(lambda: len(outputs) > 1 and "1 in" in outputs[-1][0]["text/plain"])
    assert outputs[0][0]["text/plain"] == "nothing was traced or compiled"


def test_only_the_latest_outputs_follow(outputs):
    step = ml.watch(jax.jit(lambda x: x + 73))
    for _ in range(6):
        step._ipython_display_()
    step(X)
    wait_for(lambda: len(outputs) >= 10)
    time.sleep(0.2)
    assert len({name for _, name in outputs[6:]}) == 4


def test_terminal_shows_it_once(outputs, monkeypatch):
    monkeypatch.setattr(live, "is_jupyter", lambda: False)
    step = ml.watch(jax.jit(lambda x: x + 74))
    step._ipython_display_()
    step(X)
    time.sleep(0.2)
    assert len(outputs) == 1


@pytest.fixture
def shell(monkeypatch):
    """A shell of IPython with the extension; what it displays is printed."""
    shell = InteractiveShell()
    monkeypatch.setattr(live, "display", lambda data, raw, display_id: print(data["text/plain"]))
    monkeypatch.setattr("IPython.display.display", lambda value: value._ipython_display_())
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    ipython.load(shell)
    shell.run_cell("import jax, jax.numpy as jnp\n@jax.jit\ndef f(x):\n    return x + 1\n", store_history=True)
    return shell


def test_magic_shows_what_the_cell_traced(shell, capsys):
    capsys.readouterr()
    done = shell.run_cell(
        "%%mithril_watch\nf(jnp.ones(3))\n\nfor n in (3, 4):\n    y = f(jnp.ones(n))\nop = 'gelu'(input='x')\ny + 1",
        store_history=True,
    )
    assert done.success
    output = capsys.readouterr().out
    assert "Array([3., 3., 3., 3.], dtype=float32)" in output, "the last expression is shown"
    assert "cell [2]:5" in output, "the line in the cell, the line of the magic included"
    assert "argument 1 `x` changed from f32[3] to f32[4]" in output
    assert output.index("Array(") < output.index("function")
    assert shell.user_ns["y"].shape == (4,)
    assert shell.user_ns["op"] is not None, "a text that is called is an op, as in other cells"


def test_magic_passes_an_error_on(shell, capsys):
    capsys.readouterr()
    done = shell.run_cell("%%mithril_watch\nf(jnp.ones(5))\n1 / 0", store_history=True)
    assert isinstance(done.error_in_exec, ZeroDivisionError)
    output = capsys.readouterr().out
    assert "no retraces" in output
    assert "cli/ipython.py" not in output, "the traceback has no frame of the magic"


@pytest.mark.parametrize("cell", ["# nothing", "\n", "x = 1"])
def test_magic_of_a_cell_without_a_result(shell, capsys, cell):
    capsys.readouterr()
    assert shell.run_cell(f"%%mithril_watch\n{cell}", store_history=True).success
    assert capsys.readouterr().out == "nothing was traced or compiled\n"


def test_magic_takes_no_options(shell, capsys):
    done = shell.run_cell("%%mithril_watch bad args\nx = 1", store_history=True)
    assert str(done.error_in_exec) == (
        "%%mithril_watch takes no options; the cell's code starts on the next line.\n"
        "    given  'bad args'\n"
        "    Try: %%mithril_watch"
    )


def test_magic_reports_a_syntax_error(shell, capsys):
    done = shell.run_cell("%%mithril_watch\nx = = 1", store_history=True)
    assert isinstance(done.error_in_exec, SyntaxError)


def test_magic_is_gone_after_unload(shell, capsys):
    ipython.unload(shell)
    shell.run_cell("%%mithril_watch\nf(jnp.ones(6))", store_history=True)
    assert "Cell magic `%%mithril_watch` not found" in capsys.readouterr().err
