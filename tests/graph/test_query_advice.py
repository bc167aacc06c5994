"""The advice of errors of searches works."""

from __future__ import annotations

import pytest
from advice import check

CASES = {
    "graph/query.py:parse_query": "Model().find(3)\n# Try: Model().find({})",
    "graph/query.py:_value": "(Model() | Linear(3)).find('block:\"head')\n# Try: (Model() | Linear(3)).find('{}')",
    "graph/query.py:_value#2": "(Model() | Linear(3)).find('\"a\"b')\n# Try: (Model() | Linear(3)).find('{}')",
    "graph/query.py:_term": "(Model() | Linear(3)).find('knd:dot')\n# Try: (Model() | Linear(3)).find('{}')",
    "graph/query.py:_term | another text": "Model().find('zip:a')\n# Try: Model().find('{}')",
    "graph/query.py:_term#2": "ml.inspect(jnp.sin, 1.0).find('flops>a')\n# Try: ml.inspect(jnp.sin, 1.0).find('{}')",
    "graph/query.py:_term#3": "ml.inspect(jnp.sin, 1.0).find('kind>dot')\n# Try: ml.inspect(jnp.sin, 1.0).find('{}')",
    "graph/query.py:_term#4": "ml.inspect(jnp.sin, 1.0).find('role:b')\n# Try: ml.inspect(jnp.sin, 1.0).find('{}')",
    "graph/query.py:_without_value": "Model().find('-')\n# Try: Model().find('{}')",
    "graph/query.py:_without_value#2": "Model().find('kind:')\n# Try: Model().find('{}')",
    "models/summary.py:Portable.find": """
        model = Model() | Linear(3)(input="input")
        model.find("flops>1")
        """,
}


@pytest.mark.parametrize("case", CASES)
def test_advice(case: str) -> None:
    check(CASES, case)
