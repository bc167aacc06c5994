"""Sums of costs: blocks, roles and rows add up exactly to the total."""

from mithril_nb.cost import Cost
from mithril_nb.figures import COUNTED

FIELDS = (*COUNTED, "params")


def check_sums(cost: Cost) -> None:
    for field in FIELDS:
        total = getattr(cost.total, field)
        parts = [getattr(one, field) or 0 for one in (*cost.by_block.values(), cost.unattributed)]
        assert total == getattr(cost.subtree(""), field)
        assert sum(parts) == (total or 0)
        if field != "params":
            roles = [figures for roles in cost.by_block_and_role.values() for figures in roles.values()]
            for some in (cost.rows, cost.by_role.values(), roles):
                assert sum(getattr(one, field) or 0 for one in some) == (total or 0)
