"""Each error's advice has a case that runs it; exceptions have a reason."""

from __future__ import annotations

import ast
import contextlib
from typing import TypeGuard

from advice import all_cases, all_sites, check, is_instruction, keys_of

LEFT: dict[str, tuple[str, ...]] = {
    "starts several processes": (
        "compilation/launch/launcher.py:launch",
        "compilation/launch/launcher.py:launch#2",
        "compilation/launch/launcher.py:_ranks",
        "compilation/launch/launcher.py:_ranks#2",
        "compilation/launch/launcher.py:_ranks#3",
        "compilation/launch/launcher.py:failure",
        "compilation/launch/launcher.py:late",
        "train/prepare.py:spread",
        "train/prepare.py:_check_agreement",
        "train/runtime.py:runtime_of",
    ),
    "needs several devices": (
        "backends/jax/devices.py:split_over",
        "backends/jax/devices.py:check_even",
        "compilation/spreading.py:Spread.check",
        "train/prepare.py:check_placement",
    ),
    "installs or starts another program": (
        "backends/emitted.py:EmittedBackend.__init__",
        "backends/with_manualgrad/c_backend.py:compiler",
        "interop/exporting/compiled.py:_check_installed",
        "cli/__init__.py:open_lab",
        "cli/__init__.py:_notebook",
        "cli/app.py:open_app",
        "cli/app.py:open_app#2",
        "cost/tables.py:data_frame#2",
        "interop/safetensors.py:_names#2",
        "inspection/saved.py:saved_inspection",
        "models/saving/serialization.py:graph_from_dict#2",
        "analysis/whatif/sweeps.py:Sweep.to_pandas",
        "viz/html_parts.py:built",
    ),
    "is shown and not raised": (
        "cli/__init__.py:main",
        "ui/session/analysis.py:Analysis._open_inputs",
        "ui/session/commands.py:problem_of",
        "stages/transforms/stepping.py:TransformSteps._problem",
        "train/checkpoints/saver.py:Saver._write",
        "train/run/loop.py:problem_of",
        "train/run/observers.py:Observers._call",
    ),
    "measures for seconds": (
        "analysis/measure/profiling.py:profile",
        "analysis/measure/runs.py:Runner.run",
        "analysis/measure/runs.py:_recorded",
    ),
}
"""Sites whose advice no case runs, by the reason; no other site may be without a case."""
COMMANDS = ("apt-get install ", "pip install ", "mithril-nb ", "python ", "-")
"""How commands and options of a terminal start: they are code too, of another language than Python."""


def left() -> set[str]:
    """Return the sites in `LEFT`."""
    return {key for keys in LEFT.values() for key in keys}


def covered() -> set[str]:
    """Return the sites that cases name."""
    return {one for case in all_cases() for one in keys_of(case)}


def test_each_advice_has_a_case_that_runs_it() -> None:
    known = covered() | left()
    lacking = {key: site.advice for key, site in all_sites().items() if key not in known}
    assert not lacking, "add cases to tests/<room>/test_<room>_advice.py, see tests/advice.py"


def test_advice_of_all_rooms_works(stress, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    cases = all_cases()
    for case in list(cases)[: stress.size(short=10, long=len(cases))]:
        check(cases, case)
    stress.report(cases=len(cases), sites=len(all_sites()), executed=len(covered()), left=len(left()))


def test_excluded_sites_exist_and_have_no_case() -> None:
    assert sorted(left() - all_sites().keys()) == []
    assert sorted(left() & covered()) == []


def test_cases_name_sites_that_exist() -> None:
    assert sorted(covered() - all_sites().keys()) == []


def test_constant_advice_is_code_or_a_sentence() -> None:
    strange = []
    for key, site in all_sites().items():
        node = ast.parse(site.advice, mode="eval").body
        parts = (node.body, node.orelse) if isinstance(node, ast.IfExp) else (node,)
        texts = [one.value for one in parts if _is_text(one)]
        strange += [f"{key}: {text}" for text in texts if not (is_instruction(text) or _is_code(text))]
    assert strange == []


def _is_text(node: ast.AST) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != ""


def _is_code(text: str) -> bool:
    for code in (text, f"call({text}\n)"):
        with contextlib.suppress(SyntaxError):
            ast.parse(code)
            return True
    return text.startswith(COMMANDS)
