"""The Source tab: code of the user becomes the model, is kept while the canvas edits it, and is never run."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from random_edits import random_edit
from sessions import session_of

from mithril_nb.errors import MithrilError, ModelFileError
from mithril_nb.models import Linear, Model, Relu
from mithril_nb.models.saving.reading import from_source
from mithril_nb.ui.session.autosave import design_from_dict, design_to_dict

TEXT = """from mithril_nb.models import Linear, Model, Relu

net = Model()   # a classifier
# the encoder
net |= Linear( 16 )
net += Relu()
"""


def test_code_becomes_the_model_and_edits_keep_its_lines() -> None:
    session = session_of(Model() + Linear(8) + Relu(), {"input": [4, 3]})
    before = session.design
    session.do("select", paths=["linear_0"])
    session.do("set_source", text=TEXT)
    assert session.design.graph == from_source(TEXT).graph
    assert session.snapshot()["source"] == TEXT
    assert session.selection == ("linear_0",)
    assert session.snapshot()["shapes"] == {"input": [4, 3]}
    session.do("add_block", kind="Gelu", after="relu_0")
    edited = session.snapshot()["source"]
    assert edited == TEXT.replace("Model, Relu", "Model, Relu, Gelu") + "net += Gelu()\n"
    assert design_from_dict(json.loads(json.dumps(design_to_dict(session.design)))) == session.design
    session.do("undo")
    assert session.snapshot()["source"] == TEXT
    session.do("undo")
    assert session.design == before
    session.do("redo")
    assert session.snapshot()["source"] == TEXT


def test_lines_end_as_in_the_editor_of_the_page() -> None:
    session = session_of(Model() + Linear(8), {"input": [4, 3]})
    session.do("set_source", text=TEXT.replace("\n", "\r\n"))
    assert session.snapshot()["source"] == TEXT


def test_applied_code_runs_as_python() -> None:
    session = session_of(Model() + Linear(8) + Relu(), {"input": [4, 3]})
    session.do("set_source", text=TEXT.replace(", Relu", "") + "# the end\nnet += Gelu()\n")
    code = session.snapshot()["source"]
    assert code == TEXT.replace("Model, Relu", "Model, Gelu, Relu") + "# the end\nnet += Gelu()\n"
    scope: dict[str, Any] = {}
    exec(code, scope)
    assert scope["net"].graph == session.design.graph


@pytest.mark.parametrize(
    ("text", "line"),
    [("net = Linear(3", "1"), (TEXT + "import os\nos.remove('x')\n", "8"), (TEXT + "net += Lineer(3)\n", "7"),
     (TEXT + "for _ in range(3):\n    net += Relu()\n", "7"), (TEXT + "net += Linear(-1)\n", None)],
)  # fmt: skip
def test_code_that_is_no_model_is_refused_with_its_line(text: str, line: str | None) -> None:
    session = session_of(Model() + Linear(8) + Relu(), {"input": [4, 3]})
    before = session.design
    with pytest.raises(MithrilError) as caught:
        session.do("set_source", text=text)
    assert session.design == before
    if line is not None:
        assert isinstance(caught.value, ModelFileError)
        assert dict(caught.value.diagnostics[0].facts)["line"] == line


def test_code_of_a_damaged_file_does_not_replace_the_graph() -> None:
    session = session_of(Model() + Linear(8) + Relu(), {"input": [4, 3]})
    data = design_to_dict(session.design)
    for code in ("import os", "net = Linear(3)", 5, None, ["x"]):
        assert design_from_dict({**data, "code": code}) == session.design


@pytest.mark.parametrize("seed", range(12))
def test_code_builds_the_model_after_every_random_edit(seed: int) -> None:
    random = Random(seed)
    session = session_of(Model() + Linear(8) + Relu(), {"input": [4, 3]})
    session.do("set_source", text=TEXT)
    for _ in range(25):
        name, args = random_edit(random, session.design)
        session.run_command(name, args)
        code = session.snapshot()["source"]
        if session.design.graph.nodes:
            assert from_source(code).graph == session.design.graph, code
