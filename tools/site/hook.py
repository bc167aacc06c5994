"""What MkDocs does with the pages of `python -m tools.site`, loaded as a hook (see mkdocs.yml)."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "build" / "pages"
_OUTPUT = re.compile(r"<!-- (mnb-output-\d+) -->")
_FILE = re.compile(r"<!-- mnb-file (\S+) -->")
_IMAGE = re.compile(r"^!\[[^]]*\]\([^)]*\)$", re.MULTILINE)
_TERM = re.compile(r"^\| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
_TARGET = re.compile(r"\[([^\]]*)\]\([^)]*\)")
# Words with an everyday meaning, which is meant as often.
_EVERYDAY = frozenset(
    "run state share pass step model input kernel block event line link tag lower update forward port unknown "
    "branch carry effect export host key mask metric partition register schedule".split()
)
_ABBREVIATION = re.compile(r'<abbr title="[^"]*">([^<]*)</abbr>')


def on_files(files: Any, config: Any) -> Any:
    """Add the pages, and the files that they show."""
    from mkdocs.structure.files import File  # pyright: ignore[reportMissingImports]  only in the docs environment

    for path in sorted(PAGES.rglob("*")):
        if path.is_file() and path.suffix != ".json" and not path.name.endswith(".cost.html"):
            name = path.relative_to(PAGES).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    for path in (ROOT / "notebooks" / "images").glob("*.png"):
        if files.get_file_from_path(f"notebooks/images/{path.name}") is None:
            files.append(File.generated(config, f"notebooks/images/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Show a program at work on the home page, and the meaning of terms on hover."""
    if page.file.src_uri == "index.md" and (PAGES / "home.html").exists():
        frame = '<iframe class="mnb-page" src="home.html" title="A training step: graph, stages and costs"></iframe>'
        about = "*A training step at work. Click a block or a line: what belongs to it lights up in every stage.*"
        markdown = _IMAGE.sub(lambda _: f"{frame}\n\n{about}", markdown, count=1)
    if page.file.src_uri == "glossary.md" or page.file.src_uri.startswith("reference/"):
        return markdown
    return f"{markdown}\n\n{abbreviations()}"


def abbreviations() -> str:
    """Return the terms of the glossary as abbreviations of Markdown."""
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    lines = []
    for term, meaning in _TERM.findall(text)[1:]:
        term, meaning = term.strip(), re.sub("[`*]", "", _TARGET.sub(r"\1", meaning)).strip()
        if term.lower() in _EVERYDAY:
            continue
        for name in dict.fromkeys((term, term[0].lower() + term[1:])):
            if name.strip("- ") and not name.startswith("`"):
                lines.append(f"*[{name}]: {meaning}")
    return "\n".join(lines)


def on_page_content(content: str, page: Any, config: Any, files: Any) -> str:
    """Insert outputs, which Markdown would change, and keep the first of each term, and none in headings."""
    seen: set[str] = set()

    def first(match: re.Match[str]) -> str:
        term = match[1].lower()
        is_new, _ = term not in seen, seen.add(term)
        return match[0] if is_new else match[1]

    parts = re.split(r"(<h[1-6].*?</h[1-6]>|<a .*?</a>)", content, flags=re.DOTALL)
    content = "".join(_ABBREVIATION.sub(r"\1" if number % 2 else first, part) for number, part in enumerate(parts))
    data = PAGES / page.file.src_uri.replace(".md", ".json")
    if data.exists():
        outputs = json.loads(data.read_text(encoding="utf-8"))
        content = _OUTPUT.sub(lambda match: outputs[match[1]], content)
    folder = (PAGES / page.file.src_uri).parent
    return _FILE.sub(lambda match: (folder / html.unescape(match[1])).read_text(encoding="utf-8"), content)
