"""Edit Python that builds a model where the model has changed, and leave all other lines as they are."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import pairwise, takewhile
from typing import Any

from mithril_nb.errors import MithrilError
from mithril_nb.models.model import Model
from mithril_nb.models.saving.formats import to_source
from mithril_nb.models.saving.reading import from_source, lines_of, value_of


def updated_source(text: str, before: Model, after: Model) -> str:
    r"""Return a user's code, which builds the model `before`, changed to build `after`.

    Statements whose meaning stays keep their lines, with comments and format. If the code composes the model in another
    way than `to_source`, such as in one long expression, the result is that of `to_source`.

    Examples:
        >>> from mithril_nb.models import Linear, Model, Relu
        >>> text = "m = Model()  # a net\nm |= Linear( 64 )\n"
        >>> print(updated_source(text, from_source(text), Model() + Linear(64) + Relu()), end="")
        from mithril_nb.models import Linear, Model, Relu
        m = Model()  # a net
        m |= Linear( 64 )
        m += Relu()
    """
    new = to_source(after)
    try:
        changed = _Changes(text, to_source(before), new).text()
        is_right = changed is not None and same_model(from_source(changed), after)
    except (MithrilError, SyntaxError):
        return new
    return changed if changed is not None and is_right else new


def with_imports(text: str, model: Model) -> str:
    """Return a user's code, which builds a model, with the imports that it needs to run as Python."""
    return _with_imports(text, ast.parse(to_source(model)).body)


def same_model(model: Model, other: Model) -> bool:
    """Return whether two models have the same name, blocks and connections."""
    return (model.graph, model.name) == (other.graph, other.name)


class _Changes:
    def __init__(self, text: str, old: str, new: str):
        self.lines = lines_of(text)
        if self.lines and not self.lines[-1].endswith("\n"):
            self.lines[-1] += "\n"
        self.body = ast.parse(text).body
        self.old, self.new = ast.parse(old).body, ast.parse(new).body
        self.new_lines = new.splitlines()

    def text(self) -> str | None:
        """Return the changed code; `None` if its statements are not those of the old code."""
        mine, old, new = ([node for node in body if _builds(node)] for body in (self.body, self.old, self.new))
        spans = [(node.lineno - 1, node.end_lineno or node.lineno) for node in mine]
        shares_lines = any(end > start for (_, end), (start, _) in pairwise(spans))
        names = _matching_names(mine, old, _imported(self.body), _imported(self.old))
        if names is None or shares_lines:
            return None
        replaced: dict[int, list[str]] = {}  # by index of the statement
        added: dict[int, list[str]] = {}  # after a statement; -1 for before the first
        keys = [[ast.dump(node) for node in body] for body in (old, new)]
        for tag, start, end, first, last in SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
            if tag == "equal":
                continue
            texts = [self.written(node, names) for node in new[first:last]]
            both = min(end - start, last - first)
            replaced |= {start + k: [texts[k]] if k < both else [] for k in range(end - start)}
            if texts[both:]:
                added[end - 1] = texts[both:]
        lines = self.lines.copy()
        for index in reversed(range(-1, len(mine))):
            if index in added:
                at = spans[index][1] if index >= 0 else spans[0][0] if spans else len(lines)
                lines[at:at] = [f"{text}\n" for text in added[index]]
            if index in replaced:
                start, end = spans[index]
                comment = _comment(self.lines[end - 1])
                lines[start:end] = [f"{text}{comment}\n" for text in replaced[index]]
        return _with_imports("".join(lines), self.new)

    def written(self, node: ast.stmt, names: Mapping[str, str]) -> str:
        """Return a new statement with the variables of the user's code."""
        end = node.end_lineno or node.lineno
        if all(name == other for name, other in names.items()):
            return "\n".join(self.new_lines[node.lineno - 1 : end])
        return ast.unparse(_Renamed(names).visit(node))


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]):
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.names.get(node.id, node.id), node.ctx)


def _builds(node: ast.stmt) -> bool:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return not isinstance(node, ast.Import | ast.ImportFrom) and not is_text


def _imported(body: Sequence[ast.stmt]) -> dict[str, str]:
    """Return what a name in the code imports: a kind of block, or `""` for a module."""
    names: dict[str, str] = {}
    for node in body:
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.asname or alias.name.partition(".")[0]: "" for alias in node.names}
    return names


def _with_imports(text: str, generated: Sequence[ast.stmt]) -> str:
    tree = ast.parse(text)
    lines = lines_of(text)
    # An import after the first statement that builds is too late.
    heads = [*takewhile(lambda node: not _builds(node), tree.body)]
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in generated:
        if not isinstance(node, ast.ImportFrom):
            continue
        own = ", ".join(sorted({alias.name for alias in node.names} & names - _imported(tree.body).keys()))
        same = [head for head in heads if isinstance(head, ast.ImportFrom) and head.module == node.module]
        if not own or any(alias.name == "*" for head in same for alias in head.names):
            continue
        at = same[-1].lineno - 1 if same else 0
        comment = _comment(lines[at].rstrip())
        code = lines[at].rstrip().removesuffix(comment)
        if same and (same[-1].end_lineno, same[-1].end_col_offset) == (at + 1, len(code.encode())) and code[-1] != ")":
            lines[at] = f"{code}, {own}{comment}\n"
        else:
            lines.insert(_end_of(heads, tree.body), f"from {node.module} import {own}\n")
        return _with_imports("".join(lines), generated)  # the lines have moved
    return "".join(lines)


def _end_of(heads: Sequence[ast.stmt], body: Sequence[ast.stmt]) -> int:
    """Return the number of lines above a new import."""
    if not heads:
        return 0
    end = heads[-1].end_lineno or 0
    shares_line = len(body) > len(heads) and body[len(heads)].lineno == end  # from x import y; model = y()
    return heads[-1].lineno - 1 if shares_line else end


def _matching_names(
    mine: Sequence[ast.stmt], old: Sequence[ast.stmt], imported: Mapping[str, str], old_imported: Mapping[str, str]
) -> dict[str, str] | None:
    """Return the user's name of each variable in the old code; `None` if the statements differ in more than names."""
    if len(mine) != len(old):
        return None
    names: dict[str, str] = {}
    for own, other in zip(mine, old, strict=True):
        if not _same(own, other, names, imported, old_imported):
            return None
    return names if len({*names.values()}) == len(names) else None


def _same(own: Any, other: Any, names: dict[str, str], imported: Mapping[str, str], old: Mapping[str, str]) -> bool:
    if isinstance(other, ast.Name) and other.id in old:  # a kind of block
        if isinstance(own, ast.Attribute):  # of a module
            return own.attr == old[other.id]
        return isinstance(own, ast.Name) and imported.get(own.id, own.id) == old[other.id]
    if isinstance(own, ast.Name) and isinstance(other, ast.Name):
        return names.setdefault(other.id, own.id) == own.id
    if isinstance(own, ast.Call) and isinstance(other, ast.Call) and _same_block(own, other, imported, old):
        return True
    if isinstance(own, ast.AST) and isinstance(other, ast.AST):
        if isinstance(own, ast.List | ast.Tuple) and isinstance(other, ast.List | ast.Tuple):
            return _same(own.elts, other.elts, names, imported, old)
        return type(own) is type(other) and all(
            _same(getattr(own, field, None), getattr(other, field, None), names, imported, old)
            for field in own._fields
            if field != "kind"  # the u of u"text"
        )
    if isinstance(own, list) and isinstance(other, list):
        return len(own) == len(other) and all(
            _same(a, b, names, imported, old) for a, b in zip(own, other, strict=True)
        )
    return type(own) is type(other) and own == other


def _same_block(own: ast.Call, other: ast.Call, imported: Mapping[str, str], old: Mapping[str, str]) -> bool:
    """Return whether two calls without variables make the same block: `Linear(8)` and `Linear(dimension=8)`."""
    blocks = []
    for node, names in ((own, imported), (other, old)):
        try:
            block = value_of(node, names)
        except Exception:  # of a constructor that rejects its arguments, or of a call with variables
            return False
        blocks.append((block.block, block.name) if isinstance(block, Model) else None)
    return None not in blocks and blocks[0] == blocks[1]


def _comment(line: str) -> str:
    """Return the comment at the end of a line with the space before it; `""` without one."""
    comments = [token.start[1] for token in _tokens(line) if token.type == tokenize.COMMENT]
    if not comments:
        return ""
    code = line[: comments[0]]
    return line[len(code.rstrip()) :].rstrip()


def _tokens(line: str) -> Iterator[tokenize.TokenInfo]:
    try:
        yield from tokenize.generate_tokens(io.StringIO(line).readline)
    except (tokenize.TokenError, IndentationError):  # the last line of a statement over several lines
        return
