"""The page in a real browser: it works from a disk, loads nothing, stays quick, and what judges write stays text."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from critic_prm.evaluate.report.html import Made, render, write_report
from critic_prm.evaluate.report.runs import read_runs
from tests.report.browser import Browser, chromium
from tests.report.making import judged, saved

INJECTIONS = [
    "<script>window.pwned=1</script>",
    "</script><script>window.pwned=1</script>",
    "</SCRIPT ><script>window.pwned=1</script>",
    "<!--<script>",
    "--><script>window.pwned=1</script>",
    "]]><script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    "<img src=http://127.0.0.1:9/leak>",
    "<svg onload=window.pwned=1>",
    "<svg><script>window.pwned=1</script></svg>",
    "<svg><a xlink:href='javascript:window.pwned=1'><text y=20>x</text></a></svg>",
    "<iframe src='javascript:parent.pwned=1'></iframe>",
    "<iframe srcdoc='<script>parent.pwned=1</script>'></iframe>",
    "<object data='javascript:window.pwned=1'></object>",
    "<embed src='javascript:window.pwned=1'>",
    "<link rel=stylesheet href=http://127.0.0.1:9/x.css>",
    "<style>@import 'http://127.0.0.1:9/x.css'; body{display:none}</style>",
    "<style>*{background:url(http://127.0.0.1:9/x)}</style>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>",
    "<base href='http://127.0.0.1:9/'>",
    "<form action='http://127.0.0.1:9/'><button>x</button></form>",
    "<body onload=window.pwned=1>",
    "<details open ontoggle=window.pwned=1>",
    "<video><source onerror=window.pwned=1></video>",
    "<input autofocus onfocus=window.pwned=1>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.pwned=1>",
    "<noscript><p title='</noscript><img src=x onerror=window.pwned=1>'>",
    "<template><script>window.pwned=1</script></template>",
    "<a href='javascript:window.pwned=1'>click</a>",
    "javascript:window.pwned=1",
    "data:text/html,<script>window.pwned=1</script>",
    '"><script>window.pwned=1</script>',
    "'><img src=x onerror=window.pwned=1>",
    '" onmouseover="window.pwned=1" x="',
    "' autofocus onfocus='window.pwned=1",
    "`;window.pwned=1;//",
    "${window.pwned=1}",
    "{{constructor.constructor('window.pwned=1')()}}",
    "\\u003cscript\\u003ewindow.pwned=1\\u003c/script\\u003e",
    "&lt;script&gt;window.pwned=1&lt;/script&gt;",
    "&#60;script&#62;window.pwned=1&#60;/script&#62;",
    "%3Cscript%3Ewindow.pwned=1%3C/script%3E",
    "\u2028window.pwned=1\u2029",
    "\x00<script>window.pwned=1</script>",
    "\ufeff<script>window.pwned=1</script>",
    "\u202e<script>window.pwned=1</script>",
    "+ADw-script+AD4-window.pwned=1+ADw-/script+AD4-",
    "<scr\x00ipt>window.pwned=1</scr\x00ipt>",
    "__proto__",
    "%%SCRIPT%%",
]


def written(folder: Path, *files: list[dict[str, Any]]) -> Path:
    paths = [saved(folder / f"run{n}.labels.jsonl", rows) for n, rows in enumerate(files)]
    write_report(read_runs(paths), folder / "report.html")
    return folder / "report.html"


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    if chromium() is None:
        pytest.skip("no Chromium is installed: it opens the page as a reader would")
    return tmp_path / "profile"


@pytest.fixture
def browser(profile: Path) -> Iterator[Browser]:
    with Browser(profile) as opened:
        yield opened


def shown(text: str) -> str:
    """A text as a page holds it: NUL cannot be shown, and lines end in \\n."""
    return text.replace("\r", "\n")


def test_fifty_injections_stay_text(tmp_path: Path, browser: Browser) -> None:
    assert len(INJECTIONS) == 50
    rows = [
        judged(
            f"{n} {evil}",
            [f"step {evil}", {"text": evil, "observation": f"seen {evil}"}],
            *(1,),
            critique=f"says {evil}",
            problem=f"problem {evil}",
            source=evil,
            final_answer=evil,
            gold_answer=evil,
            meta={evil: evil},
            card={"provider": evil, "model": evil, "style": evil},
        )
        for n, evil in enumerate(INJECTIONS)
    ]
    page = written(tmp_path, rows, [{**row, "first_error": 0} for row in rows])
    browser.open(page, "#list")
    tags = {
        "script": 1,
        "style": 1,
        "img": 0,
        "iframe": 0,
        "object": 0,
        "embed": 0,
        "link": 0,
        "base": 0,
        "video": 0,
        "math": 0,
    }
    for n, evil in enumerate(INJECTIONS):
        browser.run(f"location.hash = '#t/{n}'")
        browser.wait(f"document.querySelector('.detail h2')?.textContent.startsWith('{n} ')")
        texts = browser.run(
            "[...document.querySelectorAll('.detail .text, .detail pre, .detail h2')].map((e) => e.textContent)"
        )
        for expected in (f"{n} {evil}", f"problem {evil}", f"step {evil}", evil, f"seen {evil}", f"says {evil}"):
            assert expected in texts, evil
    browser.run("location.hash = '#overview'")
    found = browser.run("Object.fromEntries([...document.querySelectorAll('*')].map((e) => [e.localName, 0]))")
    assert not {tag for tag, allowed in tags.items() if not allowed} & found.keys()
    counts = browser.run(f"{json.dumps(list(tags))}.map((tag) => document.querySelectorAll(tag).length)")
    assert dict(zip(tags, counts, strict=True)) == tags
    assert browser.run("window.pwned === undefined && Object.prototype.pwned === undefined")
    assert browser.run("[...document.querySelectorAll('*')].every((e) => ![...e.attributes].some((a) => /^on/.test(a.name)))")
    assert browser.complaints == []
    assert {url for url in browser.requests if not url.startswith("about:")} == {page.resolve().as_uri()}


def test_the_policy_stops_what_gets_in_after_all(tmp_path: Path, browser: Browser) -> None:
    """Were there a hole in the page, its policy would still run no script and send nothing."""
    browser.open(written(tmp_path, [judged("a", ["x"], -1)]))
    browser.run("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=window.pwned=1>')")
    browser.run("document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.pwned = 1'}))")
    assert browser.run("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'stopped')") == "stopped"
    assert browser.run("window.pwned === undefined")
    assert any("Content Security Policy" in complaint for complaint in browser.complaints)


def test_the_page_holds_each_text_once_and_no_markup_of_it(tmp_path: Path) -> None:
    rows = [judged("a", ["canary <b>"], -1)]
    paths = [saved(tmp_path / f"{n}.jsonl", rows) for n in range(2)]
    page = render(read_runs(paths), title="</title><script>1</script>")
    assert "canary" not in page
    assert "<script>1</script>" not in page
    packed = re.findall(r'<script type="application/x-packed"[^>]*>([A-Za-z0-9+/=]*)</script>', page)
    texts = [gzip.decompress(base64.b64decode(block)).decode() for block in packed]
    assert sum(text.count("canary") for text in texts) == 1
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page


def corpus() -> list[dict[str, Any]]:
    rows = [
        judged(f"t{n}", ["one", "two", "three"], n % 4 - 1, gold=n % 4 - 1, samples=3, source="ab"[n % 2]) for n in range(120)
    ]
    rows[7] = judged("t7", ["one", "two", "three"], None, gold=0, status="refused", source="b")
    rows[8]["votes"][0] = [2, 3]
    rows[8]["p_correct"][0] = 0.6
    return rows


def test_filters_search_sorting_and_pages(tmp_path: Path, browser: Browser) -> None:
    rows = corpus()
    rows[30]["judgements"][0]["verdicts"] = [{"step": 0, "verdict": "correct", "critique": "a Wombat counted twice"}]
    browser.open(written(tmp_path, rows), "#list")
    ids = "[...document.querySelectorAll('.rows .id')].map((e) => e.textContent)"

    def show(name: str) -> list[str]:
        browser.run(f"document.querySelector('[data-show={name}]').click()")
        return list(browser.run(ids))

    assert len(show("all")) == 50
    assert show("unusable") == ["t7"]
    assert show("uncertain") == ["t8"]
    assert show("split") == ["t8"]
    assert "0" not in browser.run("document.querySelector('[data-show=errors] span').textContent")[:1]
    show("all")
    browser.run(
        "{ const s = document.getElementById('search'); s.value = 'WOMBAT twice'; s.dispatchEvent(new Event('input')); }"
    )
    browser.wait(f"{ids}.length === 1")
    assert browser.run(ids) == ["t30"]
    assert browser.run("document.getElementById('count').textContent") == "1 of 120 trajectories"
    browser.run("{ const s = document.getElementById('search'); s.value = ''; s.dispatchEvent(new Event('input')); }")
    browser.wait(f"{ids}.length === 50")
    browser.run("{ const s = document.getElementById('choose-source'); s.value = 'b'; s.dispatchEvent(new Event('change')); }")
    assert browser.run("document.getElementById('count').textContent") == "60 of 120 trajectories"
    browser.run(
        "{ const s = document.getElementById('choose-sort'); s.value = 'uncertain'; s.dispatchEvent(new Event('change')); }"
    )
    browser.run("{ const s = document.getElementById('choose-source'); s.value = ''; s.dispatchEvent(new Event('change')); }")
    assert browser.run(ids)[0] == "t8"
    browser.press("]")
    assert browser.run("document.getElementById('page').textContent") == "2 / 3"


def test_keys(tmp_path: Path, browser: Browser) -> None:
    browser.open(written(tmp_path, corpus()))
    browser.press("t")
    browser.wait("document.querySelector('.detail h2')?.textContent === 't0'")
    for key, expected in (("j", "t1"), ("j", "t2"), ("k", "t1")):
        browser.press(key)
        browser.wait(f"document.querySelector('.detail h2').textContent === '{expected}'")
    browser.press("/")
    browser.wait("document.activeElement.id === 'search'")
    browser.press("Escape")
    browser.press("?")
    assert browser.run("document.getElementById('keys').open")
    browser.press("Escape")
    assert not browser.run("document.getElementById('keys').open")
    opened = "[...document.querySelectorAll('.critiques')].map((e) => e.open)"
    assert browser.run(opened) == [True]
    browser.press("c")
    assert browser.run(opened) == [False]
    browser.press("o")
    browser.wait("!document.getElementById('overview-view').hidden")
    assert browser.complaints == []


def test_arrows_enter_and_the_skip_link(tmp_path: Path, browser: Browser) -> None:
    browser.open(written(tmp_path, corpus()), "#list")
    shows = "document.querySelector('.detail h2')?.textContent === '{}'"
    browser.wait(shows.format("t0"))
    for key, expected in (("ArrowDown", "t1"), ("ArrowDown", "t2"), ("ArrowUp", "t1")):
        browser.press(key)
        browser.wait(shows.format(expected))
    browser.run("document.querySelector('.rows a[aria-current]').focus()")
    browser.press("ArrowDown")
    assert browser.run("document.activeElement.getAttribute('href')") == "#t/2", "the focus follows"
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.press("Enter")
    browser.wait("document.activeElement.id === 'detail'")
    browser.press("ArrowDown")  # scrolls the trajectory
    assert browser.run(shows.format("t2"))
    browser.run("document.getElementById('rows').querySelector('a').focus()")
    browser.run("document.getElementById('skip').click()")
    assert browser.run("document.activeElement.id") == "detail"
    assert browser.run("!document.getElementById('list-view').hidden"), "skipping to the content leaves the view as it is"
    assert browser.run("document.getElementById('to-list').getAttribute('aria-current')") == "page"


def test_the_list_begins_with_what_either_run_got_wrong(tmp_path: Path, browser: Browser) -> None:
    first, second = corpus(), corpus()
    second[12] = judged("t12", ["one", "two", "three"], 1, gold=-1, source="a")
    browser.open(written(tmp_path, first, second), "#list")
    browser.wait("document.querySelector('.detail h2')?.textContent === 't12'")
    assert browser.run("document.querySelector('[data-show=wrong] span').textContent") == "1"
    badges = "[...document.querySelector('.rows li').querySelectorAll('.badge')].map((e) => e.textContent)"
    assert browser.run(badges) == ["no error ✓", "step 2, gold no error"]


def test_the_page_says_where_its_numbers_come_from(tmp_path: Path, browser: Browser) -> None:
    labels = saved(tmp_path / "mine.labels.jsonl", corpus())
    started = {"started_at": "2026-11-20T09:30:00+00:00", "cost_usd": 0.25}
    run = {"command": "label", "source": "my solutions.jsonl", "judge": ["openai/gpt-5.4-mini"]}
    (tmp_path / "mine.labels.jsonl.run.json").write_text(json.dumps({**started, "run": run}))
    made = Made("2026-11-22T14:05:00+00:00", "critic-prm 1.2", "critic-prm report mine.labels.jsonl")
    write_report(read_runs([labels]), tmp_path / "report.html", "Sums, week 47", made)
    browser.open(tmp_path / "report.html")
    head = browser.run("document.querySelector('.report-head').innerText")
    for words in ("Sums, week 47", "1 run · 120 trajectories · 120 with gold labels", "22 Nov 2026, 14:05 UTC", made.command):
        assert words in head
    pairs = "[...document.querySelectorAll('.origin > div')].map((e) => [e.children[0].innerText, e.children[1].innerText])"
    origin = dict(browser.run(pairs))
    assert origin.pop("Cost").endswith("at list prices; $0.25 paid by the run that wrote the file")
    assert origin == {
        "Input": "my solutions.jsonl",
        "Command": "critic-prm label 'my solutions.jsonl' --judge openai/gpt-5.4-mini",
        "File": "mine.labels.jsonl",
        "Date": "20 Nov 2026, 09:30 UTC",
        "Samples": "1 to 3 per trajectory",
        "Intervals": "95%, 2,000 resamples of problems; first errors by the critic's own verdicts",
        "Tokens": "358k in, 36k out; median 3,300 per trajectory",
    }


def test_charts_and_cards_leave_no_gap(tmp_path: Path, browser: Browser) -> None:
    """Every row of charts reaches the right edge, the figures of a card are one row, and an axis ends where its data end."""
    browser.open(written(tmp_path, corpus(), corpus()))
    places = "[...document.querySelectorAll('.chart')].map((e) => e.getBoundingClientRect()).map((e) => [e.top, e.right])"
    rows: dict[int, int] = {}
    for top, right in browser.run(places):
        rows[round(top)] = max(rows.get(round(top), 0), round(right))
    assert len(rows) > 1
    assert set(rows.values()) == {round(browser.run("document.querySelector('.charts').getBoundingClientRect().right"))}
    for card in range(2):
        tops = f"[...document.querySelectorAll('.card')[{card}].querySelectorAll('.facts-grid > div')].map((e) => e.offsetTop)"
        assert len(browser.run(tops)) == 4
        assert len(set(browser.run(tops))) == 1
    steps = "[...document.querySelectorAll('[aria-label=\"Position of the first error\"] tbody th')].map((e) => e.textContent)"
    assert browser.run(steps) == ["1", "2", "3"]


def test_scores_of_two_values_are_points(tmp_path: Path, browser: Browser) -> None:
    """A line between them would show a calibration that nobody measured."""
    votes, scores = corpus(), corpus()
    for n, row in enumerate(scores):
        row["p_correct"] = [None if p is None else abs(p - n / 300) for p in row["p_correct"]]
    browser.open(written(tmp_path, votes, scores))
    drawn = "[...document.querySelectorAll('[aria-label=Reliability] {}')].map((e) => e.getAttribute('class').split(' ').pop())"
    assert browser.run(drawn.format("polyline")) == ["run-1"]
    assert browser.run(drawn.format("circle")).count("run-0") > 1


def test_a_score_of_almost_one_is_not_shown_as_one_and_zero_is_seen(tmp_path: Path, browser: Browser) -> None:
    row = judged("a", ["x", "y", "z"], -1)
    row["p_correct"] = [0.998, 0.001, 0.0]
    browser.open(written(tmp_path, [row]), "#t/0")
    shown = "[...document.querySelectorAll('.score .p')].map((e) => e.lastChild.textContent)"
    assert browser.run(shown) == [">0.99", "<0.01", "0.00"]
    bar = "parseFloat(getComputedStyle([...document.querySelectorAll('.meter')].pop(), '::after').width)"
    assert browser.run(bar) >= 4


def test_a_phone_keeps_the_title_and_the_help(tmp_path: Path, profile: Path) -> None:
    page = written(tmp_path, corpus())
    with Browser(profile, 390) as browser:
        browser.open(page)
        for name in ("title", "help", "theme", "to-list"):
            assert browser.run(f"document.getElementById('{name}').checkVisibility()"), name
            assert browser.run(f"document.getElementById('{name}').getBoundingClientRect().right") <= 390


def test_paper_is_light_and_has_no_controls(tmp_path: Path, profile: Path) -> None:
    page = written(tmp_path, corpus())
    with Browser(profile, dark=True) as browser:
        for place, what in (("#overview", ".card"), ("#t/3", ".step")):
            browser.open(page, place)
            browser.print_preview()
            assert browser.run(f"document.querySelector('{what}').checkVisibility()")
            controls = "[...document.querySelectorAll('button, input, select, nav')].filter((e) => e.checkVisibility()).length"
            assert browser.run(controls) == 0
            ink = browser.run("getComputedStyle(document.body).color")
            assert sum(map(int, re.findall(r"\d+", ink)[:3])) < 200
            assert "critic-prm report" in browser.run("document.body.innerText")


def test_two_runs_and_their_flips(tmp_path: Path, browser: Browser) -> None:
    first, second = corpus(), corpus()
    for n in (4, 8, 12):  # gold: no error; the second run now blames step 2
        second[n] = judged(f"t{n}", ["one", "two", "three"], 1, gold=n % 4 - 1, source="ab"[n % 2])
    browser.open(written(tmp_path, first, second))
    text = browser.run("document.querySelector('.pair').textContent")
    assert "120 trajectories judged by both; they agree on 97.5%" in text
    assert "Only run0 correct32.5%" in text
    browser.run("document.querySelector('.pair button').click()")
    browser.wait("!document.getElementById('list-view').hidden")
    assert browser.run("[...document.querySelectorAll('.rows .id')].map((e) => e.textContent)") == ["t4", "t8", "t12"]
    browser.wait("document.querySelectorAll('.detail .step .score').length === 6")


def test_a_screen_reader_is_told_what_colours_say(tmp_path: Path, browser: Browser) -> None:
    browser.open(written(tmp_path, [judged("a", ["fine", "bad", "after"], 1, gold=0)]), "#t/0")
    told = browser.names()
    names = " | ".join(name for _, name in told)
    for words in (
        "first error",
        "gold: first error",
        "P(correct) ",
        "not judged",
        "3 steps; first error: step 2; gold: step 1",
    ):
        assert words in names, words
    roles = {role for role, _ in told}
    assert {"banner", "navigation", "main", "search", "article", "heading", "list", "listitem", "status"} <= roles
    unnamed = [role for role, name in told if role in ("button", "link", "combobox", "searchbox") and not name]
    assert unnamed == []
    browser.open(tmp_path / "report.html", "#overview")
    assert all(name for role, name in browser.names() if role in ("image", "img", "graphics-document", "figure"))


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (1400, True), (390, False), (390, True)])
def test_nothing_is_wider_than_the_screen(tmp_path: Path, profile: Path, width: int, dark: bool) -> None:
    rows = corpus()
    rows[0]["steps"][0] = "x" * 400 + " " + "\\frac{1}{2}" * 80
    rows[0]["id"] = "long-" * 60
    page = written(tmp_path, rows, rows)
    with Browser(profile, width, dark=dark) as browser:
        for place in ("#overview", "#list", "#t/0"):
            browser.open(page, place)
            assert browser.run("document.documentElement.scrollWidth") == width, place
        seen = browser.run("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", seen)[:3])) < 200) == dark
        assert browser.complaints == []


def test_an_evaluation_alone_has_an_overview(tmp_path: Path, browser: Browser) -> None:
    metric = {"value": 0.5, "low": 0.4, "high": 0.6, "reason": ""}
    subset = {"name": "gsm8k", "solutions": 9, "metrics": {"f1": metric}}
    row = {
        "critic": {"provider": "rules"},
        "subsets": [subset],
        "mean": {"f1": metric},
        "threshold": {"words": "given by hand"},
    }
    write_report(read_runs([saved(tmp_path / "eval.json", [row])]), tmp_path / "report.html")
    browser.open(tmp_path / "report.html")
    assert "50.0first-error F1" in browser.run("document.querySelector('.card').textContent")
    assert browser.run("document.getElementById('to-list').hidden")
    assert browser.complaints == []


FILTERS = (
    "document.querySelector('[data-show=wrong]').click()",
    "view.query = 'word7 word99'; refresh()",
    "view.sort = 'lowest'; refresh()",
)


def test_ten_thousand_trajectories_stay_fluid(tmp_path: Path, browser: Browser) -> None:
    """Ten times the rows take at most fifty times as long to filter, and the page holds no more elements."""
    rng = random.Random(0)
    words = [f"word{n}" for n in range(2000)]

    def text(length: int) -> str:
        return " ".join(rng.choices(words, k=length))

    def milliseconds(count: int) -> list[float]:
        rows = [
            judged(
                f"t{n}",
                [text(30) for _ in range(6)],
                rng.randrange(-1, 6),
                gold=rng.randrange(-1, 6),
                critique=text(20),
                problem=text(40),
            )
            for n in range(count)
        ]
        (folder := tmp_path / str(count)).mkdir()
        browser.open(written(folder, rows), "#list", ready="open")
        browser.wait("document.documentElement.dataset.ready === 'searchable'")
        timed = "(() => {{ const t = performance.now(); {}; document.body.offsetHeight; return performance.now() - t; }})()"
        return [min(browser.run(timed.format(act)) for _ in range(3)) for act in FILTERS]

    few, many = milliseconds(1_000), milliseconds(10_000)
    assert browser.run("document.querySelectorAll('.rows li').length") <= 50
    assert all(b <= 50 * max(a, 1.0) for a, b in zip(few, many, strict=True))
