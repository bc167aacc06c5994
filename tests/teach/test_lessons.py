"""The lessons: their cells run, their questions and puzzles can be answered, and the saved notebooks hold no answer."""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import re
import runpy
import subprocess
import sys
from functools import cache
from pathlib import Path

import nbformat
import pytest

from mithril_nb.teach import Puzzle, Question
from mithril_nb.teach.answers import Choice, Each, Number, Order, Spec
from tools.notebooks import IGNORED, REPAIR, is_lesson

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
MANY_DEVICES = "--xla_force_host_platform_device_count=8"
HAS_MANY_DEVICES = MANY_DEVICES in os.environ.get("XLA_FLAGS", "")
LESSONS = [
    path
    for path in sorted(NOTEBOOKS.glob("*.ipynb"))
    if is_lesson(path) and (MANY_DEVICES in path.read_text(encoding="utf-8")) == HAS_MANY_DEVICES
]
QUICK_REFERENCE = NOTEBOOKS / "08_quick_reference.ipynb"
FEWEST_QUESTIONS = 10


class Lesson:
    """A lesson whose code cells have run, with its questions and puzzles by name, and the module of its solutions."""

    def __init__(self, path):
        flags = os.environ.get("XLA_FLAGS")
        self.notebook = nbformat.read(path, as_version=4)
        self.saved = path.read_text(encoding="utf-8")
        self.solutions = runpy.run_path(str(NOTEBOOKS / "solutions" / f"{path.stem}.py"))
        self.values = {"__name__": "__main__"}
        self.shown = {}
        for number, cell in enumerate(self.notebook.cells):
            if cell.cell_type == "code":
                self.shown[number] = self._run(cell.source, f"{path.stem}-{number}")
        if flags is not None:  # a lesson adds a flag
            os.environ["XLA_FLAGS"] = flags
        questions = {name: each for name, each in self.values.items() if isinstance(each, Question)}
        # A question about a device that is not here needs its compiler; without it, the lesson continues.
        self.questions = {
            name: each for name, each in questions.items() if "devices install" not in (each.unavailable or "")
        }
        self.puzzles = {name: each for name, each in self.values.items() if isinstance(each, Puzzle)}
        self.unfinished = [each.result for each in self.puzzles.values()]

    def _run(self, source, name):
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        tree = ast.parse(source)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), self.values)
        if last is None:
            return None
        value = eval(compile(ast.Expression(last.value), name, "eval"), self.values)
        str(value)
        return value


executed = cache(Lesson)


@pytest.fixture(params=LESSONS, ids=lambda path: path.stem)
def lesson(request):
    return executed(request.param)


@pytest.fixture(params=[*([] if HAS_MANY_DEVICES else [QUICK_REFERENCE]), *LESSONS], ids=lambda path: path.stem)
def with_puzzles(request):
    return executed(request.param)


def wrong_answer(question):
    form, truth = question.form, question._candidate.truth
    if isinstance(form, Choice):
        return next(choice for choice in form.choices if choice != truth)
    if isinstance(form, Each):
        return [next(choice for choice in form.choices if choice != each) for each in truth]
    if isinstance(form, Order):
        return truth[::-1]
    return 2 * truth + 1 if isinstance(form, Number) else "float16[1, 2, 3]"


def test_questions_are_available_and_answered_right_and_wrong(lesson):
    keys = {(each.text, each.code, each.choices) for each in lesson.questions.values()}
    assert len(keys) == len(lesson.questions) >= FEWEST_QUESTIONS
    for name, question in lesson.questions.items():
        assert question.unavailable is None, name
        candidate = question._candidate
        assert question.result is None, f"{name}: running all cells answers it"
        assert question.check(candidate.truth)
        assert question.check(candidate.form.text(candidate.truth).replace(" < ", ", "))
        for wrong in (wrong_answer(question), ..., None, "", "what?"):
            assert not question.check(wrong), (name, wrong)
        # The cell after the question answers it.
        sources = [cell.source for cell in lesson.notebook.cells]
        at = next(number for number, source in enumerate(sources) if source.endswith(f"\n{name}"))
        assert sources[at + 1] == f"{name}.predict(...)"


def test_right_solutions_solve_the_puzzles(with_puzzles):
    notebook = with_puzzles
    assert notebook.puzzles.keys() == notebook.solutions["RIGHT"].keys() == notebook.solutions["WRONG"].keys()
    assert len(notebook.puzzles) >= 3
    # The cells of the students are unfinished, and do not stop the notebook.
    assert all("it returns nothing yet" in result.reason for result in notebook.unfinished)
    for name, puzzle in notebook.puzzles.items():
        solutions = notebook.solutions["RIGHT"][name]
        assert len(solutions) == 3
        for solution in solutions:
            assert puzzle.check(solution).reason == "", (name, solution)


def test_wrong_solutions_get_their_reason(with_puzzles):
    for name, tries in with_puzzles.solutions["WRONG"].items():
        assert len(tries) >= 4
        for wrong, reason in tries:
            result = with_puzzles.puzzles[name].check(wrong)
            assert not result.right, (name, wrong)
            assert re.search(reason, result.reason), (name, result.reason)


@pytest.mark.skipif(HAS_MANY_DEVICES, reason="this is the process with many devices")
def test_each_mistake_of_the_quick_reference_has_an_exercise_and_a_repair():
    notebook = executed(QUICK_REFERENCE)
    sections = [[]]
    for number, cell in enumerate(notebook.notebook.cells):
        sections += [[]] * bool(re.search(r"^(### \d|## 9)", cell.source, re.M))
        sections[-1] = [*sections[-1], number]
    mistakes = sections[1:-1]
    assert len(mistakes) == 10
    for section in mistakes:
        shown = [notebook.shown.get(number) for number in section]
        assert any(isinstance(value, Question | Puzzle) for value in shown), section
        cells = [notebook.notebook.cells[number] for number in section]
        assert [REPAIR in cell.metadata.get("tags", []) for cell in cells].index(True) == len(section) - 1
        assert cells[-1].metadata["jupyter"]["source_hidden"]
    questions = [value for value in notebook.shown.values() if isinstance(value, Question)]
    assert len(questions) >= 8
    # The question about a mesh needs a compiler that may be missing.
    assert all(question.unavailable is None for question in questions if question.kind != "sharding")


def test_the_saved_notebook_holds_no_answer(lesson):
    for cell in lesson.notebook.cells:
        assert cell.metadata == ({"tags": [IGNORED]} if cell.cell_type == "code" else {})
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None
    assert lesson.notebook.metadata.keys() == {"kernelspec", "language_info"}
    for question in lesson.questions.values():
        candidate = question._candidate
        assert candidate.reason not in lesson.saved
        truth = candidate.form.text(candidate.truth)
        if isinstance(candidate.form, Spec | Each | Order):
            assert truth not in lesson.saved
        if isinstance(candidate.form, Number) and candidate.truth > 99:  # smaller ones are also sizes
            assert str(candidate.truth) not in lesson.saved
            assert truth not in lesson.saved
    for solutions in lesson.solutions["RIGHT"].values():
        for solution in solutions:
            body = inspect.getsource(inspect.unwrap(solution)).partition(":\n")[2]
            assert " ".join(body.split()) not in " ".join(lesson.saved.replace("\\n", " ").split())


def test_a_lesson_states_goals_prerequisites_and_sections(lesson):
    text = "\n".join(cell.source for cell in lesson.notebook.cells if cell.cell_type == "markdown")
    for part in ("**After this lesson you can**", "**You need**", "## Puzzles", "## Summary", "## Further reading"):
        assert part in text
    assert "](http" not in text


@pytest.mark.skipif(HAS_MANY_DEVICES, reason="this is the process with many devices")
def test_lessons_on_many_devices():
    """A process has several devices only from its start, so the tests of these lessons run in another one."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} {MANY_DEVICES}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", __file__]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, env=environment | {"XLA_FLAGS": flags}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
