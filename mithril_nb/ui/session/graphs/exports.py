"""Files that a front end offers for download. Nothing is computed or sent before the user requests one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypedDict

from mithril_nb.models.model import Model
from mithril_nb.models.saving.formats import to_dict, to_source
from mithril_nb.stages.once import paused_collector
from mithril_nb.ui.session.commands import Client, ProgramView, Reply, RequestHandler, check_choice, command
from mithril_nb.ui.session.design import part_at

_OF_PROGRAMS: dict[str, Callable[[Any], str]] = {
    "html": lambda inspection: inspection.to_html(),
    # The texts before and after each pass can be a hundred times larger than the rest.
    "json": lambda inspection: inspection.to_json(passes=False),
}
_OF_MODELS: dict[str, Callable[[Any], str]] = {
    "model": lambda model: json.dumps(to_dict(model), indent=1),
    "python": to_source,
    "link": lambda model: model.share_link(),
}


class ExportHead(TypedDict):
    """The format of a file, which is the data of the message, or why it could not be made."""

    format: str
    problem: str


class ExportRequests(RequestHandler):
    """Makes files on request."""

    def __init__(self, program: Callable[[], ProgramView], client: Client):
        super().__init__(client, "exports", "export-compile")
        self._program = program

    @command
    def request_export(self, format: str, paths: Sequence[str] = ()) -> None:
        """Send the text of a file: `"html"`, `"json"`, `"model"` as `Model.save`, `"link"`, or `"python"`.

        The last three may contain only the blocks at `paths`, which are in one group.
        """
        program = self._program()
        if paths and program.model is not None:
            program = replace(program, model=Model.of(part_at(program.model.graph, paths)))
        check_choice("format", format, [*_OF_PROGRAMS, *(_OF_MODELS if program.model is not None else ())])
        worker = self._quick if format in _OF_MODELS else self._slow
        worker.submit(lambda _: self._make(program, format), format)

    def _make(self, program: ProgramView, format: str) -> None:
        head = ExportHead(format=format, problem="")
        try:
            with paused_collector():
                is_of_model = format in _OF_MODELS
                text = _OF_MODELS[format](program.model) if is_of_model else _OF_PROGRAMS[format](program.inspection())
        except Exception as error:  # the front end shows it
            self._client.send("export", Reply({**head, "problem": self._problem_of(error).summary}))
            return
        self._client.send("export", Reply(head, text))
