"""Questions about a live program. The first answer counts; a wrong answer gets its reason, made from the program."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from mithril_nb.display import Shown, draw
from mithril_nb.stages.records import Stage
from mithril_nb.teach.answers import Each, Form, Order, Unreadable

_MOST_LINES = 8
Marks = tuple[tuple[str, tuple[str, ...]], ...]
"""Pairs of a stage and ids of its instructions."""


@dataclass(frozen=True)
class Candidate:
    """A question with two independent answers. It is asked only if they agree.

    Attributes:
        text: The question.
        form: The form of its answer.
        truth: The answer by this package.
        second: The answer by the second oracle.
        reason: Why the truth is true: one or two sentences made from the program.
        near: Pairs of a wrong answer and the misconception that leads to it.
        code: Lines of the program that the question is about.
        marks: The instructions that show the truth.
    """

    text: str
    form: Form
    truth: Any
    second: Any
    reason: str
    near: tuple[tuple[Any, str], ...] = ()
    code: str = ""
    marks: Marks = ()

    @property
    def agrees(self) -> bool:
        """True if both oracles have the same answer."""
        return self.truth == self.second

    def misconception(self, answer: Any) -> str:
        """Return the misconception behind a wrong answer; `""` if none or several lead to it."""
        reasons = [why for wrong, why in self.near if self.form.same(answer, wrong)]
        return reasons[0] if len(reasons) == 1 else ""


@dataclass(frozen=True)
class Result(Shown):
    """The result of an answer.

    Attributes:
        right: True if the answer is right; `None` if there is no answer yet, or it does not have the form that is asked
            for.
        answer: The answer as text; `""` if there is none.
        truth: The right answer as text; `""` if there is no answer yet.
        reason: Why, made from the program; or what is missing.
        note: That an earlier answer counts; else `""`.
        lines: Pairs of a stage, such as `"hlo"`, and a line of it that shows the reason.
    """

    right: bool | None
    answer: str = ""
    truth: str = ""
    reason: str = ""
    note: str = ""
    lines: tuple[tuple[str, str], ...] = ()


class Question(Shown):
    """A question about a program. Create it with `ml.teach.ask`.

    Its truth is not in its text, its picture or its attributes, so a notebook with it can be handed out.

    Attributes:
        kind: Kind of the question, such as `"cost"`.
        text: The question, with device and version of JAX where the answer depends on them.
        code: Lines of the program that it is about; `""` if none.
        hint: What to answer, with an example.
        unavailable: Why there is no such question about the program; `None` if there is.
    """

    def __init__(
        self,
        kind: str,
        candidate: Candidate | None,
        unavailable: str | None = None,
        read: Callable[[str], Stage] | None = None,
    ):
        self._read = read
        self.kind, self.unavailable = kind, unavailable
        self.text = unavailable or "" if candidate is None else candidate.text
        self.code = "" if candidate is None else candidate.code
        self.hint = "" if candidate is None else candidate.form.hint
        self._candidate = candidate
        # With the truth: the function may have changed since a question with the same text was answered.
        parts = () if candidate is None else (candidate.form, candidate.truth, candidate.reason, candidate.marks)
        about = "\n".join((kind, self.text, self.code, repr(parts)))
        self._key = hashlib.sha256(about.encode()).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"Question({self.kind!r}, {self.text!r})"

    @property
    def form(self) -> Form | None:
        """The form of the answer; `None` if there is no question."""
        return None if self._candidate is None else self._candidate.form

    @property
    def choices(self) -> tuple[str, ...]:
        """The answers to choose from; `()` for other forms."""
        form = self.form
        return form.names if isinstance(form, Order) else getattr(form, "choices", ())

    @property
    def items(self) -> tuple[str, ...]:
        """The items that each need a choice; `()` for other forms."""
        return self.form.items if isinstance(self.form, Each) else ()

    @property
    def result(self) -> Result | None:
        """The result of the first answer; `None` before it."""
        return _FIRST.get(self._key)

    def predict(self, answer: Any = None) -> Result:
        """Answer the question, and return the truth with its reason. The first answer counts.

        The first answer to a question counts until the kernel ends, also if its cell runs again.

        Args:
            answer: The answer, as in `hint`. `None` and `...` are no answer yet.

        Examples:
            >>> import jax.numpy as jnp, mithril_nb as ml
            >>> p = ml.inspect(jnp.matmul, jnp.zeros((2, 3)), jnp.zeros((3, 4)))
            >>> question = ml.teach.ask(p, "spec")
            >>> result = question.predict("float32[2, 3]")
            >>> result.right, result.truth
            (False, 'float32[2, 4]')
        """
        if self._candidate is None:
            return Result(None, reason=self.unavailable or "")
        if answer is None or answer is ...:
            return Result(None, reason=f"no answer yet: answer with {self.hint}.")
        candidate, first = self._candidate, _FIRST.get(self._key)
        try:
            value = candidate.form.read(answer)
        except Unreadable as problem:
            return Result(None, reason=f"{problem}.")
        if first is not None:
            later = candidate.form.text(value)
            note = "" if later == first.answer else f"Your first answer, {first.answer}, counts."
            return replace(first, note=note)
        right = candidate.form.same(value, candidate.truth)
        misconception = candidate.misconception(value)
        reason = candidate.reason if right or not misconception else f"{misconception} {candidate.reason}"
        result = Result(
            right, candidate.form.text(value), candidate.form.text(candidate.truth), reason, lines=self._lines()
        )
        _FIRST[self._key] = result
        return result

    def _lines(self) -> tuple[tuple[str, str], ...]:
        marks = () if self._candidate is None or self._read is None else self._candidate.marks
        lines: list[tuple[str, str]] = []
        for name, ids in marks:
            stage = self._read(name)  # pyright: ignore[reportOptionalCall]
            text = stage.text.split("\n")
            lines += [(name, text[each.line - 1].strip()) for each in stage.instructions if each.id in ids][
                :_MOST_LINES
            ]
        return tuple(lines)

    def _ipython_display_(self) -> None:
        draw(self, "live")

    def check(self, answer: Any) -> bool:
        """Return whether an answer is right, and reveal nothing else. It does not count as the first answer.

        For graders: anything that is no answer is wrong, and raises no error.
        """
        if self._candidate is None:
            return False
        try:
            return self._candidate.form.same(self._candidate.form.read(answer), self._candidate.truth)
        except Exception:  # Unreadable, or what a method of the answer raises
            return False


# By key of the question, until the kernel ends.
_FIRST: dict[str, Result] = {}


@dataclass(frozen=True)
class Score(Shown):
    """How many questions were answered, and how many of the first answers were right.

    Attributes:
        right: Number of right first answers.
        answered: Number of questions with an answer.
        results: The results of the first answers, in the order of the answers.
    """

    right: int
    answered: int
    results: tuple[Result, ...] = field(repr=False)


def score() -> Score:
    """Return the score of all questions that were answered since the kernel started."""
    results = tuple(_FIRST.values())
    return Score(sum(result.right is True for result in results), len(results), results)
