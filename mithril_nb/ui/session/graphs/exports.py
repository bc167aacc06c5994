"""Files that a front end offers for download. Nothing is computed or sent before the user requests one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from mithril_nb.inspection import Inspection
from mithril_nb.models.model import Model
from mithril_nb.models.saving.formats import to_dict
from mithril_nb.stages.once import paused_collector
from mithril_nb.ui.session.commands import Client, Reply, RequestHandler, check_choice, command


@dataclass(frozen=True)
class ExportSubject:
    """The program and the model that a front end shows."""

    inspection: Callable[[], Inspection]  # function that returns the inspection of the program
    model: Model | None = None  # the model; `None` if the program does not come from a model


def _page(subject: ExportSubject) -> str:
    return subject.inspection().to_html()


def _stages(subject: ExportSubject) -> str:
    # The texts before and after each pass can be a hundred times larger than the rest.
    return subject.inspection().to_json(passes=False)


def _model(subject: ExportSubject) -> str:
    assert subject.model is not None
    return json.dumps(to_dict(subject.model), indent=1)


def _link(subject: ExportSubject) -> str:
    assert subject.model is not None
    return subject.model.share_link()


_FORMATS: dict[str, Callable[[ExportSubject], str]] = {"html": _page, "json": _stages, "model": _model, "link": _link}
_OF_MODELS = ("model", "link")
"""Formats that need a model, and do not compile the program."""


class ExportRequests(RequestHandler):
    """Makes files on request."""

    def __init__(self, subject: Callable[[], ExportSubject], client: Client):
        super().__init__(client, "exports", "export-compile")
        self._subject = subject

    @command('format="html"')
    def request_export(self, format: str) -> None:
        """Send the text of a file."""
        subject = self._subject()
        check_choice(
            "format", format, [name for name in _FORMATS if subject.model is not None or name not in _OF_MODELS]
        )
        worker = self._quick if format in _OF_MODELS else self._slow
        worker.submit(lambda _: self._make(subject, format), format)

    def _make(self, subject: ExportSubject, format: str) -> None:
        head = {"format": format, "problem": ""}
        try:
            with paused_collector():
                text = _FORMATS[format](subject)
        except Exception as error:  # the front end shows it
            self._client.send("export", Reply({**head, "problem": self._problem_of(error).summary}))
            return
        self._client.send("export", Reply(head, text))
