"""*My blocks*: a saved block is inserted as it was; files that cannot be used say why and change nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from sessions import session_of

from mithril_nb.errors import MithrilError
from mithril_nb.graph.edit import node_of
from mithril_nb.models import GPT, MLP, Linear, Model, Relu
from mithril_nb.models.saving.formats import load, save
from mithril_nb.ui.session import Session
from mithril_nb.ui.session.graphs.fits import fits

STEM = "my_blocks/stem.json"


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def session() -> Session:
    return session_of(Model() + Linear(8) + Relu() + MLP(8, [4], 8), {"input": [4, 3]})


def entries(session: Session) -> dict[str, str]:
    palette = session.snapshot()["palette"]
    return {entry["kind"]: entry.get("problem", "") for entry in palette if entry["category"] == "My blocks"}


@pytest.mark.parametrize("path", ["stem", "stem/linear_0", "mlp_0", ""])
def test_a_saved_block_is_inserted_as_it_was(session: Session, path: str) -> None:
    session.do("group", paths=["linear_0", "relu_0"], name="stem")
    session.do("set_trainable", names=["stem"], is_trainable=False)
    session.do("set_initializer", parameter="stem/linear_0.weight", initializer="he_normal")
    edits = session.edit_labels
    session.do("save_block", path=path, name="mine")
    assert (session.edit_labels, entries(session)) == (edits, {"my_blocks/mine.json": ""})
    blocks = dict(session.design.graph.walk())
    block = blocks[path].block if path else Model.of(session.design.graph).block
    for edit in ("add_block", "place_block", "replace_block"):
        where = {"path": "mlp_0"} if edit == "replace_block" else {}
        session.do(edit, kind="my_blocks/mine.json", **where)
        (added,) = session.selection
        assert added.startswith("mine")
        assert node_of(session.design.graph, added).block == block
        if path:  # frozen or not, as it was
            own = [a for a in session.analysis.inference.parameters if a.name.startswith(f"{added}.")]
            assert {array.is_trainable for array in own} == {path == "mlp_0"}
            if path != "mlp_0":
                assert {a.initializer.name for a in own if a.name.endswith("weight")} == {"he_normal"}
    code = session.commands_so_far.to_python()
    assert "wb.do('place_block', kind='my_blocks/mine.json')" in code
    for _ in range(3):
        session.do("undo")
    assert dict(session.design.graph.walk()) == blocks
    model = load("my_blocks/mine.json")
    assert (Model() + model).graph.inputs == (Model() + Model.of_block(block)).graph.inputs


def test_a_kind_with_arguments_keeps_them(session: Session) -> None:
    session.set_design(session_of(Model() + GPT(16, 8, layers=1, heads=2, width=8)).design)
    session.do("save_block", path="gpt_0", name="stem")
    session.do("add_block", kind=STEM)
    assert session.design.graph.by_name["stem"].block == session.design.graph.by_name["gpt_0"].block
    session.do("set_attribute", path="stem", name="layers", value=2)
    assert session.design.graph.by_name["stem"].block.kind == "GPT"


def test_it_is_inserted_into_a_wire_and_offered_where_it_fits(session: Session) -> None:
    session.do("save_block", path="mlp_0", name="stem")
    session.do("place_block", kind=STEM, source="linear_0.output", target="relu_0.input")
    ends = {str(edge.source): str(edge.target) for edge in session.design.graph.edges}
    assert (ends["linear_0.output"], ends["stem.output"]) == ("stem.input", "relu_0.input")
    assert fits(session.analysis.inference, "linear_0.output")[STEM] == "(4, 8)"


def test_files_that_cannot_be_used_say_why_and_change_nothing(session: Session) -> None:
    folder = Path("my_blocks")
    folder.mkdir()
    model = (Model() + Linear(3)).to_dict()
    unknown = json.loads(json.dumps(model).replace("Linear", "Liner"))
    texts = {
        "newer": json.dumps({**model, "version": 99}),
        "unknown": json.dumps(unknown),
        "empty": json.dumps(Model().to_dict()),
        "broken": "{",
        "large": " " * 2_000_001,
        "<img src=x onerror=alert(1)>": "[]",
        "a b": json.dumps(model),
    }
    for name, text in texts.items():
        (folder / f"{name}.json").write_text(text)
    os.mkfifo(folder / "pipe.json")  # reading it would never end
    (folder / "folder.json").mkdir()
    session.do("rename", path="linear_0", name="first")  # any edit reads the folder
    problems = {kind.removeprefix("my_blocks/").removesuffix(".json"): why for kind, why in entries(session).items()}
    assert problems.keys() == texts.keys()
    assert "version 99" in problems["newer"]
    assert "Liner" in problems["unknown"]
    assert "no blocks" in problems["empty"]
    assert "not valid JSON" in problems["broken"]
    assert "2,000,001 bytes" in problems["large"]
    assert problems["a b"] == ""
    before = session.design
    for name, why in problems.items():
        if why:
            for edit in ({"edit": "add_block"}, {"edit": "replace_block", "path": "first"}):
                with pytest.raises(MithrilError):
                    session.do(edit.pop("edit"), kind=f"my_blocks/{name}.json", **edit)
    assert session.design is before
    session.do("add_block", kind="my_blocks/a b.json")


@pytest.mark.parametrize("name", ["", "a/b", "../up", "a b", "a\0b", ".hidden", "x" * 300])
def test_names_that_are_no_files_are_refused(session: Session, name: str) -> None:
    with pytest.raises(MithrilError):
        session.do("save_block", path="linear_0", name=name)
    assert entries(session) == {}
    assert not [*Path().rglob("*.json")]


def test_a_file_is_neither_replaced_nor_deleted_by_mistake(session: Session) -> None:
    session.do("save_block", path="linear_0", name="stem")
    text = Path(STEM).read_text()
    with pytest.raises(MithrilError, match="exists"):
        session.do("save_block", path="relu_0", name="stem")
    save(Model() + Linear(3), "other.json")
    for kind in ("other.json", "my_blocks/../other.json", "Linear", "my_blocks/none.json"):
        with pytest.raises(MithrilError, match="unknown kind"):
            session.do("delete_block", kind=kind)
    assert (Path(STEM).read_text(), Path("other.json").exists()) == (text, True)
    session.do("delete_block", kind=STEM)
    assert entries(session) == {}
    with pytest.raises(MithrilError, match="no blocks"):
        session_of().do("save_block", path="", name="stem")
