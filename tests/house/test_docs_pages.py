"""The documentation that `make docs` builds: its navigation, its reference, and docstrings that it can read."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import mithril_nb
from tools import architecture, reference

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
PAGES = reference.reference()
DOCUMENTED = re.compile(r"^(?:::: |- `)([\w.]+)", re.MULTILINE)
ARGS = re.compile(r"^Args:\n((?:    .*\n|\n)*)", re.MULTILINE)


def pages_of(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for inner in entry.values() if isinstance(entry, dict) else entry:
            yield from pages_of(inner)


def documented() -> Iterator[tuple[str, Any]]:
    """Yield the functions, classes and methods of the reference by name."""
    for page, module, names in reference.sections():
        for name in names:
            value = getattr(module, name)
            yield f"{page.__name__}.{name}", value
            if inspect.isclass(value):
                methods = [(one, method) for one, method in vars(value).items() if inspect.isfunction(method)]
                yield from ((f"{page.__name__}.{name}.{one}", method) for one, method in methods if one[0] != "_")


def test_the_navigation_names_every_page() -> None:
    named = list(pages_of(reference.navigation(SETTINGS["nav"])))
    files = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(named) == sorted([*files, *PAGES, *reference.built(), "index.md"])


def test_links_of_the_home_page_lead_to_pages() -> None:
    links = [link for link in re.findall(r"(?<!!)\[[^\]]*\]\(([^)#]+)", reference.home()) if "://" not in link]
    assert "how-to/add-a-backend.md" in links
    assert [link for link in links if not (ROOT / "docs" / link).is_file() and link not in PAGES] == []


@pytest.mark.parametrize("module", sorted({module.__name__ for _, module, _ in reference.sections()}))
def test_every_public_name_is_in_the_reference(module: str) -> None:
    found = [name for text in PAGES.values() for name in DOCUMENTED.findall(text)]
    wanted: list[str] = []
    for page, source, names in reference.sections():
        for name in names if source.__name__ == module else ():
            value = getattr(source, name)
            is_block = module == "mithril_nb.models" and page is not source and value.__name__ == name
            wanted.append(f"{value.__module__ if is_block else module}.{name}")
    assert wanted
    assert [name for name in wanted if found.count(name) != 1] == []


def test_names_of_the_package_are_on_its_page() -> None:
    found = DOCUMENTED.findall(PAGES["reference/mithril_nb.md"])
    assert found == [f"mithril_nb.{name}" for name in mithril_nb.__all__ if name not in mithril_nb._ROOMS]


def test_arguments_in_docstrings_are_arguments() -> None:
    wrong = []
    for name, value in documented():
        if not callable(value) or not (section := ARGS.search(f"{inspect.getdoc(value) or ''}\n")):
            continue
        taken = {one.removeprefix("*").removeprefix("*") for one in inspect.signature(value).parameters}
        listed = re.findall(r"^    \*{0,2}(\w+)(?: \(.*\))?:", section[1], re.MULTILINE)
        wrong += [f"{name}: {one}" for one in listed if one not in taken]
    assert wrong == []


def test_nothing_in_the_pages_comes_from_a_network() -> None:
    assert SETTINGS["theme"]["font"] is False
    assert "offline" in SETTINGS["plugins"]
    (script,) = SETTINGS["extra"]["polyfills"]  # the theme would take one of this name from a CDN
    assert "iframe-worker" in script
    assert (ROOT / "docs" / script).exists()


def test_the_glossary_is_in_alphabetical_order() -> None:
    lines = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    terms = [line.split("|")[1].strip() for line in lines if line.startswith("| ")][1:]
    assert terms == sorted(terms, key=str.casefold)
    assert len(terms) == len(set(terms))


def test_picture_of_the_rooms_shows_the_imports() -> None:
    assert architecture.PICTURE.read_text(encoding="utf-8") == architecture.picture(), "python -m tools.architecture"


def test_every_room_is_on_the_architecture_page() -> None:
    page = (architecture.ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = architecture.imports_between_rooms()
    assert [room for room in rooms if f"`{room}`" not in page] == []
