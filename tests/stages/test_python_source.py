"""Python stage: lines of any code are shown unchanged, each with the equations that it created."""

from __future__ import annotations

import linecache
import textwrap
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import pytest
from jax_programs import spec

from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.stages.failure import Failure
from mithril_nb.stages.jax_versions import file_label
from mithril_nb.stages.records import Equation
from mithril_nb.stages.trace.python_source import SourceLine, source_of_functions, source_of_model


def defined(code, tmp_path, name="code.py") -> dict[str, object]:
    """Return the names that a Python file defines."""
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(code), encoding="utf-8")
    found: dict[str, object] = {"jnp": jnp}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), found)
    return found


def shown(fn, *args):
    return inspect(fn, *(args or (spec(3),))).stage("python").text


def equation(id, block="") -> Equation:
    return Equation(id, "sin", block, "forward", (), ())


def source(lines: dict[str, int], file, failure: Failure | None = None):
    places = {id: SourceLine(file, Path(file).name, line) for id, line in lines.items()}
    return source_of_functions(places, [equation(id) for id in lines], failure)


CODE = {
    "a decorated function": (
        """
        import functools

        def twice(fn):
            @functools.wraps(fn)
            def call(x):
                return fn(fn(x))
            return call

        @twice
        def fn(x):
            return jnp.sin(x)
        """,
        "# code.py:10\n@twice\ndef fn(x):\n    return jnp.sin(x)\n",
    ),
    "a lambda": (
        """
        other = 1
        fn = lambda x: (
            jnp.sin(x)
        )
        """,
        "# code.py:3\nfn = lambda x: (\n    jnp.sin(x)\n)\n",
    ),
    "a class and a nested function": (
        """
        class Net:
            def __call__(self, x):
                def inner(x):
                    return jnp.sin(x)

                return inner(x)

        unused = 1
        fn = Net()
        """,
        "# code.py:2\nclass Net:\n    def __call__(self, x):\n        def inner(x):\n            return jnp.sin(x)\n\n"
        "        return inner(x)\n",
    ),
    "letters of all alphabets, and marks": (
        """
        def fn(größe):
            "<script>alert('日本語 🎈')</script> & {braces} %s !! @@"
            return jnp.sin(größe)
        """,
        "# code.py:2\ndef fn(größe):\n    \"<script>alert('日本語 🎈')</script> & {braces} %s !! @@\"\n"
        "    return jnp.sin(größe)\n",
    ),
    "an escape that Python warns of": (
        r"""
        def fn(x):
            r'\d' '\\d'
            return jnp.sin(x)
        """,
        "# code.py:2\ndef fn(x):\n    r'\\d' '\\\\d'\n    return jnp.sin(x)\n",
    ),
}


@pytest.mark.parametrize("name", CODE)
def test_the_statement_around_a_line_is_shown_unchanged(name, tmp_path):
    code, text = CODE[name]
    assert shown(defined(code, tmp_path)["fn"]) == text


def test_form_feeds_do_not_break_lines(tmp_path):
    code = (
        "def first(x):\n    return jnp.cos(x)\n\x0c\ndef fn(x):\n    '\x0b \x85 \u2028'\n    return jnp.sin(first(x))\n"
    )
    stage = inspect(defined(code, tmp_path)["fn"], spec(3)).stage("python")
    lines = stage.text.splitlines()
    assert lines == stage.text.rstrip("\n").split("\n")
    assert [lines[one.line - 1].strip() for one in stage.instructions] == [
        "return jnp.cos(x)",
        "return jnp.sin(first(x))",
    ]


def test_warnings_about_user_code_are_not_repeated(tmp_path):
    path = tmp_path / "warns.py"
    path.write_text("def fn(x):\n    '\\d'\n    return x\n")
    text, _ = source({"0": 3}, str(path))  # a warning is an error here
    assert text == "# warns.py:1\ndef fn(x):\n    '\\d'\n    return x\n"


def test_a_long_function_shows_only_its_relevant_lines(tmp_path):
    path = tmp_path / "long.py"
    body = [f"    y{number} = {number}" for number in range(210)]
    body[100:100] = ["    try:", "        pass", "    except ValueError:", "        a = 1", "        b = 2"]
    path.write_text("\n".join(["def fn(x):", *body, "    return x"]) + "\n")
    text, found = source({"0": 3, "1": 106, "2": 110}, str(path))
    assert text == (
        "# long.py:3\n    y1 = 1\n\n"
        "# long.py:102\n    try:\n        pass\n    except ValueError:\n        a = 1\n        b = 2\n\n"
        "# long.py:110\n    y103 = 103\n"
    )
    assert [one.line for one in found] == [2, 9, 12]


@pytest.mark.parametrize("code", ["def fn(x)\n    return x\n%matplotlib\n", "x = 1\0\n"])
def test_invalid_code_is_shown_around_the_line(code, tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("\n" * 9 + code)
    text, _ = source({"0": 10}, str(path))
    assert text.startswith("# broken.py:8\n\n\n")
    assert code.splitlines()[0] in text


def test_a_deleted_or_shortened_file(tmp_path):
    assert source({"0": 7}, str(tmp_path / "gone.py"))[0] == "# gone.py:7\n# the source is not available\n"
    path = tmp_path / "short.py"
    path.write_text("x = 1\n")
    text, found = source({"0": 7}, str(path))
    assert text == "# short.py:7\n# the source is not available\n"
    assert [(one.id, one.line) for one in found] == [("short.py:7", 2)]
    assert source({"0": 1}, "<stdin>")[0] == "# <stdin>:1\n# the source is not available\n"


def test_notebook_cells_are_labelled_by_their_number(monkeypatch):
    file = "ipykernel/123.py"
    code = "%time\ndef fn(x):\n    return x\n"
    monkeypatch.setitem(linecache.cache, file, (len(code), None, code.splitlines(keepends=True), file))
    cells = {file: 3}
    shell = SimpleNamespace(compile=SimpleNamespace(_filename_map=cells))
    monkeypatch.setitem(__import__("sys").modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert file_label(file) == "cell [3]"
    cells[file] = 12  # it was run again
    label = file_label(file)
    text, found = source_of_functions({"0": SourceLine(file, label, 3)}, [equation("0")])
    assert text == "# cell [12], line 1\n%time\ndef fn(x):\n    return x\n"
    assert found[0].id == "cell [12]:3"
    failure = Failure("ValueError", "no such axis", "cell [12]:3", "return x")
    assert failure.text == "ValueError: no such axis\n  at cell [12], line 3: return x"
    cells[file] = 0
    assert file_label(file) == "cell"


def test_two_files_with_the_same_name_have_own_labels(tmp_path):
    first = defined("def first(x):\n    return jnp.sin(x)\n", tmp_path, "one/net.py")["first"]
    second = defined("def second(x):\n    return jnp.cos(x)\n", tmp_path, "two/net.py")["second"]
    stage = inspect(lambda x: first(second(x)), spec(3)).stage("python")  # type: ignore[operator]
    assert {line for line in stage.text.splitlines() if line.startswith("#")} == {"# net.py:1", "# one/net.py:1"}
    assert len({one.id for one in stage.instructions}) == len(stage.instructions)


def test_each_line_has_its_equations(tmp_path):
    path = tmp_path / "net.py"
    path.write_text("def fn(x):\n    y = x * 2; z = y + 1\n    return z\n")
    places = {id: SourceLine(str(path), "net.py", line) for id, line in (("0", 2), ("1", 2), ("2", 3))}
    equations = [equation("0", "a"), equation("1", "b"), equation("2"), equation("3", "c")]
    text, found = source_of_functions(places, equations)
    assert [(one.id, one.line, one.equations, one.shares, one.origin) for one in found] == [
        ("net.py:2", 3, ("0", "1"), (("a", 0.5), ("b", 0.5)), "tagged"),
        ("net.py:3", 4, ("2",), (), None),
    ]
    assert text.splitlines()[2] == "    y = x * 2; z = y + 1"


def test_the_error_is_below_the_line(tmp_path):
    path = tmp_path / "net.py"
    path.write_text("def inner(x):\n    return x @ x\n\n\ndef fn(x):\n    y = x * 2\n    return inner(y)\n")
    failure = Failure("TypeError", "no\nand again no", "net.py:2", "return x @ x", (str(path), 2))
    text, found = source({"0": 6}, str(path), failure)
    assert text == (
        "# net.py:1\ndef inner(x):\n    return x @ x\n    !! TypeError: no\n    !! and again no\n\n"
        "# net.py:5\ndef fn(x):\n    y = x * 2\n    return inner(y)\n"
    )
    assert [(one.id, text.splitlines()[one.line - 1]) for one in found] == [("net.py:6", "    y = x * 2")]
    same, found = source({"0": 2}, str(path), failure)
    assert same == "# net.py:1\ndef inner(x):\n    return x @ x\n    !! TypeError: no\n    !! and again no\n"
    assert [one.line for one in found] == [3]
    assert source({}, str(path), failure)[0] == same


def test_the_python_that_builds_a_model_has_its_blocks(tmp_path):
    equations = [equation("0", "net/linear_0"), equation("1", "net/linear_0/inner"), equation("2", "net/linear_01")]
    model, blocks = "model = Model()\nmodel += Linear(3)\n", {2: "net/linear_0"}
    text, found = source_of_model(model, blocks, equations, {})
    assert text == model
    assert [(one.id, one.line, one.equations) for one in found] == [("model:2", 2, ("0", "1"))]
    path = tmp_path / "net.py"
    path.write_text("x = 1\nml.inspect(model, optimizer='adam')\n")
    text, more = source_of_model(model, blocks, equations, {"2": SourceLine(str(path), "net.py", 2)})
    assert text == f"{model}\n# net.py:2\nml.inspect(model, optimizer='adam')\n"
    assert more[: len(found)] == found
    assert [(one.id, one.line, one.equations) for one in more[1:]] == [("net.py:2", 5, ("2",))]


def test_a_program_without_user_code_shows_the_library():
    assert shown(jnp.sin).startswith("# jax/_src/numpy/ufuncs.py:")  # the library's line is the line
