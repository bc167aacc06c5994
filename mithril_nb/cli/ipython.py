"""The notebook extension: after `%load_ext mithril_nb`, calling a string adds the op of that name.

    model += "gelu"(input="hidden", output="hidden_act")

In plain Python, calling a string fails. The extension rewrites the syntax tree of each cell before it runs, here to
`ml.op("gelu")(input=..., output=...)`.

It also defines the cell magic `%%mithril_watch`, which reports what JAX traced and compiled in the cell, and why.
"""

from __future__ import annotations

import ast
import importlib
import sys
from typing import Any


class StringCallRewriter(ast.NodeTransformer):
    """Rewrites `"name"(...)` to `mithril_nb.op("name")(...)` in any expression.

    Examples:
        >>> ast.unparse(StringCallRewriter().visit(ast.parse('model += "gelu"(input="x")')))
        "model += __import__('mithril_nb').op('gelu')(input='x')"
    """

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Rewrite a call, and the calls inside it."""
        self.generic_visit(node)
        name = node.func
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            # Not `ml`: the cell may use that name for something else.
            package = ast.Call(ast.Name("__import__", ast.Load()), [ast.Constant("mithril_nb")], [])
            op = ast.Call(ast.Attribute(package, "op", ast.Load()), [name], [])
            node.func = ast.copy_location(op, name)
            ast.fix_missing_locations(node)
        return node


MAGIC = "mithril_watch"


class CellWatch:
    """The cell magic `%%mithril_watch`: runs the cell in `with ml.watch()` and shows the report below its output."""

    def __init__(self, shell: Any):
        self._shell = shell

    def __call__(self, line: str, cell: str) -> None:
        """Run a cell; its last expression is displayed, as without the magic."""
        __tracebackhide__ = True  # IPython leaves this frame out of tracebacks of the cell
        if line.strip():
            errors = importlib.import_module("mithril_nb.errors")
            raise errors.UnknownOptionError(
                f"%%{MAGIC} takes no options; the cell's code starts on the next line.",
                (("given", errors.short_repr(line.strip())),),
                f"%%{MAGIC}",
            )
        seen = importlib.import_module("mithril_nb").watch()
        try:
            with seen:
                self._run(f"# %%{MAGIC}\n{cell}")  # keep the magic's line, so that line numbers match the cell
        finally:
            importlib.import_module("IPython.display").display(seen)

    def _run(self, cell: str) -> None:
        __tracebackhide__ = True
        shell = self._shell
        code = shell.transform_cell(cell)
        name = shell.compile.cache(code, self._number(), raw_code=cell)
        tree = shell.transform_ast(shell.compile.ast_parse(code, filename=name))
        # As IPython's `ast_node_interactivity="last_expr"`: mode "single" passes the value to the display hook.
        displayed = tree.body[-1:] if isinstance(tree.body[-1] if tree.body else None, ast.Expr) else []
        body = ast.Module(tree.body[: len(tree.body) - len(displayed)], [])
        exec(shell.compile(body, name, "exec"), shell.user_ns)
        exec(shell.compile(ast.Interactive(displayed), name, "single"), shell.user_ns)

    def _number(self) -> int:
        cells, frame = self._shell.compile._filename_map, sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename in cells:
                return cells[frame.f_code.co_filename]
            frame = frame.f_back
        return self._shell.execution_count


def load(shell: Any) -> None:
    """Start rewriting cells, and define the magic; calling it again changes nothing."""
    if not any(isinstance(transformer, StringCallRewriter) for transformer in shell.ast_transformers):
        shell.ast_transformers.append(StringCallRewriter())
    shell.register_magic_function(CellWatch(shell), "cell", MAGIC)


def unload(shell: Any) -> None:
    """Stop rewriting cells, and remove the magic."""
    shell.ast_transformers[:] = [
        transformer for transformer in shell.ast_transformers if not isinstance(transformer, StringCallRewriter)
    ]
    shell.magics_manager.magics["cell"].pop(MAGIC, None)
