"""A film of one block: its player steps by button and key, moves linked lines, and respects reduced motion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe import violations
from lab import DARK, LIGHT, Browser, watched_page
from layered import inspected

CELL = """
import jax, jax.numpy as jnp
import mithril_nb as ml

def net(w, x):
    with jax.named_scope("layer"):
        x = jnp.tanh(x @ w)
    return x.sum()

ml.inspect(jax.grad(net), jnp.zeros((29, 37)), jnp.zeros((7, 29))).film("layer")
"""
# Steps to the next stage, and returns for each line in motion: whether it is a line of the stage before, its partners,
# and whether it changes its position.
MOTION = """() => {
  document.querySelector('.film-tools button[title^=Next]').click();
  return document.getAnimations().map((motion) => {
    const {target} = motion.effect;
    const [first, , last] = motion.effect.getKeyframes();
    return {ghost: target.closest('.film-ghosts') !== null, before: target.dataset.before ?? null,
        moves: [first, last].some(({transform}) => transform !== 'none')};
  });
}"""


@pytest.fixture(scope="module")
def film() -> Any:
    return inspected().film("layer_0")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_film_steps_by_button_and_key(chromium: Browser, film: Any, tmp_path: Path, theme: Any) -> None:
    address = film.save(tmp_path / "film.html").as_uri()
    titles = [stage.name for stage in film.stages]
    with watched_page(chromium.context, address, 800) as page:
        page.emulate_media(color_scheme=theme, reduced_motion="no-preference")
        player = page.locator(".film[data-stage]")
        shown = lambda: (player.get_attribute("data-stage"), page.locator(".film-stage:visible").count())  # noqa: E731
        settle = lambda: page.locator(".film:not([data-moving])").wait_for()  # noqa: E731
        assert shown() == ("0", 1)
        page.keyboard.press("ArrowRight")  # nothing has the focus yet
        settle()
        assert shown() == ("1", 1)
        page.get_by_role("button", name="Back").click()
        page.get_by_role("button", name="Next").click()
        settle()
        assert shown() == ("1", 1)
        for _ in range(2):
            page.keyboard.press("ArrowRight")
        settle()
        assert shown() == ("3", 1)
        assert page.locator(".film-ghosts > *").count() == 0
        assert page.locator("[role=status]").inner_text() == f"4 / {len(titles)}"
        assert violations(page, "body") == []
        page.get_by_role("button", name="Back").click()
        settle()
        page.get_by_role("button", name="machine code").click()
        assert page.locator(".film[data-moving]").count() == 0, "lines of distant stages are not linked"
        assert shown() == (str(len(titles) - 1), 1)
        assert violations(page, "body") == []
        page.keyboard.press("ArrowRight")
        assert shown() == (str(len(titles) - 1), 1)
        page.locator(".film").focus()
        page.keyboard.press(" ")
        assert shown() == ("0", 1), "playing starts again"
        page.locator('.film[data-stage="1"]').wait_for(timeout=10_000)
        page.get_by_role("button", name="Pause").click()
        assert page.get_by_role("button", name="Play").is_visible()


def test_only_linked_lines_move(chromium: Browser, film: Any, tmp_path: Path) -> None:
    at = [stage.name for stage in film.stages].index("hlo_before")
    old, new = film.stages[at - 1 : at + 1]
    with watched_page(chromium.context, film.save(tmp_path / "film.html").as_uri(), 1200) as page:
        page.emulate_media(reduced_motion="no-preference")
        page.get_by_role("button", name="StableHLO").click()
        motions = page.evaluate(MOTION)
        fresh = [motion for motion in motions if not motion["ghost"]]
        ghosts = [motion for motion in motions if motion["ghost"]]
        assert [len(fresh), len(ghosts)] == [len(new.lines), len(old.lines)]
        assert [motion["before"] for motion in fresh] == [" ".join(map(str, line.before)) or None for line in new.lines]
        linked = {index for line in new.lines for index in line.before}
        assert not any(motion["moves"] for motion in fresh if motion["before"] is None)
        assert not any(motion["moves"] for index, motion in enumerate(ghosts) if index not in linked)
        assert any(motion["moves"] for motion in fresh)
        page.locator(".film:not([data-moving])").wait_for()


def test_reduced_motion_steps_without_motion(chromium: Browser, film: Any, tmp_path: Path) -> None:
    with watched_page(chromium.context, film.save(tmp_path / "film.html").as_uri(), 800) as page:
        page.emulate_media(reduced_motion="reduce")
        page.locator(".film").focus()
        page.keyboard.press("ArrowRight")
        assert page.evaluate("document.getAnimations().length") == 0
        assert page.locator(".film").get_attribute("data-stage") == "1"


def test_a_notebook_plays_a_film_and_keeps_its_keys(open_notebook, screenshots) -> None:
    notebook = open_notebook([CELL], width=1280, height=900)
    notebook.run_all()
    page = notebook.page
    player = page.locator(".film[data-stage]")
    player.wait_for()
    page.get_by_role("button", name="StableHLO").click()
    page.keyboard.press("ArrowLeft")
    page.locator('.film[data-stage="2"]:not([data-moving])').wait_for()
    found = {}
    for theme in (LIGHT, DARK):
        notebook.set_theme(theme)
        found[theme] = violations(page, ".film")
        notebook.picture(screenshots / f"film-{theme}.png")
    notebook.set_theme(LIGHT)
    assert {what: problems for what, problems in found.items() if problems} == {}
    assert not notebook.problems


def test_a_film_without_scripts_lists_all_stages(chromium: Browser, film: Any, tmp_path: Path) -> None:
    file = film.save(tmp_path / "film.html")
    plain = tmp_path / "plain.html"
    plain.write_text(file.read_text(encoding="utf-8").partition("<script>")[0], encoding="utf-8")
    with watched_page(chromium.context, plain.as_uri(), 800) as page:
        assert page.locator(".film-stage:visible").count() == len(film.stages)
        assert page.locator(".film-line:visible").count() == sum(len(stage.lines) for stage in film.stages)
        assert page.locator(".film button:visible").count() == 0
        assert violations(page, "body") == []
