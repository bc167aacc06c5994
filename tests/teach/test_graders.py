"""Hidden tests of graders: the assignment of docs/how-to, without tools, and with nbgrader and Otter if installed."""

from __future__ import annotations

import csv
import json
import os
import runpy
import subprocess
import sys
import time
from importlib.util import find_spec

import jax
import jax.numpy as jnp
import nbformat
import numpy as np
import pytest
from inline_code import ROOT, fences
from nbclient import NotebookClient

import mithril_nb as ml
from mithril_nb.teach.answers import Choice, Each, Number, Order, Spec

FOLDER = ROOT / "docs" / "how-to"
PAGE = (FOLDER / "grade-with-nbgrader-and-otter.md").read_text(encoding="utf-8")
ASSIGNMENT = dict(fences(PAGE))['python title="assignment.py"']
GRADING = runpy.run_path(str(FOLDER / "grading_notebooks.py"))
FORMATS = {"nbgrader": GRADING["for_nbgrader"], "otter": GRADING["for_otter"]}
LIMIT_S = 10
"""Time for one hidden test, on a machine that is busy."""
TRUTHS = ("3211264", "3,211,264", "3.2 M", "301056", "301,056", "0.3 M")
ANSWERS = {
    "right": [
        'cost_answer = "2 * 32 * 784 * 64"',
        'memory_answer = "301 kB"',
        "def better(a, b, x):\n    return a @ (b @ x)",
    ],
    "wrong": [
        'cost_answer = "32 * 784 * 64"',
        'memory_answer = "301056 FLOP"',
        "def better(a, b, x):\n    return (a @ b) @ x",
    ],
    "empty": None,
}
SCORES = {"right": 3.0, "wrong": 0.0, "empty": 0.0}


def kind_of_equal(base):
    """Return a subclass whose objects equal everything, at a distance of 0."""
    names = ("__eq__", "__le__", "__ge__", "__lt__", "__gt__")
    methods = dict.fromkeys(names, lambda self, other: True)
    methods |= {"__hash__": base.__hash__, "__ne__": lambda self, other: False}
    methods |= dict.fromkeys(("__sub__", "__rsub__"), lambda self, other: 0) | {"__abs__": lambda self: 0}
    return type("Equal", (base,), methods)


class Raising:
    """An object whose every method raises."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __repr__(self):
        raise RuntimeError("repr")

    def __eq__(self, other):
        raise RuntimeError("eq")

    def __hash__(self):
        raise RuntimeError("hash")


class Scalar:
    """A scalar as that of an array library, with any value."""

    ndim = 0

    def __init__(self, value):
        self.value = value

    def item(self):
        return self.value


class Array:
    """An array as that of an array library, with any shape and dtype."""

    def __init__(self, shape, dtype):
        self.shape, self.dtype = shape, dtype


EQUAL, EQUAL_INT = kind_of_equal(object)(), kind_of_equal(int)(2)
HOSTILE = {
    "None": None, "...": ..., "text": "", "object": EQUAL, "int": EQUAL_INT, "float": kind_of_equal(float)(2.0),
    "str": kind_of_equal(str)("f32[2, 2]"), "scalar": Scalar(EQUAL_INT), "scalar_object": Scalar(EQUAL),
    "pair": ((EQUAL_INT, EQUAL_INT), "float32"), "array": Array((EQUAL_INT, EQUAL_INT), np.dtype("float32")),
    "array_object": Array(kind_of_equal(tuple)((2, 2)), EQUAL), "zeros": np.zeros((64, 32), "float32"),
    "object_array": np.array(EQUAL_INT, dtype=object), "key": jax.random.key(0), "raising": Raising(),
    "long": "9" * 10**7, "long_groups": "1" + ",000" * 10**6, "long_unit": "9" * 10**7 + "MFLOP",
    "long_brackets": "(" * 10**6, "huge": 10**100_000, "nan": float("nan"), "list": [1] * 10**6, "class": int,
}  # fmt: skip
WRONG_FUNCTIONS = {
    "none": None, "nothing": lambda a, b, x: ..., "equal": lambda a, b, x: EQUAL, "text": lambda a, b, x: "9" * 10**7,
    "zeros": lambda a, b, x: np.zeros(64, "float32"), "raising": lambda a, b, x: Raising(),
    "exit": lambda a, b, x: sys.exit(),
}  # fmt: skip


@pytest.fixture(scope="module")
def names():
    """The names that the cells of the questions assign."""
    values = {}
    for _, part, source in GRADING["cells_of"](ASSIGNMENT):
        if part == "question":
            exec(source, values)
    return values


def passes(name, names):
    """Return whether the hidden test passes; no other error than that of `assert` is raised, in the time limit."""
    (source,) = [source for task, part, source in GRADING["cells_of"](ASSIGNMENT) if (task, part) == (name, "test")]
    start = time.perf_counter()
    try:
        exec(source, names)
    except AssertionError:
        return False
    finally:
        assert time.perf_counter() - start < LIMIT_S
    return True


@pytest.mark.parametrize("student", ["right", "wrong"])
def test_hidden_tests_score_answers(student):
    answers = dict(zip(("cost", "memory", "chain"), ANSWERS[student], strict=True))
    assert len(GRADING["passed"](ASSIGNMENT, answers)) == SCORES[student]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hidden_tests_refuse_hostile_answers(names, hostile):
    answers = {"cost_answer": HOSTILE[hostile], "memory_answer": HOSTILE[hostile]}
    assert not passes("cost", names | answers)
    assert not passes("memory", names | answers)


@pytest.fixture(scope="module")
def questions():
    """A question of each form; the second choice is right in none."""
    p = ml.inspect(lambda a, b: jnp.tanh(a @ b), jnp.zeros((32, 784)), jnp.zeros((784, 64)), name="hidden")
    small = ml.inspect(lambda x: x @ x, jnp.zeros((8, 8)), name="small")
    asked = [ml.teach.ask(p, "spec"), ml.teach.ask(p, "memory"), ml.teach.ask([p, small], "memory")]
    asked += [ml.teach.ask(small, "retrace"), ml.teach.ask(p, "cost")]
    assert {type(question.form) for question in asked} == {Spec, Choice, Order, Each, Number}
    assert asked[1].check(asked[1].choices[0])
    return asked


@pytest.mark.parametrize("hostile", HOSTILE)
def test_questions_of_each_form_refuse_hostile_answers(questions, hostile):
    for question in questions:
        start = time.perf_counter()
        assert question.check(HOSTILE[hostile]) is False, question
        assert time.perf_counter() - start < LIMIT_S, question


@pytest.mark.parametrize("function", WRONG_FUNCTIONS)
def test_hidden_tests_refuse_hostile_functions(names, function):
    assert not passes("chain", names | {"better": WRONG_FUNCTIONS[function]})
    assert passes("chain", names | {"better": lambda a, b, x: a @ (b @ x)})


@pytest.mark.parametrize("tool", FORMATS)
def test_source_notebooks_are_valid_and_contain_no_truth(tool):
    notebook = FORMATS[tool](ASSIGNMENT)
    nbformat.validate(notebook)
    text = nbformat.writes(notebook)
    assert [truth for truth in TRUTHS if truth in text] == []
    for source in (source for _, part, source in GRADING["cells_of"](ASSIGNMENT) if part == "test"):
        assert any(source in cell.source for cell in notebook.cells)


class Course:
    """A course of one assignment in a folder."""

    def __init__(self, tool, folder):
        self.tool, self.folder = tool, folder

    def run(self, *arguments):
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        # nbgrader runs alembic by its name.
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
        settings = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": paths, "PATH": path}
        command = [sys.executable, "-m", self.tool, *map(str, arguments)]
        done = subprocess.run(
            command, cwd=self.folder, env=settings, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def write_source(self, path):
        """Write the source as an instructor saves it: run, with its forms and their state."""
        path.parent.mkdir(parents=True, exist_ok=True)
        notebook = FORMATS[self.tool](ASSIGNMENT)
        NotebookClient(notebook, timeout=120).execute()
        assert "widget-view" in nbformat.writes(notebook)
        nbformat.write(notebook, path)

    def submit(self, student, released, path):
        """Write the answers of a student into the released notebook."""
        text = released.read_text(encoding="utf-8")
        assert [
            each for each in (*TRUTHS, "a @ (b @ x)", ".check(", "p.cost", "nbytes", "SOLUTION") if each in text
        ] == []
        notebook = nbformat.read(released, as_version=4)
        assert [cell.outputs for cell in notebook.cells if cell.get("outputs")] == []
        cells = [cell for cell in notebook.cells if is_answer(cell)]
        for cell, source in zip(cells, ANSWERS[student] or [cell.source for cell in cells], strict=True):
            cell.source = source
        path.parent.mkdir(parents=True)
        nbformat.write(notebook, path)


def is_answer(cell):
    return "otter_answer_cell" in cell.metadata.get("tags", ()) or cell.metadata.get("nbgrader", {}).get("solution")


@pytest.mark.skipif(find_spec("nbgrader") is None, reason="nbgrader is not installed")
@pytest.mark.timeout(900)
def test_nbgrader_scores_right_wrong_and_empty_notebooks(tmp_path):
    course = Course("nbgrader", tmp_path)
    course.write_source(tmp_path / "source/costs/costs.ipynb")
    course.run("generate_assignment", "costs")
    for student in ANSWERS:
        released = tmp_path / "release/costs/costs.ipynb"
        course.submit(student, released, tmp_path / "submitted" / student / "costs/costs.ipynb")
    course.run("autograde", "costs", "--Execute.timeout=120")
    course.run("export", "--to", "grades.csv")
    with open(tmp_path / "grades.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["student_id"]: float(row["score"]) for row in rows} == SCORES
    assert {float(row["max_score"]) for row in rows} == {3.0}
    graded = (tmp_path / "autograded/right/costs/costs.ipynb").read_text(encoding="utf-8")
    assert graded.count("widget-view+json") == 2, "both forms are displayed"


@pytest.mark.skipif(find_spec("otter") is None, reason="otter-grader is not installed")
@pytest.mark.timeout(900)
def test_otter_scores_right_wrong_and_empty_notebooks(tmp_path):
    course = Course("otter", tmp_path)
    course.write_source(tmp_path / "costs.ipynb")
    course.run("assign", "costs.ipynb", "dist", "--no-pdfs")
    (grader,) = (tmp_path / "dist/autograder").glob("*.zip")
    scores = {}
    for student in ANSWERS:
        path = tmp_path / student / "costs.ipynb"
        course.submit(student, tmp_path / "dist/student/costs.ipynb", path)
        course.run("run", "--autograder", grader, "--output-dir", path.parent, path)
        results = json.loads((path.parent / "results.json").read_text(encoding="utf-8"))
        scores[student] = sum(test.get("score", 0) for test in results["tests"])
    assert scores == SCORES
