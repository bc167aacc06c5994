"""The widget of a question: fields for the answer, and the result below. The truth stays in the kernel until then."""

from __future__ import annotations

import threading
from typing import Any

import ipywidgets as widgets
from IPython.display import display

from mithril_nb.display import render, renderer
from mithril_nb.stages.failure import failure_of
from mithril_nb.teach.answers import Choice, Each, Order, Several
from mithril_nb.teach.question import Question
from mithril_nb.ui.widgets.front_end import is_jupyter
from mithril_nb.viz.html_parts import output_html
from mithril_nb.viz.questions import question_body, result_body
from mithril_nb.viz.text import escaped

# If the kernel was busy, ipywidgets 8 sends the click before the newest value of a field, which follows at once.
_WAIT_S = 0.3
_WIDE = {"width": "auto", "max_width": "600px"}
_LINE = {"width": "auto"}
_ROW = {**_WIDE, "display": "flex", "align_items": "baseline"}
"""The label beside the options, so that the lines that a question is about stay in sight."""


class QuestionWidget(widgets.VBox):
    """A question with fields for the answer.

    Attributes:
        question: The question.
        errors: Errors of handlers, latest last.
    """

    def __init__(self, question: Question):
        self.question, self.errors = question, list[Exception]()
        self._fields = _fields(question)
        self._button = widgets.Button(description="Predict", tooltip="Answer; the first answer counts")
        self._result = widgets.HTML()
        card = widgets.HTML(output_html(question_body(question, has_choices=False), "question"))
        is_asked = question.unavailable is None
        super().__init__([card, *self._fields, *([self._button] if is_asked else []), self._result])
        self._button.on_click(self._on_predict)
        if question.result is not None:
            self._show()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None, **options: Any) -> Any:
        parts = super()._repr_mimebundle_(include=include, exclude=exclude, **options)
        data, *rest = parts if isinstance(parts, tuple) else (parts,)
        # A saved notebook shows the question where no kernel runs.
        formats = {**render(self.question), **(data or {})}
        return (formats, *rest) if rest else formats

    def _on_predict(self, _: Any) -> None:
        self._button.disabled = True
        timer = threading.Timer(_WAIT_S, self._predict)
        timer.daemon = True
        timer.start()

    def _predict(self) -> None:
        self._button.disabled = False
        try:
            values = [field.value for field in self._fields]
            if isinstance(self.question.form, Several):
                values = [
                    tuple(text for text, is_marked in zip(self.question.choices, values, strict=True) if is_marked)
                ]
            answer = values[0] if len(values) == 1 else None if None in values else tuple(values)
            result = self.question.predict(answer or None)
            if result.right is None:
                self._result.value = output_html(result_body(result), "question")
            else:
                self._show()
        except Exception as error:  # vanishes in a handler otherwise
            self.errors.append(error)
            self._result.value = f'<p role="alert">{escaped(failure_of(error).text)}</p>'

    def _show(self) -> None:
        for field in (*self._fields, self._button):
            field.disabled = True
        assert self.question.result is not None
        self._result.value = output_html(f'<div role="status">{result_body(self.question.result)}</div>', "question")


def _fields(question: Question) -> list[Any]:
    form = question.form
    if isinstance(form, Choice):
        # The value `None` selects no option.
        return [widgets.RadioButtons(options=form.choices, value=None, layout=_WIDE)]
    if isinstance(form, Several):
        return [widgets.Checkbox(description=text, indent=False, layout=_LINE) for text in form.choices]
    if isinstance(form, Each):
        style = {"description_width": f"{max(map(len, form.items)) + 1}ch"}
        return [
            widgets.RadioButtons(
                options=form.choices, value=None, description=item, orientation="horizontal", style=style, layout=_ROW
            )
            for item in form.items
        ]
    if isinstance(form, Order):
        return [
            widgets.Dropdown(options=form.names, value=None, description=f"{place}.", layout=_WIDE)
            for place in range(1, len(form.names) + 1)
        ]
    if form is None:
        return []
    return [widgets.Text(description="Answer", placeholder=form.hint, continuous_update=False, layout=_WIDE)]


@renderer(Question, kind="live")
def show_question(question: Question) -> None:
    """Show a question as a widget, or as text where no kernel could receive the answer."""
    if is_jupyter():
        display(QuestionWidget(question))
    else:
        display(render(question), raw=True)
