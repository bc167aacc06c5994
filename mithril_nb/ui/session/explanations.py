"""Explanations of lines for a front end, made on request from stages and passes that are computed already."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

from mithril_nb.inspection import Inspection
from mithril_nb.stages.instruction_history import STAGES_WITH_HISTORY
from mithril_nb.stages.stage_kinds import STAGE_KINDS
from mithril_nb.teach.explain import Explainer
from mithril_nb.ui.session.commands import Client, Reply, RequestHandler, check_choice, command

# Reading the passes may compile the program, which the user starts in the tab Passes.
_NO_PASSES = "Known after the passes are read, in the tab Passes."


class ExplanationHead(TypedDict):
    """The explanation of a line of a stage, in the version of its latest text."""

    stage: str
    index: int
    version: int
    code: str
    clauses: list[tuple[str, str, str]]  # kind, statement, and the datum that it is made from


class ExplanationRequests(RequestHandler):
    """Explains lines.

    Args:
        latest: A function that returns version and program of the latest text of a stage; `None` without a text.
        has_passes: A function that returns whether the passes of a program were read.
        client: The front end.
    """

    def __init__(
        self,
        latest: Callable[[str], tuple[int, Inspection] | None],
        has_passes: Callable[[Inspection], bool],
        client: Client,
    ):
        super().__init__(client, "explanations", "explanations")
        self._latest, self._has_passes = latest, has_passes

    @command
    def request_explanation(self, stage: str, index: int) -> None:
        """Send the explanation of an instruction of a stage; its fate only if the passes were read."""
        check_choice("stage", stage, STAGE_KINDS, "jaxpr")
        self._quick.submit(lambda _: self._explain(stage, int(index)), "explanation")

    def _explain(self, stage: str, index: int) -> None:
        latest = self._latest(stage)
        instructions = latest[1].stage(stage).instructions if latest else ()
        if latest is None or not 0 <= index < len(instructions):
            return
        version, program = latest
        has_fate = self._has_passes(program)
        explanation = Explainer(program, has_fate=has_fate).of(stage, instructions[index])
        clauses = [(str(clause.kind), clause.text, clause.source) for clause in explanation.clauses]
        if not has_fate and stage in STAGES_WITH_HISTORY and not explanation["fate"]:
            clauses.append(("fate", _NO_PASSES, "passes"))
        head = ExplanationHead(stage=stage, index=index, version=version, code=explanation.code, clauses=clauses)
        self._client.send("explanation", Reply(head))
