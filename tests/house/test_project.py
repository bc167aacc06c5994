"""The project's documents and metadata agree with each other and with the code."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from inline_code import texts

from hatch_build import with_absolute_links, with_badges
from tools import interpreters

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DOCUMENTS = texts()
README = DOCUMENTS["README.md"]


def code_of_readme() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def test_versions_agree() -> None:
    source = (ROOT / "mithril_nb" / "__init__.py").read_text(encoding="utf-8")
    assert re.search(r'^__version__ = "(.+)"$', source, re.MULTILINE).group(1) == PROJECT["version"]  # type: ignore[union-attr]


def test_the_citation_and_the_conda_recipe_agree_with_the_project() -> None:
    citation, recipe = (
        yaml.safe_load((ROOT / name).read_text(encoding="utf-8")) for name in ("CITATION.cff", "conda/recipe.yaml")
    )
    assert citation["version"] == recipe["context"]["version"] == PROJECT["version"]
    assert citation["license"] == recipe["about"]["license"] == PROJECT["license"]
    assert citation["abstract"] == recipe["about"]["summary"] == PROJECT["description"]
    names = {"graphviz": "python-graphviz", "matplotlib": "matplotlib-base"}  # what conda-forge calls them
    wanted = [re.fullmatch(r"([\w-]+)(.*)", line).groups() for line in PROJECT["dependencies"]]  # type: ignore[union-attr]
    run = [f"{names.get(name, name)} {versions}" for name, versions in wanted]
    assert recipe["requirements"]["run"] == [f"python {PROJECT['requires-python']}", *run]
    commands = [f"{command} = {target}" for command, target in PROJECT["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == commands


def test_pythons_agree() -> None:
    oldest, newest = interpreters.OLDEST, interpreters.NEWEST
    assert PROJECT["requires-python"] == f">={oldest[0]}.{oldest[1]},<{newest[0]}.{newest[1] + 1}"
    assert f"Python {oldest[0]}.{oldest[1]}, " in README
    for minor in range(oldest[1], newest[1] + 1):
        assert f"Programming Language :: Python :: 3.{minor}" in PROJECT["classifiers"]


def test_the_first_screen_of_the_readme() -> None:
    lines = README.splitlines()
    assert lines[2].strip("*") == PROJECT["description"]
    assert lines[4].startswith("![")
    assert lines[4].endswith("(notebooks/images/workbench.png)")
    assert len([line for line in code_of_readme()[0].splitlines() if line]) <= 10
    screen = "\n".join(lines[:30])
    assert "make lab" in screen
    assert "make test" in screen


@pytest.mark.parametrize("name", [*DOCUMENTS])
def test_links_lead_somewhere(name: str) -> None:
    targets = [target for target in re.findall(r"\]\(([^)#]+)\)", DOCUMENTS[name]) if "://" not in target]
    assert [target for target in targets if not (ROOT / name).parent.joinpath(target).exists()] == []


def test_the_changelog_has_unreleased_on_top() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"


def test_the_map_names_every_top_folder() -> None:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("no git here")
    folders = {name.partition("/")[0] for name in done.stdout.splitlines() if "/" in name}
    assert {folder for folder in folders if not folder.startswith(".")} == {
        folder for folder in folders if f"`{folder}/" in README
    }


def test_the_scripts_start_under_an_old_python() -> None:
    for path in sorted((ROOT / "tools").glob("*.py")):
        ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 8))


def test_the_lock_names_exact_versions_and_no_address() -> None:
    lines = [line for line in (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    wrong = [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+(; python_version .+)?", line)]
    assert wrong == []
    locked = {line.split("==")[0].lower().replace("_", "-") for line in lines}
    wanted = [
        *PROJECT["dependencies"],
        *(line for extra in PROJECT["optional-dependencies"].values() for line in extra),
    ]
    names = {re.split(r"[\[<>=;]", line)[0].lower() for line in wanted}
    assert names - locked == set()


def test_the_front_end_is_locked_without_addresses() -> None:
    lock = ROOT / "mithril_nb" / "ui" / "frontend" / "package-lock.json"
    packages = json.loads(lock.read_text(encoding="utf-8"))["packages"]
    assert [name for name, entry in packages.items() if "resolved" in entry] == []
    assert [name for name, entry in packages.items() if name and "integrity" not in entry] == []


def test_the_readme_of_a_package_has_absolute_links() -> None:
    address = "https://example.org/group/mithril_nb"
    text = with_absolute_links(README, address)
    targets = re.findall(r"\]\(([^)#]+)", text)
    assert targets
    assert [target for target in targets if not target.startswith("https://")] == []
    assert f"({address}/raw/main/notebooks/images/workbench.png)" in text
    files = [target.removeprefix(f"{address}/").split("/", 2)[2] for target in targets if target.startswith(address)]
    assert [name for name in files if not (ROOT / name).exists()] == []


def test_a_package_from_github_has_badges_for_binder_and_colab() -> None:
    text = with_badges(README, "https://github.com/group/name")
    first = "notebooks/01_build_and_train.ipynb"
    assert (ROOT / first).exists()
    links = re.findall(r"\[!\[\w+\]\([^)]+\)\]\(([^)]+)\)", text.splitlines()[2])
    assert links == [
        f"https://mybinder.org/v2/gh/group/name/main?urlpath=lab/tree/{first}",
        f"https://colab.research.google.com/github/group/name/blob/main/{first}",
    ]
    assert with_badges(README, "https://example.org/group/name") == README
