"""The advice of errors of the command line works."""

from __future__ import annotations

import pytest
from advice import check, chosen

MODEL = """
        ml.save(Model() | Linear(3), "model.json")"""
CASES = {
    "cli/show.py:cannot_write": f"""{MODEL}
        cli("report model.json --shape input=2,4 -o a/b/c.html")
        # Try: cli("report model.json --shape input=2,4 {{}}")
        """,
    "cli/compare.py:_check_stage": f"""{MODEL}
        cli("compare model.json model.json --stage jaxpr")
        # Try: cli("compare model.json model.json --stage jaxpr {{}}".replace("32,784", "2,4"))
        """,
    "cli/compare.py:_check_stage#2": f"""{MODEL}
        cli("compare model.json model.json --shape input=2,4 --stage jaxp")
        # Try: cli("compare model.json model.json --shape input=2,4 {{}}")
        """,
    "cli/show.py:_check_options": f"""{MODEL}
        cli("show model.json --shape input=2,4 --stage hl0")
        # Try: cli("show model.json --shape input=2,4 {{}}")
        """,
    "cli/show.py:_check_options#2": f"""{MODEL}
        cli("show model.json --shape input=2,4 --stage cost --block linear_0")
        # Try: cli("show model.json --shape input=2,4 {{}}")
        """,
    "cli/show.py:_check_options#3": f"""{MODEL}
        cli("show model.json --shape input=2,4 --stage hlo --by line")
        # Try: cli("show model.json --shape input=2,4 {{}}")
        """,
    "cli/show.py:_check_options#4": f"""{MODEL}
        cli("show model.json --shape input=2,4 --stage jaxpr --short")
        # Try: cli("show model.json --shape input=2,4 {{}}")
        """,
    "cli/show.py:_nothing_chosen": f"""{MODEL}
        cli("show model.json --shape input=2,4 --stage hlo --block linaer_0")
        # Try: cli("show model.json --shape input=2,4 {{}}")
        """,
    "cli/show.py:_show_pass": f"""{MODEL}
        cli("show model.json --shape input=2,4 --pass 99999")
        # Try: cli("show model.json --shape input=2,4 {{}}")
        """,
    "cli/target.py:call_of": """
        cli("show jax.nn:gelu --shape x=2,4")
        # Try: cli('show jax.nn:gelu {}')
        """,
    "cli/target.py:_check_options_of_file": """
        with open("a.mlir", "w") as file: file.write(jax.jit(jnp.tanh).lower(jnp.ones(3)).as_text())
        cli("show a.mlir --arg f32[3]")
        # Try: cli("{}".removeprefix("mithril-nb "))
        """,
    "cli/target.py:shapes_of": f"""{MODEL}
        cli("show model.json --shape 2,4 --stage jaxpr")
        # Try: cli("show model.json {{}} --stage jaxpr")
        """,
    "cli/target.py:shapes_of#2": f"""{MODEL}
        cli("show model.json --shape input=2,a+1 --stage jaxpr")
        # Try: cli("show model.json {{}} --stage jaxpr")
        """,
    "cli/target.py:argument": """
        cli("show jax.nn:gelu --arg x=f99[3]")
        # Try: cli('show jax.nn:gelu {}')
        """,
    "targets/imported.py:_of_module": """
        cli("show nowhere_at_all:gelu")
        # Try: cli('{}'.removeprefix("mithril-nb "))
        """,
    "targets/imported.py:_run": """
        def script(end):
            with open("ends.py", "w") as file: file.write(f"import jax, sys\\ndef make(): return jax.numpy.sin, (3.0,)\\n{end}")
        script("sys.exit()"); cli("show ends.py:make")
        # Try: script('if __name__ == "__main__": sys.exit()'); cli("show ends.py:make")
        """,
    "targets/imported.py:without_name": """
        with open("mlp.py", "w") as file: file.write("def make(): return 3\\n")
        cli("show mlp.py")
        # Try: cli('{}'.removeprefix("mithril-nb "))
        """,
    "targets/imported.py:_no_file": """
        with open("mlp.py", "w") as file: file.write("def make(): return 3\\n")
        cli("show mpl.py:make")
        # Try: cli('{}'.removeprefix("mithril-nb "))
        """,
    "cli/target.py:_check_arguments": """
        cli("show jax.nn:gelu --arg z=f32[2]")
        # Try: cli('show jax.nn:gelu {}')
        """,
    "cli/target.py:_check_arguments#2": """
        cli("show jax.numpy:tanh")
        # Try: cli('show jax.numpy:tanh {}')
        """,
    "cli/target.py:_check_static": """
        cli("show jax.numpy:sum --arg f32[2] --static axis=0 --stage jaxpr")
        # Try: cli('show jax.numpy:sum --arg f32[2] {} --stage jaxpr')
        """,
    "cli/target.py:_open_inputs": f"""{MODEL}
        cli("show model.json --stage jaxpr")
        # Try: cli("show model.json --stage jaxpr {{}}")
        """,
}


@pytest.mark.parametrize("case", chosen(CASES))
def test_advice_works(case: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    check(CASES, case)
