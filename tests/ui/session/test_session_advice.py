"""The advice in errors of a session works."""

from __future__ import annotations

import pytest
from advice import check, chosen

SESSION = """
        from mithril_nb.errors import MithrilError
        from mithril_nb.ui.session import Session, design_of
        from mithril_nb.ui.session.exploring import Exploration
        model = Model() | Linear(8); model += Relu(); model += MLP(8, [4], 2)
        session = Session(design_of(model, {"input": [4, 3]}), ml.JaxBackend())"""

CASES = {
    "ui/session/commands.py:check_arguments": f"""{SESSION}
        session.do("select", paths=3)
        """,
    "ui/session/cost_requests.py:CostRequests.request_cost_picture": f"""{SESSION}
        session.do("request_cost_picture", key="map", view="beside", sources=["analytic"])
        """,
    "ui/session/what_if.py:checked_changes": f"""{SESSION}
        session.do("apply_what_if", changes=[3])
        """,
    "ui/session/design.py:_place": f"""{SESSION}
        session.do("set_attribute", path="", name="dimension", value=3)
        """,
    "ui/session/passes.py:PassRequests._known_reading": f"""{SESSION}
        session.do("request_instruction_history", stage="hlo", index=0)
        # Try: wb = session; {{}}
        """,
    "ui/session/commands.py:check_command": f"""{SESSION}
        session.do("slect", paths=["linear_0"])
        # Try: wb = session; {{}}
        """,
    "ui/session/design.py:set_attribute.change": f"""{SESSION}
        session = Session(design_of(Model() | (Model(name="body") | Linear(3)), {{}}), ml.JaxBackend())
        session.do("set_attribute", path="body", name="dimension", value=3)
        # Try: session.do("set_attribute", {{}}, name="dimension", value=4)
        """,
    "ui/session/design.py:with_shape": f"""{SESSION}
        session.do("set_shape", name="input", shape=[-1, 2])
        """,
    "ui/session/design.py:set_shape": f"""{SESSION}
        session.do("set_shape", name="inpt", shape=[4, 3])
        """,
    "ui/session/design.py:_ends": f"""{SESSION}
        session.do("connect", source="relu_0.output", target="mlp_0/linear_1.input")
        """,
    "ui/session/design.py:design_of": "ml.workbench(3)",
    "ui/session/snapshot.py:place_of": f"""{SESSION}
        session.do("move", path="linear_0", x="a", y=1)
        """,
    "ui/session/editor.py:change_of": f"""{SESSION}
        session.do("apply_what_if", changes=[["", "dtype", "bfloat16"]])
        """,
    "ui/session/training.py:Training._run_to": f"""{SESSION}
        session.do("pause")
        # Try: wb = ml.workbench(model, data=(np.ones((32, 3)), np.zeros(32, int)), shapes={{"input": [4, 3]}}); {{}}; wb.run.stop()
        """,
    "ui/session/training.py:Training._start": f"""{SESSION}
        x, y = np.ones((32, 3)), np.zeros(32, int)
        session.do("train")
        # Try: ml.workbench(model, shapes={{"input": [4, 3]}}, {{}}).session.do("step_once")
        """,
    "ui/session/training.py:Training._start#2": f"""{SESSION}
        session = Session(design_of(Model(), {{}}), ml.JaxBackend(), {{"data": (np.ones((8, 3)), np.zeros(8, int))}})
        session.do("train")
        # Try: ml.workbench(model, data=(np.ones((8, 3)), np.zeros(8, int)))
        """,
    "ui/session/training.py:Training._start#3": """
        model = Model() | Linear(3)(input="x", output="features") | Linear(2)(input="x", output="logits")
        options = dict(shapes={"x": [4, 3]}, data=(np.ones((32, 3)), np.zeros(32, int)))
        ml.workbench(model, **options).session.do("step_once")
        # Try: ml.workbench(model, **options, {}).session.do("step_once")
        """,
    "ui/session/analysis.py:Analysis.with_sizes_of": """
        model = Model() | Add()(left="a", right="b", output=IOKey("output"))
        data = {"a": np.ones((32, 3)), "b": np.ones((32, 1))}, np.ones((32, 3))
        def step(shapes):
            ml.workbench(model, shapes=shapes, data=data, loss="mean_squared_error").session.do("step_once")
        step({"a": ["batch", "n"], "b": ["batch", "n"]})
        # Try: wb = ml.workbench(model, shapes={"a": ["batch", "n"], "b": ["batch", "n"]}, data=data, loss="mean_squared_error"); {}; wb.session.do("step_once")
        """,
    "ui/session/autosave.py:Autosave.accepted#2": """
        from mithril_nb.ui.session import Session, design_of
        from mithril_nb.ui.session.autosave import Autosave
        import tempfile; file = new_path(tempfile.mkdtemp()) / "cell.json"
        start = Model.of_block(Block("Relu", (("by", 1j),), (Port("input"),), (Port("output"),), op="relu"))
        def opened(model):
            return Session(design_of(model, {}), ml.JaxBackend(), None, lambda design: Autosave(file, design))
        edited = opened(start); edited.run_command("add_block", {"kind": "Tanh"}); edited.end()
        session = opened(start); difference = session.snapshot()["autosave"]["offer"]["difference"]
        session.do("restore_edits")
        # Try: model = Model() | start\\nfor line in difference.splitlines():\\n    if line[0] == "+": exec(line[1:], globals())\\nassert opened(model).snapshot()["autosave"]["offer"] is None
        """,
    "ui/session/commands.py:check_command#2": f"""{SESSION}
        def run_command(name, args):
            if problem := session.run_command(name, args):
                raise MithrilError(problem)
        run_command("rename", ["linear_0", "encoder"])
        """,
    "ui/session/commands.py:check_choice": f"""{SESSION}
        session.do("request_cost", source="compild")
        """,
    "ui/session/design.py:set_output": f"""{SESSION}
        session.do("set_output", output="logit")
        """,
}


@pytest.mark.parametrize("case", chosen(CASES))
def test_advice_works(case: str) -> None:
    check(CASES, case)
