"""The whole errors of the commonest mistakes, in one golden file, marked where doing what the advice says helps."""

from __future__ import annotations

import ast
import inspect
import os
import re
import textwrap
from collections.abc import Iterator
from contextlib import suppress

import pytest

from mithril_nb.errors import MithrilError
from tests.mistakes import mistakes

MISTAKES = [mistake for mistake in vars(mistakes).values() if inspect.isfunction(mistake)]


def corrections(source: str, advice: str) -> Iterator[str]:
    """Yield code with advice in it: instead of a call of the same function, among its arguments, instead of a text."""
    for node in ast.walk(ast.parse(source)):
        segment = ast.get_source_segment(source, node) or ""
        if isinstance(node, ast.Call):
            function = ast.unparse(node.func)
            if advice.startswith(f"{function.partition('(')[0]}("):
                yield source.replace(segment, advice)
            keywords = [keyword for keyword in node.keywords if str(keyword.arg) not in advice]
            for omitted in (None, *keywords):
                kept = [*node.args, *(keyword for keyword in keywords if keyword is not omitted)]
                yield source.replace(segment, f"{function}({', '.join([*map(ast.unparse, kept), advice])})")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield source.replace(segment, advice)


def helps(source: str, advice: str) -> bool:
    """Return whether the code of a mistake runs with the advice in it."""
    for corrected in corrections(source, advice.partition("  # ")[0]) if advice else ():
        with suppress(Exception):
            exec(corrected, dict(vars(mistakes)))
            return True
    return False


def test_errors_of_the_commonest_mistakes(golden, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    texts = []
    for mistake in MISTAKES:
        source = textwrap.dedent(inspect.getsource(mistake).partition("\n")[2]).rstrip()
        with pytest.raises(MithrilError) as caught:
            mistake()
        is_mended = any(helps(source, problem.advice) for problem in caught.value.diagnostics)
        error = f"{type(caught.value).__name__}: {caught.value}".replace(f"{tmp_path}{os.sep}", "")
        error = re.sub(r"\S+(mistakes\.py):\d+|\d+( ops;)", r"\1\2", error)  # other tests register ops
        texts.append(f"{textwrap.indent(source, '>>> ')}\n{error}\n{'(this helps)' if is_mended else ''}".rstrip())
    golden("mistakes.txt", "\n\n".join(texts) + "\n")
