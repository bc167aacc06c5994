"""Questions for a page without a kernel: each is a form that contains its answers.

`tools.site.notebooks` registers it in the kernel of a lesson. docs/javascripts/questions.js reads the answers.
"""

from __future__ import annotations

import json
from typing import Any

from IPython.display import HTML, display

from mithril_nb import display as displays
from mithril_nb.graph.spec import ITEM_BYTES
from mithril_nb.teach.answers import Choice, Each, Formula, Number, Order, Several, Spec
from mithril_nb.teach.question import Question, Result
from mithril_nb.viz.html_parts import output_html
from mithril_nb.viz.questions import question_body, result_body
from mithril_nb.viz.text import escaped

ANSWER = "\ue000"
"""The script writes the reader's answer here."""


def frozen_html(question: Question) -> str:
    """Return a question as a form that a script checks."""
    body = question_body(question, has_choices=False)
    if question._candidate is None:
        return output_html(body, "question")
    candidate = question._candidate
    form, truth, reason = candidate.form, candidate.truth, candidate.reason
    lines = question._lines()

    def result(right: bool, reason: str) -> str:
        return result_body(Result(right, ANSWER, form.text(truth), reason, lines=lines))

    answers: dict[str, Any] = {"form": type(form).__name__.lower(), "truth": form.text(truth), "hint": form.hint}
    if isinstance(form, Number):
        answers |= {"unit": form.unit, "number": float(truth)}
    if isinstance(form, Formula):
        answers |= {"points": form.points}
    if isinstance(form, Spec):
        answers |= {"dtypes": [*ITEM_BYTES]}
    near = {
        form.text(wrong): result(False, f"{why} {reason}")
        for wrong, why in candidate.near
        if candidate.misconception(wrong)
    }
    answers |= {"right": result(True, reason), "wrong": result(False, reason), "near": near}
    data = json.dumps(answers).replace("<", "\\u003c")  # a script element ends at any </script>
    fields = "".join(_fields(question, form))
    return output_html(
        f'{body}<form class="mnb-predict" hidden>{fields}<button type="submit">Predict</button></form>'
        f'<div class="mnb-answer" role="status"></div><script type="application/json">{data}</script>',
        "question",
    )


def _fields(question: Question, form: Any) -> list[str]:
    if isinstance(form, Choice):
        return [_options("Answer", form.choices, 0)]
    if isinstance(form, Several):
        return [_options("All that are right", form.choices, 0, "checkbox")]
    if isinstance(form, Each):
        return [_options(item, form.choices, number) for number, item in enumerate(form.items)]
    if isinstance(form, Order):
        options = "".join(f"<option>{escaped(name)}</option>" for name in form.names)
        count = range(1, len(form.names) + 1)
        return [f"<label>{place}. <select><option></option>{options}</select></label>" for place in count]
    return [f'<label>Answer <input type="text" autocomplete="off" placeholder="{escaped(form.hint)}"></label>']


def _options(legend: str, choices: tuple[str, ...], number: int, kind: str = "radio") -> str:
    # The script gives each question names of its own.
    options = "".join(
        f'<label><input type="{kind}" name="{number}" value="{escaped(choice)}"> {escaped(choice)}</label>'
        for choice in choices
    )
    return f"<fieldset><legend>{escaped(legend)}</legend>{options}</fieldset>"


def register() -> None:
    """Show questions as such forms, in this kernel."""
    displays.widgets()  # its renderer of questions is replaced

    @displays.renderer(Question, kind="live")
    def show(question: Question) -> None:
        display(HTML(frozen_html(question)))
