"""The advice in errors of emission works."""

from __future__ import annotations

import pytest
from advice import check

CASES = {
    "emission/build.py:check_sizes": """
        from mithril_nb.emission.build import build
        rows = jax.ShapeDtypeStruct(jax.export.symbolic_shape("B"), "float32")
        inspection = ml.inspect(jnp.sin, rows)
        build(inspection._pipeline.program.get())
        # Try: build(ml.inspect(jnp.sin, jnp.ones(32))._pipeline.program.get())
        """,
    "emission/unsupported.py:unsupported": """
        from mithril_nb.emission.build import build
        from mithril_nb.emission.unsupported import check_supported
        def program(x): return build(ml.inspect(jnp.sin, x)._pipeline.program.get())
        check_supported(program(jnp.ones(3)), "c", ["cos"])
        # Try: ml.compile(ml.models.Linear(2), {}, shapes=dict(input=[1, 3]))
        """,
}


@pytest.mark.parametrize("case", CASES)
def test_advice_works(case: str) -> None:
    check(CASES, case)
