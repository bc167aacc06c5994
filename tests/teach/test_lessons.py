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
from pathlib import Path

import nbformat
import pytest

from mithril_nb.teach import Puzzle, Question
from mithril_nb.teach.answers import Choice, Each, Number, Order, Spec
from tools.notebooks import IGNORED, is_lesson

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
MANY_DEVICES = "--xla_force_host_platform_device_count=8"
HAS_MANY_DEVICES = MANY_DEVICES in os.environ.get("XLA_FLAGS", "")
LESSONS = [
    path
    for path in sorted(NOTEBOOKS.glob("*.ipynb"))
    if is_lesson(path) and (MANY_DEVICES in path.read_text(encoding="utf-8")) == HAS_MANY_DEVICES
]
FEWEST_QUESTIONS = 10


class Lesson:
    """A lesson whose code cells have run, with its questions and puzzles by name, and the module of its solutions."""

    def __init__(self, path):
        flags = os.environ.get("XLA_FLAGS")
        self.notebook = nbformat.read(path, as_version=4)
        self.saved = path.read_text(encoding="utf-8")
        self.solutions = runpy.run_path(str(NOTEBOOKS / "solutions" / f"{path.stem}.py"))
        self.values = {"__name__": "__main__"}
        for number, cell in enumerate(self.notebook.cells):
            if cell.cell_type == "code":
                self._run(cell.source, f"{path.stem}-{number}")
        if flags is not None:  # a lesson adds a flag
            os.environ["XLA_FLAGS"] = flags
        self.questions = {name: each for name, each in self.values.items() if isinstance(each, Question)}
        self.puzzles = {name: each for name, each in self.values.items() if isinstance(each, Puzzle)}
        self.unfinished = [each.result for each in self.puzzles.values()]

    def _run(self, source, name):
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        tree = ast.parse(source)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), self.values)
        if last is not None:
            str(eval(compile(ast.Expression(last.value), name, "eval"), self.values))


@pytest.fixture(scope="module", params=LESSONS, ids=lambda path: path.stem)
def lesson(request):
    return Lesson(request.param)


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


def test_right_solutions_solve_the_puzzles(lesson):
    assert lesson.puzzles.keys() == lesson.solutions["RIGHT"].keys() == lesson.solutions["WRONG"].keys()
    assert len(lesson.puzzles) == 3
    # The cells of the students are unfinished, and do not stop the notebook.
    assert all("it returns nothing yet" in result.reason for result in lesson.unfinished)
    for name, puzzle in lesson.puzzles.items():
        solutions = lesson.solutions["RIGHT"][name]
        assert len(solutions) == 3
        for solution in solutions:
            assert puzzle.check(solution).reason == "", (name, solution)


def test_wrong_solutions_get_their_reason(lesson):
    for name, tries in lesson.solutions["WRONG"].items():
        assert len(tries) >= 4
        for wrong, reason in tries:
            result = lesson.puzzles[name].check(wrong)
            assert not result.right, (name, wrong)
            assert re.search(reason, result.reason), (name, result.reason)


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
