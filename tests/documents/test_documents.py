"""Every block of code and every inline call of README, CHANGELOG, CONTRIBUTING, notebooks and docstrings runs."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from document_examples import ARGUMENTS, INSTEAD, MISSPELT, NOT_RUN, REFUSED, SETTINGS, VALUES, Examples, is_notation
from inline_code import ROOT, Filled, Span, fences, is_code, is_file_name, parsed, spans_in, spans_of_docstrings, texts
from process import ONE_DEVICE

from mithril_nb import cli
from mithril_nb.errors import MithrilError

DOCUMENTS = texts()
_CALL = re.compile(r"[@\w.]+\(.*\)")
PYTHON = [
    pytest.param(code, id=f"{name}-{number}")
    for name, text in DOCUMENTS.items()
    for number, code in enumerate(code for language, code in fences(text) if language == "python")
]
PRINTED = [
    pytest.param(*printed.split("\n", 1), id=printed.partition("\n")[0])
    for text in DOCUMENTS.values()
    for language, code in fences(text)
    if language == "console"
    for printed in code.removeprefix("$ ").split("\n$ ")
]
COMMANDS = sorted(
    {
        line.partition("#")[0].strip().removeprefix("$ ")
        for text in DOCUMENTS.values()
        for code in (*(code for language, code in fences(text) if language in ("sh", "console")), *spans_in(text))
        for line in code.splitlines()
        if line.removeprefix("$ ").startswith("mithril-nb ")
    }
)


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    return Examples(tmp_path_factory.mktemp("examples"))


@pytest.mark.parametrize("code", PYTHON)
def test_python_of_the_documents_runs(code: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", code]
    settings = os.environ | ({} if "MITHRIL_NB_EXAMPLES" in os.environ else ONE_DEVICE)
    done = subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param(name, section, id=f"{name}-{number}" if number else name)
        for name, text in DOCUMENTS.items()
        # One test per section of the longest document, so that no test is much longer than the others.
        for number, section in enumerate(text.split("\n### ") if name == "CHANGELOG.md" else [text])
    ],
)
def test_inline_code_of_the_documents_runs(
    name: str, text: str, examples: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    failed = [problem for span in spans_in(text) if (problem := problem_of(Span(span, name), examples))]
    assert failed == [], "\n".join(failed)


def test_inline_code_of_docstrings_runs(examples: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spans = {(span.text, span.module, span.owner): span for span in spans_of_docstrings()}
    failed = [problem for span in spans.values() if (problem := problem_of(span, examples))]
    assert failed == [], "\n".join(failed)


def problem_of(span: Span, examples: Examples) -> str:
    """Run inline code, unchanged or as `INSTEAD` completes it; return the problem, or `""`."""
    if span.text in NOT_RUN or is_notation(span.text):
        return ""
    if is_file_name(span.text):
        return "" if any(ROOT.glob(f"**/{span.text}")) else f"{span.place}: there is no file `{span.text}`"
    tree = parsed(INSTEAD.get(span.text, span.text))
    if tree is None:
        return f"{span.place}: `{span.text}` is not Python" if _CALL.fullmatch(span.text) else ""
    if not is_code(tree):
        return ""
    if isinstance(tree.body[0], ast.Assign) and isinstance(tree.body[0].targets[0], ast.Name):
        name = MISSPELT.get(span.text, tree.body[0].targets[0].id)
        return (
            "" if name in SETTINGS or name in examples.options else f"{span.place}: `{span.text}` sets no known option"
        )
    if not examples.covers(tree, span):
        return ""
    refusal = REFUSED.get(span.text)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            examples.run(ast.fix_missing_locations(Filled(ARGUMENTS, VALUES).visit(tree)), span)
    except MithrilError as error:
        return "" if refusal == type(error).__name__ else f"{span.place}: `{span.text}` raises {error}"
    except Exception as error:
        return f"{span.place}: `{span.text}` raises {type(error).__name__}: {error}"
    return f"{span.place}: `{span.text}` is not refused" if refusal else ""


@pytest.fixture
def folder(examples: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the files that the commands of the documents read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    examples.write_files(tmp_path)
    yield tmp_path
    sys.modules.pop("train", None)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("folder")
def test_commands_of_the_documents_run(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    if command in NOT_RUN:
        return
    assert cli.main(shlex.split(INSTEAD.get(command, command))[1:]) == 0, capsys.readouterr().err


@pytest.mark.parametrize(("command", "printed"), PRINTED)
@pytest.mark.usefixtures("folder")
def test_commands_print_what_the_documents_show(command: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(shlex.split(command)[1:]) == 0
    found = capsys.readouterr().out.splitlines()
    if jax.__version__.startswith("0.10."):  # as saved notebooks: other versions of JAX write other programs
        assert found == printed.splitlines()
    assert found


def test_the_targets_of_make_are_in_the_makefile() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    lines = "\n".join(code for text in DOCUMENTS.values() for _, code in fences(text)).splitlines()
    commands = [*lines, *(span for text in DOCUMENTS.values() for span in spans_in(text))]
    named = [word for one in commands if one.startswith("make ") for word in one.partition("#")[0].split()[1:]]
    assert [word for word in named if re.fullmatch(r"[a-z-]+", word) and word not in targets] == []
