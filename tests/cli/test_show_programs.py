"""`show` and `report` of any program: output and error messages."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from transcript import read_transcript

from mithril_nb import targets
from mithril_nb.cli.target import argument
from mithril_nb.models import Linear, Model, Relu, save
from mithril_nb.targets.inspection import inspect as targets_inspect

MODULE = """
import jax, jax.numpy as jnp
from mithril_nb.models import Linear, Relu, Model

def step(params, x):
    def loss(params):
        with jax.named_scope("net"):
            with jax.named_scope("linear_0"):
                h = jnp.tanh(x @ params["w"])
            with jax.named_scope("linear_1"):
                h = h @ params["v"]
        return (h * h).sum()
    return jax.grad(loss)(params)

step.example_args = ({"w": jnp.ones((4, 3)), "v": jnp.ones((3, 2))}, jnp.ones((2, 4)))

def make():
    return step, step.example_args

def net():
    return Model() + Linear(8) + Relu()

def double(x, times=2):
    return x * times

def broken(x):
    return jnp.sin(x) @ x

def looping(x, n):
    for _ in range(n):
        x = jnp.sin(x)
    return x

def annotated(x, rate: float, name: str):
    return x * rate

def counting():
    return jnp.arange(3) * 2

def raising():
    raise ZeroDivisionError("in the module")

def escaping(x):
    "\x1b[31m"
    return x + 1
"""


MADE: dict[str, Any] = {}


def inspected(target: Any, *args: Any, **options: Any) -> Any:
    """Inspect each function of the module once, because every command would compile it again."""
    if not hasattr(target, "__name__"):
        return targets_inspect(target, *args, **options)
    shapes = [(leaf.shape, leaf.dtype) if hasattr(leaf, "shape") else leaf for leaf in jax.tree.leaves((args, options))]
    key = f"{target.__name__} {shapes}"
    if key not in MADE:
        MADE[key] = targets_inspect(target, *args, **options)
    return MADE[key]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module, in which the commands are run."""
    (tmp_path / "mine.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    monkeypatch.setattr(targets, "inspect", inspected)
    yield tmp_path
    sys.modules.pop("mine", None)


def test_only_lines_of_a_block_are_printed_with_their_numbers(printed):
    out = printed("show", "mine:step", "--stage", "jaxpr", "--block", "net/linear_1", "--role", "forward")
    assert out == "9      g:f32[2,2] = dot_general[dimension_numbers=[1]x[0] preferred_element_type=float32] e a\n"
    whole = printed("show", "mine:step", "--stage", "jaxpr")
    assert whole.splitlines()[8] == out[3:].rstrip("\n")
    inside = printed("show", "mine:step", "--stage", "jaxpr", "--block", "net")
    assert len(inside.splitlines()) > len(out.splitlines())
    data = json.loads(printed("show", "mine:step", "--stage", "jaxpr", "--role", "backward", "--json"))
    assert {one["role"] for one in data["instructions"]} == {"backward"}


def test_every_stage_is_printed(printed):
    starts = {
        "python": "# mine.py:", "graph": "block ", "jaxpr": "{ lambda", "stablehlo": "module @jit_step",
        "hlo_before": "HloModule", "hlo": "HloModule", "llvm": "; ", "source": "# mine.py:",
    }  # fmt: skip
    for stage, start in starts.items():
        out = printed("show", "mine:step", "--stage", stage)
        assert out.startswith(start), stage


def test_optimized_hlo_in_short(printed):
    out = printed("show", "mine:step", "--stage", "hlo", "--short")
    assert out.startswith("HloModule jit_step\nentry:\n")
    part = printed("show", "mine:step", "--stage", "hlo", "--short", "--block", "net/linear_0")
    lines = out.splitlines()
    for line in part.splitlines():
        number, _, text = line.strip().partition("  ")
        assert lines[int(number) - 1].strip() == text.strip()
    assert 0 < len(part.splitlines()) < len(lines)
    data = json.loads(printed("show", "mine:step", "--stage", "hlo", "--short", "--json"))
    assert data["text"].splitlines() == lines


def test_passes_and_their_changes(printed):
    out = printed("show", "mine:step", "--passes")
    assert out.splitlines()[0].split() == ["pass", "name", "pipeline", "lines", "added", "lines", "removed"]
    number, name, *_ = out.splitlines()[1].split()
    diff = printed("show", "mine:step", "--pass", number)
    assert diff.startswith(f"pass {number}, {name} (pipeline ")
    assert "\n@@ " in diff
    listed = json.loads(printed("show", "mine:step", "--passes", "--json"))
    assert [one["number"] for one in listed] == list(range(len(listed)))
    data = json.loads(printed("show", "mine:step", "--pass", number, "--json"))
    assert set(data) == {"number", "name", "pipeline", "before", "after", "diff"}


def test_the_graph_of_a_stage(printed):
    out = printed("show", "mine:step", "--graph")
    rows = {line.split()[0]: line for line in out.splitlines()}
    assert rows["net"].endswith("%")
    assert rows["linear_0"].startswith("  linear_0 ")
    data = json.loads(printed("show", "mine:step", "--graph", "--stage", "stablehlo", "--json"))
    assert data["stage"] == "stablehlo"
    assert {"net", "net/linear_0"} <= {node["key"] for node in data["nodes"]}


def test_result_of_a_function_without_arguments_is_shown(run_cli, printed):
    jaxpr = ("--stage", "jaxpr")
    assert run_cli("show", "mine:make", *jaxpr) == run_cli("show", "mine:step", *jaxpr)
    assert printed("show", "mine:counting", *jaxpr).startswith("{ lambda\n  let\n    a:i32[3] = iota")
    code, out, _ = run_cli("show", "mine:net", "--shape", "input=2,4")
    assert (code, out.splitlines()[1].split()[:2]) == (0, ["linear_0", "Linear"])
    code, out, _ = run_cli("show", "mine:net", "--shape", "input=2,4", "--program", "train-step", *jaxpr)
    assert (code, "labels" in out or "targets" in out) == (0, True)


def test_arguments_are_arrays_or_values(printed):
    given = ("show", "mine:double", "--arg", "x=bf16[2,3]", "--arg", "times=4", "--stage", "jaxpr")
    out = printed(*given)
    assert "a:i32[]  # times" in out
    out = printed(*given, "--static", "times")
    assert "mul a 4.0:bf16[]" in out
    name, array = argument("x = i8[10,0,7]")
    assert (name, array.shape, array.dtype.name) == ("x", (10, 0, 7), "int8")
    assert argument("bool[]")[1].dtype == bool
    assert argument("pred[1]")[1].dtype == bool
    assert argument("float16[2]")[1].dtype == "float16"
    assert argument("f32[1000000,1000000]")[1].strides == (0, 0)


def test_a_program_gets_a_page(printed, folder):
    out = printed("report", "mine:double", "--arg", "f32[3]", "-o", "page.html")
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert out == f"wrote page.html, {len(page.encode()) / 1000:.0f} kB\n"
    assert "<title>double</title>" in page


def test_a_file_is_read_before_a_module_of_that_name(folder, printed):
    save(Model() + Linear(3), folder / "mine:step")
    assert printed("show", "mine:step", "--shape", "input=2,4").startswith("input ")
    assert "mine" not in sys.modules


def test_control_characters_are_escaped(printed):
    out = printed("show", "mine:escaping", "--arg", "f32[3]", "--stage", "python")
    assert "\x1b" not in out
    assert r"\x1b[31m" in out


def test_terminal_stripes_mark_loss_and_optimizer(printed, folder, monkeypatch):
    save(Model() + Linear(3) + Relu(), folder / "model.json")
    monkeypatch.setenv("TERM", "dumb")  # stripes without escapes for their colours
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    arguments = ("show", "model.json", "--shape", "input=2,4", "--program", "train-step", "--stage", "jaxpr")
    out = printed(*arguments)
    assert out.startswith("▌linear_0 ▌relu_0 \n")
    out = printed(*arguments, "--block", "(optimizer)")
    assert "▌" in out.splitlines()[1]


def test_costs_by_line_are_the_source_with_figures(run_cli, printed) -> None:
    command = ("show", "mine:step", "--stage", "cost", "--by", "line")
    code, out, err = run_cli(*command)
    (step,) = (found for key, found in MADE.items() if key.startswith("step "))
    by_line = step.cost().by_line
    assert (code, out.rstrip(), err) == (0, str(by_line).rstrip(), "")
    (line,) = (line for line in out.splitlines() if line.endswith('h = jnp.tanh(x @ params["w"])'))
    assert line.split()[0] == "120"  # two products of 2·2·4·3, and 4 for each of 6 derivatives of tanh
    data = json.loads(printed(*command, "--json"))
    assert data == json.loads(json.dumps(by_line.to_dict()))
    by_role = (*command[:-1], "role")
    assert run_cli(*by_role)[:2] == (0, f"{step.cost().by_role}\n")
    assert json.loads(printed(*by_role, "--json"))["backward"] == step.cost().by_role["backward"].to_dict()


REFUSED = """
mine:double
UnexpectedInputError: cannot inspect 'double' with these arguments: missing a required argument: 'x'.
    takes  (x, times=2)

mine:double --arg 'f33[3'
UnknownOptionError: invalid --arg 'f33[3'.
    needs  dtype and shape, as f32[32,784], or

mine:double --arg 'y=q7[3]'
UnknownOptionError: invalid --arg 'y=q7[3]'.

mine:double --arg 'f32[3]' --arg z=1
UnexpectedInputError: cannot inspect 'double' with these arguments: got an unexpected keyword argument 'z'.

mine:looping --arg 'f32[2]' --arg 3 --static n,m
UnknownOptionError: jax.jit rejects these static arguments of 'looping'.

mine:broken --arg x=4,4 --by line
StageUnavailableError: the argument 'x' of 'broken' is not an array.
    given    (4, 4)

mine:doubel
UnknownOptionError: 'mine' has no 'doubel'.
    has  

mine:double --shape x=3
UnknownOptionError: 'double' takes no shapes=.

mine:double --program train-step --arg 'f32[3]'
UnknownOptionError: 'double' takes no program=.

mine:double --arg 'f32[3]' --stage jaxpr --block doubel
UnknownBlockError: no line of stage 'jaxpr' has block 'doubel'.
    blocks  double
    roles   forward

mine:double --arg 'f32[3]' --stage cost --block double
UnknownOptionError: --block and --role select lines of the text of a stage.
    stages with lines  

mine:double --arg 'f32[3]' --stage hl0
UnknownOptionError: unknown stage 'hl0'.
    known  python, graph, jaxpr, stablehlo, hlo_before

mine:double --arg 'f32[3]' --short
UnknownOptionError: --short needs --stage hlo.

mine:double --arg 'f32[3]' --passes --by line
UnknownOptionError: --by needs --stage cost.

mine:double --arg 'f32[3]' --pass 9999
UnknownOptionError: pass 9999 does not exist.
    passes  0 to 

mine:raising
ZeroDivisionError: in the module
    Try: --debug  # prints the traceback
"""


@pytest.mark.parametrize(("command", "message"), read_transcript(REFUSED))
def test_errors(refused, command: str, message: str) -> None:
    assert refused("show", *shlex.split(command)).startswith(message)


def test_missing_module(run_cli, folder):
    assert run_cli("show", "yours:step") == (
        2,
        "",
        f"ModelFileError: module 'yours' does not exist.\n    looked in  {folder}, and the environment\n",
    )
    (folder / "needy.py").write_text("import no_such_package", encoding="utf-8")
    code, _, err = run_cli("show", "needy:step")
    assert (code, err) == (
        2,
        "ModuleNotFoundError: No module named 'no_such_package'\n    Try: --debug  # prints the traceback\n",
    )


def test_failed_trace_prints_the_traced_part(run_cli):
    code, out, err = run_cli("show", "mine:broken", "--arg", "f32[2,3]", "--stage", "jaxpr")
    expected = "TypeError: dot_general requires contracting dimensions to have the same shape, got (3,) and (2,)."
    assert code == 2
    assert "b:f32[2,3] = sin a" in out
    assert f"!! {expected}" in out
    line = MODULE.splitlines().index("    return jnp.sin(x) @ x") + 1
    assert err == (
        f"StageUnavailableError: jaxpr is not available: {expected}\n    at mine.py:{line}: return jnp.sin(x) @ x\n"
    )


NEEDS_VALUE = (
    "'looping' needs the value of a number, which jax.jit traces as an array without a value.\n"
    "    given    n=3\n"
    "    because  TracerIntegerConversionError: The __index__() method was called on traced array with shape int32[]\n"
    '    Try: static_argnames="n"\n'
)


def test_by_line_implies_costs(run_cli) -> None:
    command = ("show", "mine:double", "--arg", "f32[3]", "--by", "line")
    assert run_cli(*command) == run_cli(*command, "--stage", "cost")
    assert run_cli(*command)[0] == 0


@pytest.mark.parametrize("shown", [("--stage", "cost"), ("--stage", "cost", "--by", "line")])
def test_costs_of_a_program_that_cannot_be_traced(run_cli, shown):
    command = ("show", "mine:looping", "--arg", "f32[2]", "--arg", "3", *shown)
    assert run_cli(*command) == (2, "", f"StageUnavailableError: {NEEDS_VALUE}")
    assert run_cli(*command, "--static", "n")[::2] == (0, "")
    code, out, err = run_cli("show", "mine:broken", "--arg", "f32[2,3]", *shown)
    line = MODULE.splitlines().index("    return jnp.sin(x) @ x") + 1
    assert (code, out, err) == (
        2,
        "",
        "StageUnavailableError: program 'broken' cannot be traced.\n"
        "    TypeError  dot_general requires contracting dimensions to have the same shape, got (3,) and (2,).\n"
        f"    at         mine.py:{line}: return jnp.sin(x) @ x\n"
        '    Try: print(inspection.stage("jaxpr").text)  # shows how far tracing came\n',
    )


def test_costs_as_json_of_a_program_that_cannot_be_traced(run_cli):
    code, out, err = run_cli("show", "mine:looping", "--arg", "f32[2]", "--arg", "3", "--stage", "cost", "--json")
    assert (code, err) == (2, f"StageUnavailableError: {NEEDS_VALUE}")
    assert json.loads(out)["unavailable"]["analytic"] == NEEDS_VALUE.partition("\n")[0]


def test_a_stage_that_is_missing(run_cli):
    code, out, err = run_cli("show", "mine:looping", "--arg", "f32[2]", "--arg", "3", "--stage", "jaxpr")
    assert code == 2
    assert out.endswith('    !!     Try: static_argnames="n"\n')
    line = MODULE.splitlines().index("    for _ in range(n):") + 1
    assert err == (
        f"StageUnavailableError: jaxpr is not available: StageUnavailableError: {NEEDS_VALUE}"
        f"  at mine.py:{line}: for _ in range(n):\n"
    )
