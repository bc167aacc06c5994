"""`python -m tools.site`: write the pages of the notebooks and of the gallery to build/pages."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Sequence

from tools.site import gallery, notebooks

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "build" / "pages"


def main(names: Sequence[str]) -> None:
    """Write all parts, or the named: notebooks (or some of them), gallery, home."""
    PAGES.mkdir(parents=True, exist_ok=True)
    paths = sorted((ROOT / "notebooks").glob("*.ipynb"))
    for path in [path for path in paths if not names or "notebooks" in names or path.stem in names]:
        print(f"   {path.stem}", flush=True)
        text, outputs = notebooks.page(path)
        folder = PAGES / "notebooks"
        folder.mkdir(exist_ok=True)
        (folder / f"{path.stem}.md").write_text(text, encoding="utf-8")
        (folder / f"{path.stem}.json").write_text(json.dumps(outputs), encoding="utf-8")
    # JAX reads this when it is imported, below. The lessons have had their own kernels.
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    if not names or "gallery" in names:
        shutil.rmtree(PAGES / "gallery", ignore_errors=True)
        gallery.write(PAGES / "gallery")
    if not names or "home" in names:
        print(f"   the program of the home page, on {', '.join(gallery.write_home(PAGES))}")


if __name__ == "__main__":
    main(sys.argv[1:])
