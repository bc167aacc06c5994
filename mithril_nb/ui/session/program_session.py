"""The part of a session that workbench and explorer share: requests about a program, and its snapshot."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, cast

from mithril_nb.cost import Cost
from mithril_nb.inspection import Inspection
from mithril_nb.stages.given.program import Given
from mithril_nb.stages.stage_kinds import kinds_of_stages
from mithril_nb.ui.session.commands import Client, ProblemData, ProgramView, Publisher, RequestHandler, RequestState
from mithril_nb.ui.session.cost_requests import CostRequests
from mithril_nb.ui.session.cost_tables import CostTableData, placed, table_of
from mithril_nb.ui.session.devices import DeviceRequests
from mithril_nb.ui.session.explanations import ExplanationRequests
from mithril_nb.ui.session.graphs.exports import ExportRequests
from mithril_nb.ui.session.graphs.overlays import OverlayRequests, OverlaySubject
from mithril_nb.ui.session.passes import PassRequests
from mithril_nb.ui.session.snapshot import ProgramSnapshot
from mithril_nb.ui.session.stages import StageState, StatusFigures
from mithril_nb.ui.session.what_if import WhatIfRequests


class ProgramSession(Publisher):
    """A session that shows a program."""

    def _create_handlers(self, device: Any, local: Any, given: Given | None = None) -> tuple[RequestHandler, ...]:
        self._client = Client(self._send, self._publish, self._fail)
        # Costs, their table, paths and hues of the blocks, and the table in that order and with these hues.
        self._costs_shown: tuple[Cost | None, CostTableData | None, Any, CostTableData | None] = (
            None,
            None,
            None,
            None,
        )
        fixed = "" if given is None else given.error().diagnostics[0].summary
        self.devices = DeviceRequests(
            self._program, self._client, self._lock, self._change_device, first=device, local=local, fixed=fixed
        )
        self.passes = PassRequests(self._program, self._client)
        self.explanations = ExplanationRequests(self.stage, self.passes.has_read, self._client)
        self.costs = CostRequests(self._program, self._client, given, measured=lambda: self.overlays.refresh())
        self.what_if = WhatIfRequests(self._program, self._client)
        self.overlays = OverlayRequests(self._overlaid, self._client)
        self.exports = ExportRequests(self._program, self._client)
        return (
            self.devices, self.passes, self.explanations, self.costs, self.what_if, self.overlays, self.exports
        )  # fmt: skip

    @abstractmethod
    def _show_on_device(self) -> None:
        """Show the program on the chosen device."""

    def _change_device(self) -> None:
        self.costs.forget_reasons()
        self._show_on_device()

    @abstractmethod
    def stage(self, name: str) -> tuple[int, Inspection] | None:
        """Return the version and program of the latest text of a stage; `None` without a text."""

    @abstractmethod
    def _program(self) -> ProgramView:
        """Return the program that is shown."""

    @abstractmethod
    def _overlaid(self) -> OverlaySubject | None:
        """Return the graph on which values are shown; `None` while there is none."""

    def _snapshot(
        self,
        version: int,
        name: str,
        backend: str,
        *,
        selection: tuple[str, ...],
        notice: ProblemData | None,
        problems: list[ProblemData],
        cost: Cost | None,
        paths: list[str],
        hues: Mapping[str, int],
        is_stale: bool = False,
        stages: Mapping[str, StageState],
        passes: RequestState,
        status: StatusFigures,
    ) -> ProgramSnapshot:
        latest, table, order, costs = self._costs_shown
        # Each edit and each selection shows the latest costs again.
        if cost and (latest is not cost or order != (paths, hues)):
            table = table if table and latest is cost else table_of(cost)
            costs = placed(table, paths, hues)
            self._costs_shown = cost, table, (paths, hues), costs
        return {
            "version": version,
            "name": name,
            "backend": backend,
            "selection": list(selection),
            "notice": notice,
            "problems": problems,
            "cost": {**costs, "stale": is_stale} if cost and costs else None,
            "costs": {"sources": cast(Any, self.costs.view()), "what_if": self.what_if.view()},
            "device": self.devices.view(),
            "overlay": self.overlays.view(),
            "stages": cast(dict[str, StageState], {stage: vars(state) for stage, state in stages.items()}),
            "stage_kinds": cast(Any, kinds_of_stages()),
            "passes": passes,
            "status": status,
        }
