"""Costs as pandas tables. pandas is imported on demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mithril_nb.cost.records import COMMUNICATION
from mithril_nb.display import UNATTRIBUTED_LABEL
from mithril_nb.errors import UnavailableBackendError, UnknownOptionError, nearest

if TYPE_CHECKING:
    import pandas

_INTEGERS = (
    "flops",
    "transcendentals",
    "bytes_accessed",
    "params",
    "repeats",
    "unknown",
    "unknown_bytes",
    *COMMUNICATION,
)


def data_frame(cost: Mapping[str, Any], by: str) -> pandas.DataFrame:
    """Return the result of `Cost.to_dict` as the table that `Cost.to_pandas` documents.

    Counts are integers, and unknown costs are `<NA>`.
    """
    if by not in ("row", "block"):
        raise UnknownOptionError(
            f"cannot list the costs of {cost['program']!r} by {by!r}.",
            (("known", "row, block"),),
            f'by="{nearest(by, ("row", "block")) or "block"}"',
        )
    try:
        import pandas
    except ImportError as error:
        raise UnavailableBackendError(
            "to_pandas needs pandas.", (("because", str(error)),), "pip install pandas"
        ) from error
    sends = [key for key in COMMUNICATION if key in cost["total"]]
    if by == "row":
        sends = sends[:2]
        lines = [{**_sent(row, sends), **row, "blocks": ", ".join(row["blocks"])} for row in cost["rows"]]
        columns = ["id", "opcode", "blocks", "role", "flops", "transcendentals", "bytes_accessed", *sends, "repeats",
                   "formula", "time_s"]  # fmt: skip
        table = pandas.DataFrame(lines, columns=columns).set_index("id")
    else:
        blocks = {**cost["by_block"], UNATTRIBUTED_LABEL: cost["unattributed"]}
        lines = [
            {
                "block": path,
                **{
                    key: figures[key]
                    for key in figures
                    if key not in ("roles", "unknown_transcendentals", *COMMUNICATION)
                },
                **_roles(figures),
                **_sent(figures, sends),
            }
            for path, figures in blocks.items()
        ]
        table = pandas.DataFrame(lines).set_index("block")
    integers = {name: "Int64" for name in table.columns if name in (*_INTEGERS, "forward", "backward", "update")}
    # Int64 and Float64 are pandas' nullable dtypes. With int64, a column with an unknown cost would become floats.
    return table.astype({**integers, "time_s": "Float64"})


def _sent(figures: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return some figures of communication by name; 0 for names that are not in `figures`."""
    return {name: figures.get(name, 0) for name in names}


def _roles(block: Mapping[str, Any]) -> dict[str, Any]:
    return {role: block["roles"][role]["flops"] for role in ("forward", "backward", "update")}
