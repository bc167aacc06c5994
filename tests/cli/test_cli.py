"""The command line: output, error messages and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import mithril_nb
from mithril_nb import cli
from mithril_nb.models import LayerNorm, Linear, Model, Relu, save


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A file with a model of three blocks."""
    path = tmp_path / "model.json"
    save(Model() + Linear(64) + Relu() + Linear(10), path)
    return str(path)


def test_show_prints_the_graph(model, run_cli):
    assert run_cli("show", model, "--shape", "input=32,784") == (
        0,
        "input     input                          (32, 784)\n"
        "linear_0  Linear  784 → 64  <- input     (32, 64)\n"
        "relu_0    Relu              <- linear_0  (32, 64)\n"
        "linear_1  Linear  64 → 10   <- relu_0    (32, 10)\n"
        "output    output            <- linear_1\n",
        "",
    )


def test_show_prints_stages(model, printed):
    for stage, start in (("jaxpr", "{ lambda"), ("stablehlo", "module @jit_forward"), ("hlo", "HloModule")):
        out = printed("show", model, "--stage", stage, "--shape", "input=32,784")
        assert out.startswith(start)


def test_show_prints_costs_that_add_up(model, run_cli):
    code, out, _ = run_cli("show", model, "--stage", "cost", "--shape", "input=32,784", "--json")
    data = json.loads(out)
    assert code == 0
    assert list(data["sources"]) == ["analytic", "lowered", "compiled"]
    for cost in data["sources"].values():
        parts = [*cost["by_block"].values(), cost["unattributed"]]
        assert (
            sum(part["flops"] for part in parts) == cost["total"]["flops"] == sum(row["flops"] for row in cost["rows"])
        )
    code, out, _ = run_cli("show", model, "--stage", "cost", "--shape", "input=32,784")
    first, second = (part.splitlines() for part in out.split("\n\n")[:2])
    assert (first[0].split(), second[0].split()) == (
        ["block", "FLOPs", "transcendentals", "share"], ["block", "bytes", "params"]
    )  # fmt: skip
    assert first[1].split() + second[1].split() == [
        *2 * ["analytic", "lowered", "compiled"], "of", "FLOPs", "analytic", "lowered", "compiled",
    ]  # fmt: skip


def test_json_has_the_instructions_with_their_blocks(model, printed):
    out = printed("show", model, "--stage", "jaxpr", "--shape", "input=32,784", "--json")
    data = json.loads(out)
    dots = [one for one in data["instructions"] if one["opcode"] == "dot_general"]
    assert [dot["blocks"] for dot in dots] == [{"linear_0": 1.0}, {"linear_1": 1.0}]


def test_json_of_the_graph_is_the_diagram(model, printed):
    out = printed("show", model, "--json")
    assert [node["name"] for node in json.loads(out)["graph"]["nodes"]] == [
        "input", "linear_0", "relu_0", "linear_1", "output",
    ]  # fmt: skip


def test_show_prints_the_source(model, run_cli):
    code, out, _ = run_cli("show", model, "--stage", "source")
    names: dict = {}
    exec(out, names)
    assert (code, names["model"]) == (0, Model() + Linear(64) + Relu() + Linear(10))


def test_report_writes_one_file(model, tmp_path, printed):
    target = tmp_path / "out.html"
    out = printed("report", model, "-o", str(target), "--shape", "input=8,64")
    assert out == f"wrote {target}, {len(target.read_bytes()) / 1000:.0f} kB\n"
    page = target.read_text(encoding="utf-8")
    assert "<title>model: train step</title>" in page
    for part in ('data-stage="hlo"', "cost by block", "(optimizer)", "model += "):
        assert part in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--stage", "jaxpr"], "ShapeError: the shape of input 'input' is unknown.\n    so far  ('...',) float32\n"),
        (
            ["--stage", "jaxpr", "--shape", "input"],
            "UnknownOptionError: invalid --shape 'input'.\n    needs  INPUT=SIZES",
        ),
        (["--shape", "input=-1,3"], "UnknownOptionError: invalid size '-1' in --shape 'input=-1,3'.\n"),
        (["--shape", "input=batch,2.5"], "UnknownOptionError: invalid size '2.5' in --shape 'input=batch,2.5'.\n"),
        (["--shape", "image=3"], "UnexpectedInputError: the model has no input 'image'.\n    inputs  'input'\n"),
    ],
)
def test_user_errors_print_no_traceback(model, refused, arguments, message):
    err = refused("show", model, *arguments)
    assert err.startswith(message)
    assert "Traceback" not in err


def test_shape_errors_are_printed_below_the_graph(tmp_path, run_cli):
    path = tmp_path / "wrong.json"
    save(Model() + Linear(64, input_size=100) + LayerNorm(), path)
    code, out, err = run_cli("show", str(path), "--shape", "input=32,784")
    assert code == 2
    assert out.startswith("input ")
    assert err.startswith("ShapeError: ")
    assert "Try: " in err
    assert run_cli("show", str(path), "--shape", "input=32,784", "--stage", "hlo") == (2, "", err)


def test_missing_broken_and_unwritable_files(model, tmp_path, run_cli, refused):
    assert run_cli("show", "nowhere.json") == (
        2,
        "",
        "ModelFileError: cannot read 'nowhere.json'.\n    because  No such file or directory\n",
    )
    broken = tmp_path / "broken.json"
    broken.write_text('{"format": "mithril_nb.model"', encoding="utf-8")
    err = refused("report", str(broken), "-o", "x.html")
    assert err.startswith(f"ModelFileError: {str(broken)!r} is not valid JSON.\n")
    target = str(tmp_path / "no" / "folder.html")
    err = refused("report", model, "-o", target, "--shape", "input=8,64")
    assert err == f"ModelFileError: cannot write {target!r}.\n    because  No such file or directory\n"


def test_control_characters_in_names_are_escaped(tmp_path, run_cli, printed):
    path = tmp_path / "named.json"
    save(Model() | Linear(3, name="\x1b[31mred\x9b\u202e\ud800")(input="in\x07"), path)
    assert run_cli("show", str(path), "--shape", "in\x07=2,4") == (
        0,
        "in\\x07                       input                                          (2, 4)\n"
        "\\x1b[31mred\\x9b\\u202e\\ud800  Linear  4 → 3  <- in\\x07                       (2, 3)\n"
        "output                       output         <- \\x1b[31mred\\x9b\\u202e\\ud800\n",
        "",
    )
    for stage in ("jaxpr", "cost", "source"):
        out = printed("show", str(path), "--shape", "in\x07=2,4", "--stage", stage)
        assert not set("\x07\x1b\x9b\u202e\ud800") & set(out)
    for arguments in ([], ["--stage", "cost"]):
        code, out, err = run_cli("show", str(path), "--shape", "in\x07=2,4", "--json", *arguments)
        assert (code, err, out.isascii()) == (0, "", True)


def test_unexpected_errors_are_printed(model, run_cli, monkeypatch):
    def broken(path):
        raise ZeroDivisionError("deep inside")

    monkeypatch.setattr("mithril_nb.models.load", broken)
    message = "ZeroDivisionError: deep inside\n    Try: --debug  # prints the traceback\n"
    assert run_cli("show", model) == (2, "", message)
    code, _, err = run_cli("show", model, "--debug")
    assert code == 2
    assert "Traceback (most recent call last)" in err


@pytest.mark.parametrize(
    ("option", "name", "value"),
    [("--processes", "processes", "0"), ("--devices", "devices", "-1"), ("--start-timeout", "start_timeout_s", "0")],
)
def test_launch_rejects_wrong_options(tmp_path, run_cli, option, name, value):
    script = tmp_path / "train.py"
    script.write_text("")
    code, _, err = run_cli("launch", option, value, str(script))
    assert code == 2
    assert err.startswith(f"UnknownOptionError: {name} must be ")
    missing = run_cli("launch", option, "2", str(tmp_path / "none.py"))[2]
    assert missing.startswith("LaunchError: script ")
    assert "does not exist" in missing


def test_launch_debug_prints_the_traceback(run_cli, monkeypatch):
    def broken(*arguments, **options):
        raise ZeroDivisionError("deep inside")

    monkeypatch.setattr("mithril_nb.compilation.launch.launch", broken)
    message = "ZeroDivisionError: deep inside\n    Try: --debug  # prints the traceback\n"
    assert run_cli("launch", "train.py") == (2, "", message)
    assert "Traceback (most recent call last)" in run_cli("launch", "--debug", "train.py")[2]


def test_lab_opens_the_given_notebook(tmp_path, run_cli, monkeypatch, printed):
    started: list[list[str]] = []

    class Server:
        def __init__(self, command):
            started.append(command)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def wait(self):
            return 0

    monkeypatch.setattr(cli.subprocess, "Popen", Server)
    notebook = tmp_path / "mine.ipynb"
    notebook.write_text("{}")
    out = printed("lab", str(notebook), "--", "--no-browser")
    assert started == [[sys.executable, "-m", "jupyterlab", str(notebook), "--no-browser"]]
    assert out.startswith(f"Opening {notebook} in JupyterLab")
    assert run_cli("lab", "--", "--no-browser", "--port=1")[0] == 0
    assert started[-1][3:] == [str(cli._notebook(None)), "--no-browser", "--port=1"]
    code, _, err = run_cli("lab", str(tmp_path / "none.ipynb"))
    assert (code, err) == (
        2, f"ModelFileError: notebook {str(tmp_path / 'none.ipynb')!r} does not exist.\n",
    )  # fmt: skip


def test_lab_creates_a_notebook(tmp_path, monkeypatch):
    import nbformat

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "__file__", str(tmp_path / "site" / "mithril_nb" / "cli" / "__init__.py"))
    made = cli._notebook(None)
    assert made == Path("mithril_nb.ipynb")
    nbformat.validate(nbformat.read(made, as_version=4))
    made.write_text("mine", encoding="utf-8")
    assert cli._notebook(None).read_text(encoding="utf-8") == "mine"


def test_lab_without_jupyterlab_advises_to_install_it(run_cli, monkeypatch):
    monkeypatch.setattr(cli.importlib.util, "find_spec", lambda name: None)
    code, _, err = run_cli("lab")
    assert code == 2
    assert err == (
        "UnavailableBackendError: JupyterLab is not installed in this environment.\n"
        f"    python  {sys.executable}\n"
        '    Try: pip install "mithril-nb[lab]"\n'
    )


def test_help_is_quick_and_loads_no_array_library():
    code = (
        "import sys; from mithril_nb.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit(any(name in sys.modules for name in ('jax', 'numpy', 'matplotlib', 'rich')))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "lab" in run.stdout
    assert "report" in run.stdout


def test_closed_pipe_is_not_an_error(model):
    command = f'"{sys.executable}" -m mithril_nb show "{model}" --stage source'
    run = subprocess.run(f"{command} | head -c 1", shell=True, capture_output=True, text=True, check=False)
    assert run.stderr == ""


def test_bare_command_prints_help_and_version_the_version(run_cli, capsys):
    code, out, err = run_cli()
    assert (code, err, out.splitlines()[0]) == (0, "", "usage: mithril-nb [-h] [--version] COMMAND ...")
    with pytest.raises(SystemExit, match=r"^0$"):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"mithril-nb {mithril_nb.__version__}\n"


def test_profile_prints_the_measured_time_of_each_block(model, printed):
    options = ("profile", model, "--shape", "input=8,16", "--program", "forward", "--runs", "2")
    out = printed(*options)
    assert [block for block in ("linear_0", "linear_1") if f"\n{block}" not in out] == []
    data = json.loads(printed(*options, "--json"))
    assert data["runs"] == 2
    assert data["total"]["time_s"] > 0


SCRIPT = """
import sys, jax, jax.numpy as jnp
step = jax.jit(lambda x: 2 * x)
for size in (3, 4):
    step(jnp.ones(size))
print(sys.argv[1:], __name__)
"""


@pytest.mark.parametrize(("ends", "code"), [("", 0), ("sys.exit(3)", 3), ("1 / 0", 1)])
def test_watch_runs_a_script_and_prints_its_retraces(tmp_path, run_cli, monkeypatch, ends, code):
    monkeypatch.setattr(sys, "argv", ["mithril-nb"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "train.py").write_text(SCRIPT + ends)
    found, out, err = run_cli("watch", str(tmp_path / "train.py"), "a", "--b")
    assert found == code
    assert "['a', '--b'] __main__" in out
    assert "argument 1 `x` changed from f32[3] to f32[4]" in out
    assert ("ZeroDivisionError" in err) == (code == 1)
