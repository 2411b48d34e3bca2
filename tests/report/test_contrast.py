"""Text and marks of the page have the contrast that WCAG 2.2 AA asks for: 4.5 for text, 3 for graphics and controls."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from critic_prm.evaluate.report.html import PAGE, write_report
from critic_prm.evaluate.report.runs import read_runs
from tests.report.browser import Browser, chromium
from tests.report.making import judged, saved

STYLE = (PAGE / "page.css").read_text("utf-8")

TEXTS = [
    *((ink, page) for ink in ("ink", "soft", "accent", "good", "bad") for page in ("bg", "surface", "raised")),
    *(("soft", "accent-soft"), ("ink", "accent-soft"), ("good", "good-soft"), ("bad", "bad-soft"), ("gold", "gold-soft")),
    *(("on-accent", "accent"), ("surface", "bad")),
]
MARKS = [
    *((mark, page) for mark in ("good", "bad", "middle", "gold", "control", "accent") for page in ("surface", "raised")),
    *((f"run-{n}", "surface") for n in range(8)),
]


def themes() -> Mapping[str, Mapping[str, str]]:
    """The colour variables of the light theme and of both places that define the dark one."""
    blocks = re.findall(r":root[^{]*\{([^}]*--bg[^}]*)\}", STYLE)
    assert len(blocks) == 3
    found = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in blocks]
    assert found[1] == found[2], "the dark theme of the system and the chosen one differ"
    return {"light": found[0], "dark": found[1]}


def contrast(one: str, other: str) -> float:
    def luminance(colour: str) -> float:
        channels = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_colours_of_a_theme_have_enough_contrast(theme: str) -> None:
    colours = themes()[theme]
    low = {
        f"{one} on {other}": round(contrast(colours[one], colours[other]), 2)
        for pairs, least in ((TEXTS, 4.5), (MARKS, 3.0))
        for one, other in pairs
        if contrast(colours[one], colours[other]) < least
    }
    assert not low


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


MEASURE = """(() => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    pen.clearRect(0, 0, 1, 1); pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255];
  };
  const over = (top, below) => top.slice(0, 3).map((c, n) => c * top[3] + below[n] * (1 - top[3]));
  const behind = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const light = (c) => c.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
  const low = [];
  for (const node of document.querySelectorAll("body *")) {
    const texts = [...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim());
    if (!texts || !node.checkVisibility() || node.closest(".sr, .skip")) continue;
    const style = getComputedStyle(node), page = behind(node);
    const drawn = node instanceof SVGElement ? style.fill : style.color;
    const ink = over(rgba(drawn), page).map((c, n) => c * style.opacity + page[n] * (1 - style.opacity));
    const [a, b] = [light(ink), light(page)].sort((x, y) => x - y), ratio = (b + 0.05) / (a + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) low.push(`${node.outerHTML.slice(0, 60)}: ${ratio.toFixed(2)}`);
  }
  return low;
})()"""
"""Each element with a text whose contrast to what is behind it is too low, as the browser computes both."""


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_is_readable(tmp_path: Path, dark: bool) -> None:
    if chromium() is None:
        pytest.skip("no Chromium is installed: it computes the colours")
    steps = ["one", "two", "three"]
    rows = [judged(f"t{n}", steps, n % 4 - 1, gold=(n + n // 5) % 4 - 1, samples=3) for n in range(12)]
    rows += [judged("u", steps, None, gold=0, status="refused"), judged("v", steps, None, status="unparseable")]
    for n, p in enumerate((0.02, 0.3, 0.5, 0.7)):
        rows[4 * n]["p_correct"][0] = p
    files = [saved(tmp_path / f"{name}.jsonl", part) for name, part in (("a", rows), ("b", rows[3:] + rows[:3]))]
    write_report(read_runs(files), tmp_path / "report.html")
    with Browser(tmp_path / "profile", dark=dark) as browser:
        for place in ("#overview", *(f"#t/{n}" for n in range(0, 14, 4))):
            browser.open(tmp_path / "report.html", place)
            assert browser.run("document.querySelectorAll('.card, .step').length")
            assert browser.run(MEASURE) == [], place
        browser.run("document.querySelector('.detail .text').style.color = '#777'")
        assert len(browser.run(MEASURE)) == 1
