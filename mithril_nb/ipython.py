"""The notebook extension: after `%load_ext mithril_nb`, a text that is called is an op of that name.

    model += "gelu"(input="hidden", output="hidden_act")

Python reads this as the call of a text, which fails; here the syntax tree of each cell is rewritten, before it runs, to
`ml.op("gelu")(input=..., output=...)`.
"""

from __future__ import annotations

import ast
from typing import Any


class CalledTexts(ast.NodeTransformer):
    """Rewrites `"name"(...)` to `mithril_nb.op("name")(...)`, in whatever expression it stands.

    Examples:
        >>> ast.unparse(CalledTexts().visit(ast.parse('model += "gelu"(input="x")')))
        "model += __import__('mithril_nb').op('gelu')(input='x')"
    """

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Rewrite one call, and those inside it."""
        self.generic_visit(node)
        name = node.func
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            # Not `ml`: the cell may have given that name to something else.
            package = ast.Call(ast.Name("__import__", ast.Load()), [ast.Constant("mithril_nb")], [])
            op = ast.Call(ast.Attribute(package, "op", ast.Load()), [name], [])
            node.func = ast.copy_location(op, name)
            ast.fix_missing_locations(node)
        return node


def load(shell: Any) -> None:
    """Start rewriting the cells of a notebook; a second time changes nothing."""
    if not any(isinstance(one, CalledTexts) for one in shell.ast_transformers):
        shell.ast_transformers.append(CalledTexts())


def unload(shell: Any) -> None:
    """Stop rewriting."""
    shell.ast_transformers[:] = [one for one in shell.ast_transformers if not isinstance(one, CalledTexts)]
