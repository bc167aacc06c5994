"""Former names of modules and public names still work, with a warning that names the new ones."""

from __future__ import annotations

import importlib
import sys

import pytest

from mithril_nb.renamed import _MODULES, _NAMES


@pytest.mark.parametrize("former", sorted(_MODULES))
def test_a_former_module_has_the_names_of_the_new_one(former: str) -> None:
    sys.modules.pop(former, None)
    with pytest.warns(DeprecationWarning, match="is now") as caught:
        module = importlib.import_module(former)
    assert [str(one.message) for one in caught] == [
        f"{former} is now {_MODULES[former]}; the former name will be removed in version 1.0."
    ]
    new = importlib.import_module(_MODULES[former])
    for name in getattr(new, "__all__", ["__doc__"]):
        assert getattr(module, name) is getattr(new, name) or name == "__doc__"
    assert new.__name__ == new.__spec__.name == _MODULES[former]
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        module.no_such_name  # noqa: B018


@pytest.mark.parametrize(("module", "former"), [(module, name) for module in _NAMES for name in _NAMES[module]])
def test_a_former_name_is_the_new_one(module: str, former: str) -> None:
    home, now = _NAMES[module][former]
    with pytest.warns(DeprecationWarning, match=f"^{module}.{former} is now {home}.{now}; ") as caught:
        found = getattr(importlib.import_module(module), former)
    assert found is getattr(importlib.import_module(home), now)
    assert caught[0].filename == __file__


def test_an_import_statement_of_a_former_name_warns_at_its_line() -> None:
    sys.modules.pop("mithril_nb.physical", None)
    with pytest.warns(DeprecationWarning, match="is now") as caught:
        from mithril_nb.physical import PhysicalModel
    from mithril_nb.compilation import PhysicalModel as new

    assert PhysicalModel is new
    assert {one.filename for one in caught} == {__file__}


def test_a_module_of_a_former_package_is_not_loaded_twice() -> None:
    from mithril_nb.compilation import options

    for former in ("mithril_nb.physical", "mithril_nb.physical.options"):
        sys.modules.pop(former, None)
    with pytest.warns(DeprecationWarning, match="mithril_nb.physical is now"):
        importlib.import_module("mithril_nb.physical")
    with pytest.warns(DeprecationWarning, match="mithril_nb.physical.options is now mithril_nb.compilation.options"):
        found = importlib.import_module("mithril_nb.physical.options")
    names = [name for name, value in vars(options).items() if callable(value)]
    assert names
    assert [name for name in names if getattr(found, name) is not getattr(options, name)] == []
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("mithril_nb.physical.no_such_module")


@pytest.mark.parametrize("module", sorted(_NAMES))
def test_an_unknown_name_of_a_module_is_an_error(module: str) -> None:
    with pytest.raises(AttributeError, match=f"^module '{module}' has no attribute 'no_such_name'$"):
        getattr(importlib.import_module(module), "no_such_name")  # noqa: B009
