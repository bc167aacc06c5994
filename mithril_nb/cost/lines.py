"""Costs by line of the user's Python, as a dict and as source code with the costs next to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mithril_nb.cost.by_name import ByName, first_names
from mithril_nb.cost.records import CostRow, Figures, parts_of, pieces_of, share_of, sum_of_figures, sum_of_rows
from mithril_nb.cost.totals import CostTotals
from mithril_nb.display import Shown
from mithril_nb.errors import UnknownOptionError, nearest, short_repr
from mithril_nb.stages.records import lines_of_source
from mithril_nb.stages.trace.python_source import spans


class ByLine(Shown, ByName[Figures]):
    """A dict from a line of Python, such as `"net.py:12"`, to its cost; the key `""` has the cost without a line.

    `print` shows the source code with the costs next to it.

    Args:
        known: The cost of each line, in the order of files and lines.
        cost: The costs of the program.

    Examples:
        >>> import jax.numpy as jnp
        >>> from mithril_nb.inspection import inspect
        >>> cost = inspect(lambda x, w: jnp.tanh(x @ w), jnp.zeros((2, 3)), jnp.zeros((3, 4))).cost()
        >>> sum(one.flops for one in cost.by_line.values()) == cost.total.flops
        True
    """

    _usually_called = "cost.by_line"

    def __init__(self, items: Mapping[str, Figures], cost: CostTotals, lines_of: Mapping[str, Sequence[str]]):
        super().__init__(items, f"costs of {cost.program!r}")
        self._cost, self._lines_of = cost, lines_of

    @property
    def all_lines(self) -> ByLine:
        """The same costs by line of the library, such as `"optax/_src/transform.py:12"`, where the user calls one.

        Examples:
            >>> import jax
            >>> from mithril_nb.inspection import inspect
            >>> [*inspect(lambda x: jax.nn.softplus(x), jax.numpy.zeros(3)).cost().by_line.all_lines][0].split(":")[0]
            'jax/_src/nn/functions.py'
        """
        return figures_by_line(self._cost, self._cost.lines.inner)

    def __missing__(self, source: object) -> Figures:
        lines = [line for line in self if line]
        near = nearest(source, lines)
        raise UnknownOptionError(
            f"{self._of} have no line {short_repr(source)}.",
            (("lines", first_names(lines)),),
            f'{self._called}["{near}"]' if near else f"[*{self._called}]",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the costs as plain data.

        - `program`, `source`, `total`, `unattributed`: as in `Cost`.
        - `symbols`: a dict from each symbolic size to an example number.
        - `lines`: for each line its `source` (`"net.py:12"`), `file`, `line`, the costs, the results of
          `Cost.share_of` (`share`, `share_bound`), and for symbolic sizes `formulas` by name of the cost.
        - `code`: for each function with costs its `file`, the number of its first `line`, and `text`, a list of lines.
        """
        symbolic, lines_of = self._cost.symbolic, self._lines_of
        formulas: Mapping[str | None, Mapping[str, str]] = {}
        if symbolic is not None and symbolic.symbols:
            formulas = symbolic.formulas_by(lambda equation: next(map(_first_line, lines_of.get(equation.id, ())), ""))
        lines: list[dict[str, Any]] = []
        by_file: dict[str, list[int]] = {}
        for source, figures in self.items():
            if source:
                file, line, _ = lines_of_source(source)
                by_file.setdefault(file, []).append(line)
                lines.append({"source": source, "file": file, "line": line, **self._data(figures, formulas, source)})
        return {
            "program": self._cost.program,
            "source": self._cost.source,
            "symbols": dict(symbolic.example) if symbolic is not None and formulas else {},
            "total": {**self._data(self._cost.total, formulas, None), **({} if formulas else {"share": 1.0})},
            "unattributed": self._data(self[""], formulas, "") if "" in self else None,
            "lines": lines,
            "code": [part for file, numbers in by_file.items() for part in self._code(file, numbers)],
        }

    def _data(
        self, figures: Figures, formulas: Mapping[str | None, Mapping[str, str]], source: str | None
    ) -> dict[str, Any]:
        share, bound = share_of(figures, self._cost.total)
        if self._cost.source == "measured":
            total_s = self._cost.total.time_s
            share, bound = (figures.time_s or 0.0) / total_s if total_s else None, ""
        texts = {"formulas": dict(formulas.get(source, {}))} if formulas else {}
        return {**figures.to_dict(), **texts, "share": share, "share_bound": bound}

    def _code(self, file: str, numbers: Sequence[int]) -> list[dict[str, Any]]:
        code = self._cost.lines.code(file)
        # Of libraries, show only the lines with costs: their functions are long.
        is_of_user = self._lines_of is self._cost.lines.of
        ranges = spans(code, numbers) if is_of_user else [(line, line) for line in numbers]
        parts = ((first, [line.rstrip() for line in code[first - 1 : last]]) for first, last in ranges)
        return [{"file": file, "line": first, "text": text} for first, text in parts if text]


def figures_by_line(cost: CostTotals, lines_of: Mapping[str, Sequence[str]] | None = None) -> ByLine:
    """Return the cost of each line of Python. A row that comes from several lines is split into equal parts.

    Args:
        cost: The costs of the program.
        lines_of: The lines by id of the row; by default those of the user.
    """
    lines_of = cost.lines.of if lines_of is None else lines_of
    rows: dict[str, list[CostRow]] = {}
    parts: dict[str, list[Figures]] = {}
    for row in (piece for whole_row in cost.rows for piece in pieces_of(whole_row)):
        sources = dict.fromkeys(map(_first_line, lines_of.get(row.id, ())))
        if len(sources) < 2:
            rows.setdefault(next(iter(sources), ""), []).append(row)
        else:
            # `parts_of` splits a row by blocks, so lines are passed as blocks.
            for source, part in parts_of(replace(row, blocks=tuple((source, 1.0) for source in sources))):
                parts.setdefault(source, []).append(part)
    files = {label: index for index, label in enumerate(cost.lines.files)}

    def order(source: str) -> tuple[bool, int, str, int]:
        file, line, _ = lines_of_source(source)
        # Files in the order in which the program uses them; the cost without a line comes last.
        return not source, files.get(file, len(files)), file, line

    all_known = bool(cost.symbols)
    by_line = {
        source: sum_of_figures(
            [*([sum_of_rows(rows[source], all_known=all_known)] if source in rows else []), *parts.get(source, ())],
            all_known=all_known,
        )
        for source in sorted({**rows, **parts}, key=order)
    }
    if by_line.get("") == Figures():  # XLA's parameters and constants cost nothing
        del by_line[""]
    return ByLine(by_line, cost, lines_of)


def _first_line(source: str) -> str:
    file, line, _ = lines_of_source(source)
    return f"{file}:{line}" if file else source
