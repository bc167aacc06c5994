"""Text is readable on every background it is used on, light and dark, by WCAG 2's formula."""

from __future__ import annotations

import pytest

from mithril_nb.viz.palette import DARK, DARK_HUES, LIGHT, LIGHT_HUES, LIT, PINNED, Theme, contrast, mix_colours

THEMES = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])


@THEMES
def test_texts_meet_aa(theme: Theme):
    grounds = {"ground": theme.ground, "surface": theme.surface}
    grounds |= {f"frame {at}": mix_colours(hue, theme.ground, 0.07) for at, hue in enumerate(theme.hues)}
    for ground, colour in grounds.items():
        for name in ("ink", "muted", "bad"):
            assert contrast(getattr(theme, name), colour) >= 4.5, (name, ground)


@THEMES
def test_code_meets_aa_also_when_lit_up_or_pinned(theme: Theme):
    for ground in (theme.ground, *(mix_colours(theme.accent, theme.ground, amount) for amount in (LIT, PINNED))):
        for colour in (*theme.code, theme.ink, theme.muted):
            assert contrast(colour, ground) >= 4.5, (colour, ground)


@THEMES
def test_signs_meet_aa(theme: Theme):
    for ground in (theme.ground, theme.surface):
        for name in ("wire", "accent", "cost", "bad"):
            assert contrast(getattr(theme, name), ground) >= 3, name
    assert contrast(theme.cost, theme.track) >= 3


def test_hues_match_the_front_end():
    assert LIGHT_HUES == ("#0072B2", "#D55E00", "#009E73", "#C2699B", "#B8860B", "#3590C8", "#7A5195", "#5D6D7E")
    assert DARK_HUES == ("#4FA8DC", "#F08A4B", "#3CC79A", "#E3A0C5", "#E0B040", "#8CCBF2", "#B08BD0", "#A3B1BF")
    assert LIGHT.hues == LIGHT_HUES
    assert DARK.hues == DARK_HUES


def test_hues_contrast_with_the_background():
    for theme in (LIGHT, DARK):
        for hue in theme.hues:
            assert min(contrast(hue, theme.ground), contrast(hue, theme.surface)) >= 3, hue


def test_known_contrast():
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert contrast("#ffffff", "#777777") == contrast("#777777", "#ffffff")
