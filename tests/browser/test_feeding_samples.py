"""The values inside a model in a real browser: feed a sample, step by keyboard, and mark infinity."""

from __future__ import annotations

from lab import DARK, LIGHT, press
from small_workbench import node, shown

CELL = """
import numpy as np
import mithril_nb as ml
from mithril_nb.models import Conv2d, Flatten, Linear, MaxPool2d, Model, Relu
images = np.random.default_rng(0).normal(size=(20, 1, 12, 12)).astype("float32")
images[:, :, 3:9, 4:6] += 3
model = Model(name="net") + Conv2d(4, 3) + Relu() + MaxPool2d(2) + Flatten() + Linear(10)
wb = ml.workbench(model, data=(images, np.arange(20) % 10))
wb
"""
PART = '[data-mnb-part="values"]'


def test_a_sample_is_fed_and_stepped_and_infinity_is_marked(open_notebook, screenshots) -> None:
    notebook = open_notebook([CELL], width=1440, height=1000)
    notebook.run_all()
    shown(notebook)
    page = notebook.page
    node(notebook, "relu_0").click()
    page.locator('[data-mnb-action="values.show"]').click()
    part = page.locator(PART)
    page.locator(f'{PART}[data-mnb-state="ready"]').wait_for(timeout=90_000)
    assert "sample 0 of 20" in part.inner_text()
    node(notebook, "conv2d_0").click()
    page.wait_for_function(f"""() => document.querySelector('{PART} img')?.alt.startsWith('4 heat maps')""")
    first = part.locator("img").get_attribute("src")
    press(page, ".")
    page.wait_for_function(f"(before) => document.querySelector('{PART} img')?.src !== before", arg=first)
    assert "sample 1 of 20" in part.inner_text()
    for theme in (LIGHT, DARK):
        notebook.set_theme(theme)
        page.wait_for_timeout(300)
        page.screenshot(path=str(screenshots / f"values-{theme.split()[-1].lower()}.png"))
    page.locator('[data-mnb-action="values.own"]').click()
    drawing = page.locator(".mnb-sketch")
    drawing.scroll_into_view_if_needed()
    box = drawing.bounding_box()
    assert box is not None
    side, page_x, page_y = box["width"] / 12, box["x"], box["y"]
    page.mouse.move(page_x + 2.5 * side, page_y + 1.5 * side)
    page.mouse.down()
    page.mouse.move(page_x + 8.5 * side, page_y + 1.5 * side, steps=12)
    page.mouse.up()
    part.get_by_text("your values").wait_for()
    drawn = "[int(i) for i in np.flatnonzero(np.isclose(wb.session.values._inputs['input'][0, 0, 1, 2:9], HIGHEST))]"
    notebook.wait_for(f"{drawn.replace('HIGHEST', 'images[1].max()')} == [*range(7)]")
    for theme in (DARK, LIGHT):
        notebook.set_theme(theme)
        page.wait_for_timeout(300)
        page.screenshot(path=str(screenshots / f"values-drawn-{theme.split()[-1].lower()}.png"))
    page.locator('[data-mnb-action="values.next"]').click()
    part.get_by_text("sample 2 of 20").wait_for()
    notebook.execute("wb.do('add_block', kind='Log', after='relu_0')")
    problem = page.locator(".mnb-inspector-problems .mnb-inline-problem")
    problem.wait_for(timeout=60_000)
    assert "'log_0.output' has inf" in problem.inner_text()
    page.screenshot(path=str(screenshots / "values-bad.png"))
