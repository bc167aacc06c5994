"""Plain language: words that docstrings, comments, messages, documents and the front end do not use."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORDS = {
    "anew": "again, from scratch",
    "but for": "except",
    "dear(er|est)?": "expensive",
    "every ?body|any ?body|some ?body|nobody|whoever": "name the actor, or write unknown",
    "gives back|comes back": "returns",
    "goe?s? on": "continue, resume",
    "in the place of": "instead of",
    "not to be had|to be had": "not available, available",
    "put aside": "hold out",
    "reckon": "compute",
    "says|said": "declares, states, reports",
    "shall": "must, should",
    "such as are": "that are",
    "a person|a hand(?!-)": "the user",
    "stands? (in|for)": "is in, represents",
    "tells|told": "given, reports, receives",
    "is asked for|asked for": "requested, on demand",
    "wants|knows": "needs, contains",
    "who (looks|wants)": "the user",
}
"""Words to avoid, as regular expressions, and what to write."""
ANY = re.compile(rf"\b(?:{'|'.join(WORDS)})\b", flags=re.I)
EXCEPTIONS = {
    ("mithril_nb/hardware/machines.py", "anew"): "the public argument of ml.machine",
}
"""Words that stay, by file, and why."""


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of everything in a file that people read."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_sentence(node.value):
                yield node.lineno, node.value
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    elif path.suffix in (".ts", ".tsx"):
        for found in re.finditer(r"/\*.*?\*/|//[^\n]*|\"[^\"\n]*\"|`[^`]*`", source, flags=re.S):
            if _is_sentence(found.group()):
                yield source[: found.start()].count("\n") + 1, found.group()
    elif path.suffix == ".ipynb":
        cells = json.loads(source)["cells"]
        yield from ((number, "".join(cell["source"])) for number, cell in enumerate(cells))
    else:
        yield 1, re.sub(r"```.*?```", "", source, flags=re.S)


def _is_sentence(text: str) -> bool:
    return len(re.findall(r"[A-Za-z']+", text)) >= 4


def files() -> list[Path]:
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "notebooks").glob("*.ipynb")]
    found += (ROOT / "mithril_nb" / "ui" / "frontend" / "src").rglob("*.ts*")
    for folder in ("mithril_nb", "tools", "benchmarks"):
        found += (path for path in (ROOT / folder).rglob("*.py") if "node_modules" not in path.parts)
    return sorted(found)


def words_in(name: str, text: str) -> list[str]:
    """Return the words to avoid in a text of a file, with what to write instead."""
    if not ANY.search(text):
        return []
    return [
        f"{found.group()!r}: write {advice}"
        for word, advice in WORDS.items()
        if (name, word) not in EXCEPTIONS
        for found in re.finditer(rf"\b(?:{word})\b", text, flags=re.I)
    ]


def test_texts_use_plain_words() -> None:
    problems = [
        f"{name}:{line} {problem}"
        for path in files()
        for name in [path.relative_to(ROOT).as_posix()]
        for line, text in texts(path)
        for problem in words_in(name, text)
    ]
    assert problems == []


def test_words_to_avoid_are_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('"""Return what the user said of it."""\n# nobody knows why\nX = "the block is told of it"\n')
    assert [problem for _, text in texts(module) for problem in words_in("module.py", text)] == [
        "'said': write declares, states, reports",
        "'told': write given, reports, receives",
        "'nobody': write name the actor, or write unknown",
        "'knows': write needs, contains",
    ]
