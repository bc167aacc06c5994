"""`ml.explore`: a program as one widget: its graph, its stages side by side and linked, its costs and passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import anywidget
import traitlets
from ipywidgets import widget_serialization

from mithril_nb.errors import Diagnostic
from mithril_nb.session.analysis import problem_of
from mithril_nb.session.exploring import Exploration
from mithril_nb.session.lazy import LazyStages
from mithril_nb.session.picture import Picture
from mithril_nb.stages import Inspection
from mithril_nb.targets import inspect
from mithril_nb.viz.bundles import bundle
from mithril_nb.widgets.assets import built, shared_assets
from mithril_nb.widgets.guard import shown_in_widget
from mithril_nb.widgets.protocol import Message, packed, passes_message, stage_message, text_message
from mithril_nb.widgets.twin import Twin, live_bundle


class Explorer(anywidget.AnyWidget):
    """A program to look at: graph, linked stages, costs and passes in one widget. Made by `explore`.

    Attributes:
        inspection: The program.
        session: What is behind it.
        errors: Everything that went wrong in handlers and threads, latest last.
    """

    assets = traitlets.Instance(anywidget.AnyWidget).tag(sync=True, **widget_serialization)
    snapshot = traitlets.Dict().tag(sync=True)

    def __init__(self, inspection: Inspection):
        self.session = Exploration(inspection)
        self._twin = Twin(lambda: bundle(inspection), self.session.errors, {"text/plain": repr(inspection)})
        self._is_plain = False
        self._esm = built("explorer.js")
        super().__init__(assets=shared_assets(), snapshot=self.session.snapshot())
        self._unlisten = self.session.listen(self._hear)
        self.on_msg(self._receive)

    def __repr__(self) -> str:
        return f"Explorer({self.inspection!r})"

    @property
    def inspection(self) -> Inspection:
        """The program."""
        return self.session.inspection

    @property
    def stages(self) -> Mapping[str, Any]:
        """Its stages by name, each made when it is asked for."""
        return LazyStages(self.inspection)

    @property
    def errors(self) -> list[BaseException]:
        """Everything that went wrong in handlers and threads, latest last."""
        return self.session.errors

    def close(self) -> None:
        """Close the widget; the program stays."""
        self._unlisten()
        self.session.end()
        self._twin.end()
        super().close()

    # From the front end

    @shown_in_widget
    def _receive(self, _widget: Any, content: Mapping[str, Any], _buffers: Sequence[Any]) -> None:
        if content.get("type") != "command":
            return
        self._twin.put_off()
        name, args = str(content.get("name")), dict(content.get("args") or {})
        if name == "hello":
            problem = self._greet(is_plain=bool(args.get("plain")))
        elif name == "request_stage":
            problem = self._send_stage(str(args.get("stage")), short=bool(args.get("short")))
        else:
            problem = self.session.run_command(name, args)
        self.send(
            {"type": "reply", "id": content.get("id"), "ok": problem is None, "error": problem and problem.to_dict()}
        )

    def _greet(self, *, is_plain: bool) -> Diagnostic | None:
        """Send a page, which may have been loaded anew, what it cannot know: the picture and the passes."""
        self._is_plain = is_plain
        picture = self.session.picture()
        if picture is not None:
            self._hear("graph", picture)
        if self.session.passes:
            self._hear("passes", self.session.passes)
        return None

    def _send_stage(self, name: str, *, short: bool) -> Diagnostic | None:
        problem = self.session.run_command("want_stage", {"stage": name})
        if problem is None and self.session.is_there(name):
            try:
                self._deliver(stage_message(name, 1, self.inspection, short=short, is_plain=self._is_plain))
            except Exception as error:  # a text in short that cannot be made: the reply says why
                self.session.errors.append(error)
                return problem_of(error)
        return problem

    def _deliver(self, message: Message) -> None:
        self.send(*message)

    # From the session, on any thread

    @shown_in_widget
    def _hear(self, kind: str, value: Any) -> None:
        if kind == "snapshot":
            self.snapshot = value
            self._twin.refresh()
        elif kind == "graph":
            self._deliver(_graph_message(value, self._is_plain))
        elif kind == "passes":
            self._deliver(passes_message(value, 1, self._is_plain))
        elif kind == "diff":
            self._deliver(
                text_message({"type": "diff", "number": value.number, "cut": value.is_cut}, value.text, self._is_plain)
            )
        elif kind == "fate":
            self.send({"type": "fate", **asdict(value)})

    def _ipython_display_(self) -> None:
        self.session.start()
        self._twin.show(*live_bundle(super()._repr_mimebundle_()))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        self.session.start()
        live, metadata = live_bundle(super()._repr_mimebundle_(include=include, exclude=exclude))
        return {**live, **bundle(self.inspection)}, metadata


def _graph_message(picture: Picture, is_plain: bool) -> Message:
    data = {"svg": picture.svg, "nodes": [asdict(node) for node in picture.nodes]}
    return {"type": "graph", "stage": picture.stage}, [packed(data, is_plain)]


def explore(target: Any, *args: Any, **options: Any) -> Explorer:
    """Look at a program in the notebook: its graph, its stages side by side and linked line by line, costs, passes.

    Args:
        target: What `ml.inspect` takes, or what it gave.
        *args: What it is called with, as in `ml.inspect`.
        **options: As in `ml.inspect`.

    Returns:
        The widget; the last expression of a cell shows it.

    Raises:
        UnknownOptionError: Something that cannot be inspected; arguments for what is inspected already.

    Examples:
        >>> import jax.numpy as jnp
        >>> explore(jnp.sin, jnp.zeros(3))
        Explorer(Inspection('sin', made: nothing yet))
    """
    if isinstance(target, Inspection) and not args and not options:
        return Explorer(target)
    return Explorer(inspect(target, *args, **options))
