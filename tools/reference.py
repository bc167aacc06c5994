"""The pages of the documentation that are generated: the home page, and the reference of every public name.

MkDocs loads this file as a hook (see mkdocs.yml). Each package of mithril_nb that declares `__all__` gets a page. A
name is on one page only: on that of `mithril_nb` if it is public there, else on the first that declares it.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, Iterator, List, Tuple

ROOT = Path(__file__).resolve().parent.parent
IMAGE = "notebooks/images/workbench.png"
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)]*)\)")


def on_config(config: Any) -> Any:
    """Replace each pattern in the navigation by the pages that it names."""
    config.nav = navigation(config.nav)
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages, and the picture of the home page."""
    from mkdocs.structure.files import File  # pyright: ignore[reportMissingImports]  only in the docs environment

    for path, text in {**reference(), "index.md": home()}.items():
        files.append(File.generated(config, path, content=text))
    files.append(File.generated(config, IMAGE, abs_src_path=str(ROOT / IMAGE)))
    return files


def navigation(sections: List[Dict[str, str]]) -> List[Dict[str, Any]]:
    """Return the navigation of mkdocs.yml with the pages of each pattern; sections without a page are left out.

    Args:
        sections: Title and path, or pattern of paths, of each section.
    """
    docs = ROOT / "docs"
    pages = [path.relative_to(docs).as_posix() for path in sorted(docs.rglob("*.md"))] + [*built(), *reference()]
    found: List[Dict[str, Any]] = []
    for section in sections:
        for title, path in section.items():
            inside = [page for page in pages if Path(page).match(path)] if "*" in path else path
            if "*" in path and len(inside) == 1:
                inside = inside[0]
            if inside:
                found.append({title: inside})
    return found


def built() -> List[str]:
    """Return the pages that `python -m tools.site` has written, without the programs of the gallery."""
    pages = ROOT / "build" / "pages"
    paths = sorted([*pages.glob("notebooks/*.md"), *pages.glob("gallery/index.md")])
    return [path.relative_to(pages).as_posix() for path in paths]


def home() -> str:
    """Return the README as the home page.

    Links to pages lead there, links to folders of pages to the first one, and links to other files become text.
    """

    def link(match: re.Match) -> str:
        text, target = match.groups()
        if "://" in target:
            return match.group(0)
        if (ROOT / target).is_dir() and target.startswith("docs/"):
            target = min((ROOT / target).glob("*.md")).relative_to(ROOT).as_posix()
        return f"[{text}]({target[len('docs/') :]})" if target.startswith("docs/") else text

    return _LINK.sub(link, (ROOT / "README.md").read_text(encoding="utf-8"))


def reference() -> Dict[str, str]:
    """Return the pages of the reference: their Markdown by path, in the order of the navigation."""
    pages: Dict[str, str] = {}
    seen: Dict[Any, Tuple[str, str]] = {}  # name and anchor of each value
    for page, module, names in sections():
        title = page.__name__.replace("mithril_nb.", "").replace(".library.", ".")
        lines = [f"# {title}", "", inspect.getdoc(page) or "", ""]
        same = []
        for name in sorted(names, key=lambda name: getattr(getattr(module, name), "__name__", name) != name):
            value, path = getattr(module, name), f"{module.__name__}.{name}"
            # Griffe 2.4 finds no name that a package receives by `import *` from a package that does the same.
            is_block = module.__name__ == "mithril_nb.models" and page is not module
            target = f"{value.__module__}.{value.__name__}" if is_block else path
            first, where = seen.setdefault(
                value if inspect.isclass(value) or inspect.isfunction(value) else path, (path, target)
            )
            if first == path:
                lines += [f"::: {target}", ""]
            else:
                same.append(f"- `{path}` is [`{first}`][{where}].")
        pages[f"reference/{page.__name__}.md"] = "\n".join([*lines, *same]) + "\n"
    return pages


def sections() -> Iterator[Tuple[ModuleType, ModuleType, List[str]]]:
    """Yield what each page is about: its module, the module that the names are imported from, and the names."""
    package = importlib.import_module("mithril_nb")
    models = importlib.import_module("mithril_nb.models")
    yield package, package, public_names(package)
    for info in pkgutil.iter_modules(package.__path__, "mithril_nb."):
        if info.ispkg or info.name == "mithril_nb.errors":
            module = importlib.import_module(info.name)
            names = public_names(module)
            if module is models:
                library = importlib.import_module("mithril_nb.models.library")
                yield models, models, [name for name in names if name not in library.__all__]
                for family in pkgutil.iter_modules(library.__path__, f"{library.__name__}."):
                    blocks = importlib.import_module(family.name)
                    yield blocks, models, public_names(blocks)
            elif names:
                yield module, module, names


def public_names(module: ModuleType) -> List[str]:
    """Return the names that a module declares as public, without modules; of `mithril_nb.errors` its classes."""
    declared = getattr(module, "__all__", ())
    if module.__name__ == "mithril_nb.errors":
        classes = [value for value in vars(module).values() if inspect.isclass(value)]
        declared = [one.__name__ for one in classes if one.__module__ == module.__name__ and one.__name__[0] != "_"]
    return [name for name in declared if not inspect.ismodule(getattr(module, name))]
