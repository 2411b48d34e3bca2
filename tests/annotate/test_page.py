"""The page in a real browser: a person's session with the keyboard and by touch, hostile texts, a lost server, 10,000 rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from critic_prm.annotate.server import AnnotationServer
from critic_prm.annotate.solutions import Selection
from critic_prm.data.human import read_annotations
from tests.annotate.serving import lines, request, served
from tests.report.browser import Browser, chromium
from tests.report.making import judged, saved
from tests.report.test_page import INJECTIONS

CURRENT = "document.querySelector('.step.current')"
SETTLED = "!box.saving && !box.changed"
CONTRAST = """
(() => {
  const canvas = Object.assign(document.createElement('canvas'), { width: 1, height: 1 });
  const pen = canvas.getContext('2d', { willReadFrequently: true });
  const rgb = (...colours) => {
    pen.clearRect(0, 0, 1, 1);
    for (const colour of colours) { pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1); }
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const poor = [];
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || node.closest('script, .sr, .skip, dialog:not([open])') || !node.checkVisibility() || node.disabled) continue;
    if (node.closest('button:disabled')) continue;
    const layers = [];
    for (let at = node; at; at = at.parentElement) layers.unshift(getComputedStyle(at).backgroundColor);
    const [a, b] = [luminance(rgb(...layers)), luminance(rgb(...layers, getComputedStyle(node).color))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(`${node.className || node.localName} ${node.textContent.slice(0, 20)}: ${ratio.toFixed(2)}`);
  }
  return poor;
})()
"""


def solutions() -> list[dict[str, Any]]:
    return [
        judged(
            f"t{n}",
            [f"one {n}", {"text": "two", "observation": "seen"}, "three", "four"],
            2,
            critique=f"says {n}",
            gold_answer="9",
        )
        for n in range(5)
    ]


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    if chromium() is None:
        pytest.skip("no Chromium is installed: it opens the page as a person would")
    return tmp_path / "profile"


@pytest.fixture
def browser(profile: Path) -> Iterator[Browser]:
    with Browser(profile) as opened:
        yield opened


def opened(browser: Browser, server: AnnotationServer, fragment: str = "") -> None:
    browser.visit(server.url + fragment, "yes")


def title(browser: Browser) -> str:
    return str(browser.run("document.getElementById('heading').textContent"))


def go(browser: Browser, key: str, name: str) -> None:
    browser.press(key)
    browser.wait(f"document.getElementById('heading').textContent === '{name}'")


def keys(browser: Browser, *each: str) -> None:
    for key in each:
        browser.press(key)
    browser.wait(SETTLED)


def test_a_session_with_the_keyboard(tmp_path: Path, browser: Browser) -> None:
    source, out = saved(tmp_path / "labels.jsonl", solutions()), tmp_path / "ada.jsonl"
    with served(source, out) as server:
        opened(browser, server)
        assert "says 0" not in browser.run("document.body.textContent")
        keys(browser, "1", "2")  # an error ends the solution
        assert "First error: step 2." in browser.run("document.getElementById('result').textContent")
        assert browser.run("document.querySelectorAll('.step.after').length") == 2
        go(browser, "Enter", "t1")
        keys(browser, "v")
        browser.wait("document.querySelector('.opinion')")
        assert "says 1" in browser.run("document.querySelector('.opinion').textContent")
        keys(browser, "v", "1", "4", "2", "e", "3")  # continue after the error
        go(browser, "Enter", "t2")
        keys(browser, "j", "j", "2", "k", "c")  # the steps before an error are correct
        browser.run("document.execCommand('insertText', false, 'typo, 1 and u are no keys here')")
        keys(browser, "Escape", "n")
        browser.run("document.execCommand('insertText', false, 'short')")
        keys(browser, "Escape", "a")
        go(browser, "Enter", "t3")
        keys(browser, "a", "u", "1", "2", "u", "0")
        go(browser, "s", "t4")
        opened(browser, server)  # a reload begins with what is not decided
        assert title(browser) == "t4"
        assert browser.run("document.getElementById('done').textContent") == "3 of 5 decided, 1 skipped"
        keys(browser, "a")
        keys(browser, "Enter")
        browser.wait("document.getElementById('result-all')")
        browser.press("?")
        assert browser.run("document.getElementById('keys').open")
        browser.press("1")
        browser.press("Escape")
        browser.run("document.getElementById('show').value = 'noted'")
        browser.run("document.getElementById('show').dispatchEvent(new Event('change'))")
        browser.wait("document.querySelectorAll('.rows li').length === 1")
        assert browser.complaints == []
    answers = {row.trajectory.id: row.answer for row in read_annotations(out).values()}
    letters = {"correct": "c", "incorrect": "i", "corrected": "r", "neutral": "n"}
    said = {name: ([letters[v.value] for v in one.verdicts], one.first_error) for name, one in answers.items()}
    assert said == {
        "t0": (["c", "i"], 1),
        "t1": (["c", "r", "i", "n"], 2),
        "t2": (["c", "c", "i"], 2),
        "t3": ([], None),
        "t4": (["c"] * 4, -1),
    }
    assert answers["t2"].verdicts[1].critique == "typo, 1 and u are no keys here"
    assert (answers["t2"].note, answers["t3"].skipped) == ("short", True)
    assert (answers["t0"].seen, answers["t1"].seen) == ((), ("judge",))


def test_by_touch_on_a_phone(tmp_path: Path, profile: Path) -> None:
    rows = solutions()
    rows[0]["steps"][0] = "x" * 300 + "\\frac{1}{2}" * 60
    rows[0]["id"] = "long-" * 40
    source, out = saved(tmp_path / "labels.jsonl", rows), tmp_path / "ada.jsonl"
    with served(source, out, all_steps=True) as server, Browser(profile, 390, 844, dark=True) as browser:
        opened(browser, server)
        small = "[...document.querySelectorAll('.choose button, .actions button')].filter((b) => b.offsetHeight < 44).length"
        assert browser.run(small) == 0
        for step, verdict in enumerate(("correct", "incorrect", "neutral", "corrected")):
            browser.run(f"document.querySelector('#step-{step} .{verdict}').click()")
        browser.run("document.querySelector('[data-do=judge]').click()")
        browser.wait("document.querySelector('.opinion')")
        assert browser.run("document.documentElement.scrollWidth") == 390
        assert browser.run(CONTRAST) == []
        browser.run("document.querySelector('[data-do=next]').click()")
        browser.wait("document.getElementById('heading').textContent === 't1'")
        browser.run("document.getElementById('to-list').click()")
        assert browser.run("document.getElementById('side').checkVisibility()")
        browser.run("document.querySelector('.rows a[href=\"#4\"]').click()")
        browser.wait("document.getElementById('heading').textContent === 't3'")
        assert not browser.run("document.getElementById('side').checkVisibility()")
        assert browser.complaints == []
    assert [v.value for v in next(iter(read_annotations(out).values())).answer.verdicts] == [
        "correct",
        "incorrect",
        "neutral",
        "corrected",
    ]


def test_another_tab_a_lost_server_and_a_screen_reader(tmp_path: Path, browser: Browser) -> None:
    source, out = saved(tmp_path / "labels.jsonl", solutions()), tmp_path / "ada.jsonl"
    with served(source, out) as server:
        opened(browser, server)
        elsewhere = {"at": 0, "revision": 0, "verdicts": [{"step": 0, "verdict": "neutral", "critique": "mine"}]}
        assert request(server, "mark", elsewhere)[0] == 200
        browser.press("2")
        browser.wait("!document.getElementById('alert').hidden")
        assert "changed in another tab" in browser.run("document.getElementById('alert').textContent")
        assert browser.run("box.marks.get(0)") == "neutral"
        assert len(lines(out)) == 1
        browser.run("window.kept = fetch; window.fetch = () => Promise.reject(new TypeError('lost')); 0")
        browser.press("2")
        browser.wait("document.getElementById('alert').textContent.startsWith('Not saved')")
        assert len(lines(out)) == 1
        browser.run("window.fetch = window.kept; 0")
        browser.wait(f"document.getElementById('alert').hidden && {SETTLED}")
        assert lines(out)[-1]["human"]["first_error"] == 0
        human = {"first_error": 0, "verdicts": [{"step": 0, "verdict": "incorrect"}]}
        there = {"revision": 9, "state": 2, "counts": [3, 0, 2, 0], "human": human}
        for at in (0, 1):  # what another tab tells this one
            message = json.dumps({"at": at, "saved": there})
            browser.run(f"new BroadcastChannel('critic-prm annotate ' + location.pathname).postMessage({message})")
        browser.wait("document.getElementById('done').textContent.startsWith('2 of 5')")
        assert browser.run("[...document.querySelectorAll('.state')].map((e) => e.textContent).join('')") == "✗✗"
        assert browser.run("box.revision") == 9
        told = browser.names()
        names = " | ".join(name for _, name in told)
        for words in (
            "Step 1 of 4, incorrect",
            "Step 2 of 4, after the first error",
            "Verdict on step 1",
            "Solutions decided",
            "undecided",
        ):
            assert words in names, words
        roles = {role for role, _ in told}
        assert {"banner", "navigation", "main", "toolbar", "group", "heading", "listitem", "status", "progressbar"} <= roles
        assert [role for role, name in told if role in ("button", "link", "combobox", "textbox") and not name] == []
        assert browser.run(CONTRAST) == []
        assert browser.run("document.documentElement.scrollWidth") == 1400


def test_hostile_texts_stay_texts(tmp_path: Path, browser: Browser) -> None:
    steps = [{"text": evil, "observation": f"seen {evil}"} for evil in INJECTIONS]
    row = judged("all", steps, -1, final_answer=" ".join(INJECTIONS), gold_answer=f"reference {' '.join(INJECTIONS)}")
    row |= {"problem": " ".join(INJECTIONS), "images": [*INJECTIONS, "https://127.0.0.1:9/x.png", "data:image/png;base64,xx"]}
    for verdict, evil in zip(row["judgements"][0]["verdicts"], INJECTIONS, strict=True):
        verdict["critique"] = f"says {evil}"
    rows = [
        row,
        *({**judged(f"{n} {evil}", [evil], -1, problem=evil), "critic": {"model": evil}} for n, evil in enumerate(INJECTIONS)),
    ]
    source, out = saved(tmp_path / "<img src=x onerror=window.pwned=1>.jsonl", rows), tmp_path / "ada.jsonl"
    with served(source, out, by="<script>window.pwned=1</script>") as server:
        opened(browser, server)
        keys(browser, "v", "r")
        browser.wait("document.querySelectorAll('.opinion').length > 50 && box.shown.reference")
        texts = browser.run("[...document.querySelectorAll('.text, pre, h2, dd')].map((e) => e.textContent)")
        for evil in INJECTIONS:
            assert {evil, f"seen {evil}", f"says {evil}"} <= set(texts), evil
        assert f"reference {' '.join(INJECTIONS)}" in texts
        for place in (1, 20, 40):
            browser.run(f"run(() => open({place}))")
            browser.wait(f"document.getElementById('heading').textContent.startsWith('{place - 1} ')")
            keys(browser, "v")
        tags = "['script', 'style', 'img', 'iframe', 'object', 'embed', 'base', 'video', 'math', 'svg', 'form', 'template']"
        counts = browser.run(f"{tags}.map((tag) => document.querySelectorAll(tag).length)")
        assert counts == [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]
        assert browser.run("window.pwned === undefined && Object.prototype.pwned === undefined")
        asked = {url.partition("?")[0].rpartition("/")[0] + "/" for url in browser.requests if url.startswith("http")}
        assert asked == {server.url}
        browser.run("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=window.pwned=1>')")
        assert browser.run("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'stopped')") == "stopped"
        assert browser.run("window.pwned === undefined")


def test_ten_thousand_solutions_are_read_in_windows(tmp_path: Path, browser: Browser) -> None:
    rows = [judged(f"t{n}", ["word " * 4] * 3, n % 4 - 1, problem=f"problem {n}") for n in range(10_000)]
    source, out = saved(tmp_path / "labels.jsonl", rows), tmp_path / "ada.jsonl"
    with served(source, out, selection=Selection(order="random")) as server:
        opened(browser, server, "#9000")
        assert len(browser.requests) <= 7  # about:blank, the page, its icon, the session, two windows of the list, a solution
        for _ in range(8):
            keys(browser, "a", "Enter")
        browser.wait("document.getElementById('done').textContent === '8 of 10,000 decided'")
        browser.run("document.getElementById('next-page').click()")
        browser.wait("document.getElementById('page').textContent === '182 / 200'")
        assert browser.run("document.querySelectorAll('*').length") < 700
        assert len(browser.requests) < 42  # for each solution: mark, next, solution; and sometimes a window of the list
        assert len(str(request(server, "rows?start=5000")[1])) < 20_000
        assert len(server.session.solutions) == 10_000
        assert browser.complaints == []
    assert len(lines(out)) == 8
