"""Run the advice of errors: it must work, or lead to a different problem whose advice continues.

A case is a snippet of Python. Its last statement fails with the advice of one construction site, and is then run again
with the advice in its place:

- `name=value` replaces or adds an argument of the call that failed,
- a text such as `'linear_0'` replaces the text that the error names,
- a call replaces the call of the same function, or the statement,
- any other statement runs first, and the statement that failed after it.

A comment `# Try: code` after the last statement is the code that a user would write. `{}` in it is the advice without
its comment, and a backslash with n is a new line. Without `{}` the advice is an instruction: a sentence, which ends
with a full stop. `# ...: code` fills the dots in the advice.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.util
import os
import shlex
import sys
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import mithril_nb
from mithril_nb import errors
from mithril_nb.backends.backend import MithrilWarning
from mithril_nb.errors import Diagnostic, MithrilError
from mithril_nb.models.shape_inference.dims import MismatchError

PACKAGE = Path(mithril_nb.__file__).parent
MOST_STEPS = 5
BUILDERS = {
    name
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, MithrilError | Diagnostic)
} | {"MismatchError"}
BASE = "errors.py:MithrilError."
ADVICE = 2
"""The position of the advice among the arguments of each of `BUILDERS`."""


@dataclass(frozen=True)
class Site:
    """A place in the package where an error, or a part of one, is built.

    Attributes:
        key: `"models/shape_inference/infer.py:_Inference.unlike"`, with `#2` for the second place in one function.
        first: Its first line.
        last: Its last line.
        advice: The code that gives the advice; `""` if it has none.
    """

    key: str
    first: int
    last: int
    advice: str


@functools.cache
def sites_of(path: Path) -> tuple[Site, ...]:
    """Return the places in one file where errors are built, in the order of their lines."""
    found: list[tuple[str, ast.Call]] = []

    def visit(node: ast.AST, inside: tuple[str, ...]) -> None:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            inside = (*inside, node.name)
        elif isinstance(node, ast.Call) and is_builder(node):
            found.append((".".join(inside), node))
        for child in ast.iter_child_nodes(node):
            visit(child, inside)

    visit(ast.parse(path.read_text(encoding="utf-8")), ())
    found.sort(key=lambda one: (one[1].lineno, one[1].col_offset))
    room, counted = path.relative_to(PACKAGE).as_posix(), dict[str, int]()
    sites = []
    for place, node in found:
        counted[place] = counted.get(place, 0) + 1
        number = f"#{counted[place]}" if counted[place] > 1 else ""
        given = [*(keyword.value for keyword in node.keywords if keyword.arg == "advice"), *node.args[ADVICE:]]
        advice = ast.unparse(given[0]) if given else ""
        sites.append(Site(f"{room}:{place}{number}", node.lineno, node.end_lineno or node.lineno, advice))
    return tuple(sites)


def all_sites() -> dict[str, Site]:
    """Return each place in the package where an error with advice is built, by its key."""
    found = (site for path in sorted(PACKAGE.rglob("*.py")) for site in sites_of(path))
    return {site.key: site for site in found if site.advice not in ("", "''") and not site.key.startswith(BASE)}


def _keys(frame: FrameType | None) -> Iterator[str]:
    """Yield the site of a frame, and the site of its caller if that is in the package too."""
    for _ in range(2):
        if frame is None or not (path := Path(frame.f_code.co_filename)).is_relative_to(PACKAGE):
            return
        holding = [one for one in sites_of(path) if one.first <= frame.f_lineno <= one.last]
        if holding:
            yield min(holding, key=lambda one: one.last - one.first).key
        frame = frame.f_back


@contextlib.contextmanager
def recorded() -> Iterator[list[tuple[str, str]]]:
    """Record the key of each site that builds an error inside the `with` block, with its advice."""
    found: list[tuple[str, str]] = []

    def recording(kind: type) -> Any:
        before = kind.__init__

        @functools.wraps(before)
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            before(self, *args, **kwargs)
            frame, path = sys._getframe(1), Path(sys._getframe(1).f_code.co_filename)
            if frame.f_code.co_qualname != "MithrilError.__init__" and path.is_relative_to(PACKAGE):
                advice = self.diagnostics[0].advice if isinstance(self, MithrilError) else self.advice
                found.extend((key, advice) for key in _keys(frame))

        return init

    kinds = (MithrilError, Diagnostic, MismatchError)
    kept = [kind.__init__ for kind in kinds]
    for kind in kinds:
        kind.__init__ = recording(kind)
    try:
        yield found
    finally:
        for kind, before in zip(kinds, kept, strict=True):
            kind.__init__ = before


def is_builder(node: ast.Call) -> bool:
    """Return whether a call builds an error, or notes a problem for one."""
    name = called(node)
    return name == "problems.add" or name.rpartition(".")[2] in BUILDERS


def called(node: ast.Call) -> str:
    """Return the name of the function in a call."""
    return ast.unparse(node.func)


class Replace(ast.NodeTransformer):
    """Replace one node with another."""

    def __init__(self, old: ast.AST, new: ast.AST):
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> Any:
        return self.new if node is self.old else super().visit(node)


def is_instruction(advice: str) -> bool:
    """Return whether advice is a sentence for the reader, and not code."""
    return advice.endswith(".") and not advice.endswith("...")


def applied(advice: str, statement: str, summary: str) -> str:
    """Return a statement that failed with the advice in its place."""
    tree = ast.parse(statement)
    calls = [node for node in ast.walk(tree.body[-1]) if isinstance(node, ast.Call)]
    with contextlib.suppress(SyntaxError):
        arguments = ast.parse(f"f({advice}\n)", mode="eval").body
        assert isinstance(arguments, ast.Call)
        if arguments.keywords and not arguments.args and " = " not in advice.partition("=")[0] + advice[:40]:
            return _with_arguments(tree, calls, arguments.keywords, summary)
    wanted = ast.parse(advice).body
    if len(wanted) != 1 or not isinstance(wanted[0], ast.Expr):
        return f"{advice}\n{statement}"
    value = wanted[0].value
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and repr(node.value) in summary]
        assert texts, f"the error names no text of the statement: {statement}"
        return ast.unparse(Replace(texts[0], value).visit(tree))
    if isinstance(value, ast.Call):
        same = [node for node in calls if called(node).rpartition(".")[2] == called(value).rpartition(".")[2]]
        if same and same[0] is not calls[0]:
            nearest = max(same, key=lambda node: SequenceMatcher(None, ast.unparse(node), advice).ratio())
            return ast.unparse(Replace(nearest, value).visit(tree))
    return advice


def _with_arguments(tree: ast.Module, calls: list[ast.Call], keywords: list[ast.keyword], summary: str) -> str:
    names = {keyword.arg for keyword in keywords}
    misspelt = {keyword.arg for node in calls for keyword in node.keywords if f"no argument {keyword.arg!r}" in summary}
    call = next((node for node in calls if (names | misspelt) & {keyword.arg for keyword in node.keywords}), None)
    call = call or next((node for node in calls if node.args or node.keywords), calls[0])
    call.keywords = [one for one in call.keywords if one.arg not in names | misspelt] + keywords
    return ast.unparse(tree)


@dataclass(frozen=True)
class Snippet:
    """Parts of a case: the setup, the failing statement, and how to follow the advice."""

    before: str
    fails: str
    tried: tuple[str, ...]
    filled: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Snippet:
        """Return the parts of a snippet."""
        text = textwrap.dedent(text).strip()
        lines = text.splitlines()
        last = ast.parse(text).body[-1]
        assert last.end_lineno is not None
        comments = [line.strip().removeprefix("# ") for line in lines[last.end_lineno :]]
        found: dict[str, list[str]] = {"Try": [], "...": []}
        for comment in comments:
            word, colon, code = comment.partition(": ")
            assert colon, f"no comment of a case: {comment}"
            found[word].append(code.replace("\\n", "\n"))
        before, fails = lines[: last.lineno - 1], lines[last.lineno - 1 : last.end_lineno]
        return cls("\n".join(before), "\n".join(fails), tuple(found["Try"]), tuple(found["..."]))


def follow(text: str, names: Mapping[str, Any]) -> dict[str, str]:
    """Run a snippet and then the advice of its error, until it works; return the sites that built the error.

    Args:
        text: The snippet.
        names: The names that it may use.

    Raises:
        AssertionError: The snippet does not fail, the advice does not run, or it leads back to a problem before.
    """
    snippet = Snippet.parse(text)
    sites: dict[str, str] = {}
    statement, tried, seen = snippet.fails, list(snippet.tried), dict[str, str]()
    while True:
        with recorded() as found:
            error = _fails(snippet.before, statement, names)
        if not seen:
            assert error is not None, f"this does not fail: {statement}"
            given = {one.advice for one in error.diagnostics}
            sites = {key: advice for key, advice in found if advice in given}
        if error is None:
            return sites
        problem = next((one for one in error.diagnostics if one.advice), error.diagnostics[0])
        chain = "\n".join((*seen.values(), f"{statement}\n{error}"))
        assert problem.summary not in seen, f"advice leads back to a problem before it:\n{chain}"
        assert len(seen) < MOST_STEPS, f"advice leads to ever new problems:\n{chain}"
        assert problem.advice, f"an error without advice:\n{chain}"
        seen[problem.summary] = f"{statement}\n{error}"
        advice = problem.advice
        for one in snippet.filled:
            advice = advice.replace("...", one, 1)
        if tried:
            template = tried.pop(0)
            is_sentence = "{}" not in template
            assert is_sentence == is_instruction(advice), f"code ends without a full stop, a sentence with it:\n{chain}"
            statement = template.replace("{}", advice.partition("  # ")[0])
        else:
            assert not is_instruction(advice), f"an instruction that no `# Try:` follows:\n{chain}"
            try:
                statement = applied(advice, statement, problem.summary)
            except SyntaxError:
                raise AssertionError(f"advice that is no code:\n{chain}") from None


def _fails(before: str, statement: str, names: Mapping[str, Any]) -> MithrilError | None:
    scope = dict(names)
    exec(before, scope)
    try:
        with warnings.catch_warnings(action="ignore", category=MithrilWarning):
            exec(statement, scope)
    except MithrilError as error:
        return error
    return None


def check(cases: Mapping[str, str], case: str) -> None:
    """Run a case of a room, and assert that its error is built where its key claims: see `follow`.

    Args:
        cases: Snippets by the key of the site, or by `"key | what is special about it"`.
        case: The key of one of them.
    """
    with mock.patch.object(os, "environ", dict(os.environ)):  # what a case sets there ends with it
        found = follow(cases[case], names())
    for key in keys_of(case):
        assert key in found, f"{key} built no error, but {', '.join(found) or 'no site'}"


def keys_of(case: str) -> list[str]:
    """Return the keys of the sites that a case claims: `"one + other | a remark"`."""
    return case.partition(" | ")[0].split(" + ")


def chosen(cases: Mapping[str, str]) -> list[str]:
    """Return every third case, for rooms whose cases compile or train; `make stress` runs all of them."""
    return list(cases)[::3]


def all_cases() -> dict[str, str]:
    """Return the cases of all rooms."""
    found: dict[str, str] = {}
    for path in sorted(Path(__file__).parent.rglob("test_*_advice.py")):
        spec = importlib.util.spec_from_file_location(f"cases_of_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        if getattr(module, "check", None) is check:
            found |= module.CASES
    return found


def _cli(text: str) -> None:
    """Run a command line; raise the error that it prints."""
    import mithril_nb.cli

    def complain(diagnostics: Sequence[Diagnostic]) -> None:
        raise MithrilError(diagnostics[0], more=tuple(diagnostics[1:]))

    with mock.patch.object(mithril_nb.cli, "complain", complain):
        mithril_nb.cli.main(shlex.split(text))


def names() -> dict[str, Any]:
    """Return the names that each case may use."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax

    import mithril_nb as ml
    import mithril_nb.models as models
    from mithril_nb.graph.check import check as check_graph
    from mithril_nb.graph.edit import add, connect, disconnect, inside, rename, swap
    from mithril_nb.graph.records import Block, Edge, Endpoint, LogicalGraph, Node, Port
    from mithril_nb.models.naming import input_specs
    from mithril_nb.models.shape_inference.infer import infer

    def edge(source: str, target: str) -> Edge:
        return Edge(Endpoint.parse(source), Endpoint.parse(target))

    def shapes(model: Any, **given: Any) -> Any:
        infer(model.graph, input_specs(model.graph, given)).raise_problems()
        return model

    found = {name: getattr(models, name) for name in models.__all__}
    return found | dict(
        ml=ml, jax=jax, jnp=jnp, np=np, optax=optax, models=models, JaxBackend=ml.JaxBackend,
        Block=Block, Edge=Edge, Endpoint=Endpoint, LogicalGraph=LogicalGraph, Node=Node, Port=Port,
        check_graph=check_graph, add_to_graph=add, connect=connect, disconnect=disconnect, inside=inside,
        rename=rename, swap=swap,
        edge=edge, infer=infer, shapes=shapes, new_path=lambda name: Path(name).absolute(), cli=_cli,
    )  # fmt: skip
