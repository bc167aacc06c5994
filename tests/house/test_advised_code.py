"""The advice of errors works: cases run it."""

from __future__ import annotations

import ast
import contextlib
from typing import TypeGuard

from advice import all_cases, all_sites, check, is_instruction, keys_of

COMMANDS = ("apt-get install ", "pip install ", "mithril-nb ", "python ", "-")
"""How commands and options of a terminal start: they are code too, of another language than Python."""


def covered() -> set[str]:
    """Return the sites that cases name."""
    return {one for case in all_cases() for one in keys_of(case)}


def test_advice_of_all_rooms_works(stress, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    cases = all_cases()
    for case in list(cases)[: stress.size(short=10, long=len(cases))]:
        check(cases, case)
    stress.report(cases=len(cases), sites=len(all_sites()), executed=len(covered()))


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
