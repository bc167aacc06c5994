"""The advice in errors of widgets works."""

from __future__ import annotations

import pytest
from advice import check

CASES = {
    "ui/widgets/explorer.py:explore": """
        fn, args = (lambda x: x.sum()), (jnp.ones(3),)
        ml.explore(3, through=("grad",))
        """,
    "ui/widgets/live.py:watch#2": """
        fn = lambda x: x + 1
        ml.watch(3)
        """,
    "cli/ipython.py:CellWatch.__call__": """
        from mithril_nb.cli.ipython import CellWatch
        CellWatch(None)("bad args", "x = 1")
        # Try: assert "{}" == "%%mithril_watch"
        """,
    "analysis/retraces/recorder.py:WatchReport.__getitem__": """
        with ml.watch() as seen: jax.jit(lambda x: x + 1)(jnp.ones(3))
        report = seen.report()
        report["lambda"]
        """,
    "ui/widgets/workbench.py:workbench": 'ml.workbench(Linear(3), backend="jax")',
    "errors.py:refuse_unknown": 'ml.JaxBackend(devce="cpu")',
    "errors.py:refuse_unknown | like no other": "ml.JaxBackend(zzz=1)\n# Try: ml.JaxBackend(seed=1)",
    "ui/widgets/workbench.py:workbench#2": """
        model = Linear(3)
        ml.workbench(model, autosave=3)
        """,
}


@pytest.mark.parametrize("case", CASES)
def test_advice_works(case: str) -> None:
    check(CASES, case)
