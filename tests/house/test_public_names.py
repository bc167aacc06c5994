"""The public names: the list is fixed, and each has a docstring."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mithril_nb


def public() -> list[str]:
    return [name for name in mithril_nb.__all__ if callable(getattr(mithril_nb, name))]


def test_every_public_name_exists() -> None:
    assert set(mithril_nb.__all__) <= set(dir(mithril_nb))
    for name in mithril_nb.__all__:
        assert getattr(mithril_nb, name) is not None


def test_the_stub_for_editors_has_the_public_names_of_the_package() -> None:
    tree = ast.parse(Path(mithril_nb.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [statement for statement in tree.body if isinstance(statement, ast.ImportFrom)]
    homes = {alias.asname: (statement.module, alias.name) for statement in imports for alias in statement.names}
    declared = {target.target.id for target in tree.body if isinstance(target, ast.AnnAssign)}
    public_homes = {name: (module, name) for name, module in mithril_nb._HOMES.items()}
    rooms = {name: ("mithril_nb", name) for name in mithril_nb._ROOMS}
    assert {name: home for name, home in homes.items() if name} == public_homes | rooms
    assert declared == {"__all__", "__version__"}


@pytest.mark.parametrize("name", public())
def test_public_name_has_a_docstring(name: str) -> None:
    documented = getattr(mithril_nb, name)
    text = inspect.getdoc(documented) or ""
    assert text.splitlines(), f"{name} has no docstring"
    assert text.splitlines()[0].rstrip().endswith((".", ":")), f"the first line of {name} is no sentence"


_IMPORTING = """
import os
import jax  # sets TF_CPP_MIN_LOG_LEVEL and TPU_SKIP_MDS_QUERY
before = dict(os.environ)
import mithril_nb
for name in mithril_nb.__all__:
    getattr(mithril_nb, name)
print({name: value for name, value in os.environ.items() if before.get(name) != value})
"""


def test_imports_set_no_environment_variables_beside_those_of_jax() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TF_", "TPU_"))}
    run = [sys.executable, "-c", _IMPORTING]
    assert subprocess.run(run, env=environment, capture_output=True, text=True, check=True).stdout == "{}\n"
