"""The code of documents, prepared to run: fenced blocks, and inline calls and expressions."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_FENCE = re.compile(r'^([ \t]*)```(\w*(?: title="[\w./-]+")?)\n(.*?)^\1```', re.DOTALL | re.MULTILINE)
_EXAMPLE = re.compile(r"^[ \t]*>>> .*\n(?:[ \t]*\S.*\n?)*", re.MULTILINE)
_FILE = re.compile(r"[\w./-]+\.(py|json|md|toml|lock|cfg|ipynb)")
_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")


@dataclass(frozen=True)
class Span:
    """Inline code of a document.

    Attributes:
        text: The code, on one line.
        place: The document, or the module and the name that a docstring belongs to.
        module: Name of that module; `""` for documents.
        owner: Name of the class or function that a docstring belongs to; `""` for modules.
    """

    text: str
    place: str
    module: str = ""
    owner: str = ""


def texts() -> dict[str, str]:
    """Return the documents by name; of notebooks the Markdown cells."""
    pages = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    pages += sorted((ROOT / "docs").rglob("*.md"))
    found = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in pages}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        found[str(path.relative_to(ROOT))] = "\n\n".join(
            "".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"
        )
    return found


def fences(text: str) -> list[tuple[str, str]]:
    """Return language and code of each fenced block; the language includes a title: `python title="my_blocks.py"`."""
    return [(language, code) for _, language, code in _FENCE.findall(text)]


def spans_in(text: str) -> list[str]:
    """Return the inline code of a text, without its fenced blocks and its doctests."""
    rest = _EXAMPLE.sub("", _FENCE.sub("", text))
    return list(dict.fromkeys(" ".join(span.split()) for span in _SPAN.findall(rest)))


def spans_of_docstrings() -> Iterator[Span]:
    """Yield the inline code of every docstring of the package."""
    for path in sorted((ROOT / "mithril_nb").rglob("*.py")):
        if "frontend" in path.parts:
            continue
        relative = path.relative_to(ROOT).with_suffix("")
        module = ".".join(relative.parts).removesuffix(".__init__")
        yield from _within(ast.parse(path.read_text(encoding="utf-8")), module, "")


def _within(node: ast.AST, module: str, owner: str) -> Iterator[Span]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        name = getattr(node, "name", "")
        place = f"{module}:{owner}.{name}".replace(":.", ":").rstrip(":")
        for text in spans_in(ast.get_docstring(node) or ""):
            yield Span(text, place, module, owner or name)
        owner = name if isinstance(node, ast.ClassDef) else owner
    for child in ast.iter_child_nodes(node):
        yield from _within(child, module, owner)


def parsed(text: str) -> ast.Module | None:
    """Return the code as a tree; `None` if it is not Python. A decorator and the head of a class get a body."""
    body = "\ndef function(x): return x" if text.startswith("@") else ": pass" if text.startswith("class ") else ""
    try:
        return ast.parse(text + body)
    except SyntaxError:
        return None


def is_code(tree: ast.Module) -> bool:
    """Return whether code is a call, an attribute, an item or an assignment, not only a name or a number."""
    kinds = (ast.Call, ast.Attribute, ast.Subscript, ast.Assign, ast.Import, ast.ClassDef)
    return any(isinstance(node, kinds) for node in ast.walk(tree))


def is_file_name(text: str) -> bool:
    """Return whether text is a file name rather than an attribute: `program.py`."""
    return _FILE.fullmatch(text) is not None


class Filled(ast.NodeTransformer):
    """Replace `...` in documents with example values: the first arguments of a call, a keyword, or a value."""

    def __init__(self, arguments: dict[str, str], values: dict[str, str]):
        self.arguments, self.values = arguments, values

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replace a leading `...` with the call's usual arguments, and drop a later one, which means "and more"."""
        self.generic_visit(node)
        if node.args and _is_open(node.args[0]):
            usual = ast.parse(f"f({self.arguments[ast.unparse(node.func)]})", mode="eval").body
            assert isinstance(usual, ast.Call)
            node.args[:1] = usual.args
        node.args = [argument for argument in node.args if not _is_open(argument)]
        for keyword in node.keywords:
            if _is_open(keyword.value):
                keyword.value = ast.parse(self.values[str(keyword.arg)], mode="eval").body
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Replace the value of an assignment such as `wb.model = ...`."""
        self.generic_visit(node)
        if _is_open(node.value):
            node.value = ast.parse(self.values[ast.unparse(node.targets[0])], mode="eval").body
        return node


def _is_open(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def parameter_names(*modules: str) -> set[str]:
    """Return the names of the parameters of all public functions, classes and methods of some modules."""
    found: set[str] = set()
    for name in modules:
        module = importlib.import_module(name)
        for public in getattr(module, "__all__", None) or dir(module):
            found |= _parameters(getattr(module, public))
    return found


def _parameters(value: object) -> set[str]:
    if not callable(value):
        return set()
    members = (
        [one for name, one in inspect.getmembers(value, callable) if name[0] != "_"] if inspect.isclass(value) else []
    )
    found: set[str] = set()
    for one in (value, *members):
        try:
            found |= set(inspect.signature(one).parameters)
        except (TypeError, ValueError):  # built in, without a signature
            continue
    return found
