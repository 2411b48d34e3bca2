"""Use the library from Python: without asyncio, inside a running event loop, with pandas, and in a notebook."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import critic_prm
from critic_prm import (
    JudgeOptions,
    Labels,
    Sampling,
    Trajectories,
    Trajectory,
    label_all,
    open_critic,
    read_labels,
    to_dataset,
    to_pandas,
    trajectories_from,
    write_labels,
)
from critic_prm.background import BACKGROUND, BackgroundLoop
from critic_prm.critics.keywords import JudgeKeywords
from critic_prm.critics.rules import RuleCritic
from critic_prm.data import Judgement, Label, Step, Verdict
from critic_prm.data.html import BAD, GOOD, MIDDLE, TINT, colour
from critic_prm.errors import ConfigError, InputError, UsageError
from critic_prm.registry import resource

ROWS: list[dict[str, Any]] = [
    {"id": "a", "problem": "What is 6 * 7 + 1?", "steps": ["6 * 7 = 42.", "42 + 1 = 44."], "label": 1},
    {"id": "b", "problem": "What is 1 + 1?", "steps": ["1 + 1 = 2."]},
]
EXAMPLES = resource("examples/trajectories.jsonl")


def script(folder: Path, *replies: str) -> str:
    import orjson

    path = folder / "replies.jsonl"
    path.write_bytes(b"".join(orjson.dumps({"text": reply}) + b"\n" for reply in replies))
    return f"scripted/{path}"


def test_labelling_without_asyncio(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = label_all(ROWS, "rules")
    assert [row.label.first_error for row in labels] == [1, -1]
    assert labels[0].critic["provider"] == "rules"
    assert repr(labels) == "Labels(2 solutions, 1 to 2 steps, median 1.5, ok 2)"
    assert "2 rows in " in capsys.readouterr().err
    assert write_labels(tmp_path / "labels.jsonl", labels) == 2
    assert list(read_labels(tmp_path / "labels.jsonl")) == list(labels)


async def test_labelling_inside_a_running_event_loop_as_in_jupyter() -> None:
    """`asyncio.run` would raise here."""
    assert asyncio.get_running_loop()
    assert label_all(ROWS, "rules", quiet=True)[0].label.first_error == 1


def test_a_judge_stays_usable_from_call_to_call_and_is_closed_once(tmp_path: Path) -> None:
    name = script(tmp_path, "Step 1: It is right.\nThe step is \\boxed{correct}\nStep 2: No.\nThe step is \\boxed{incorrect}")
    with open_critic(name, db=tmp_path / "cache.db", temperature=0.5) as judge:
        first = label_all(ROWS[:1], judge, quiet=True)
        again = label_all(ROWS[:1], judge, quiet=True)
        assert judge.client is not None
        assert judge.client.counts["paid"] == 1
        assert judge.client.counts["cached"] == 1
    assert first == again
    assert first[0].label.first_error == 1
    assert first[0].critic["sampling"]["temperature"] == 0.5


async def test_a_critic_is_an_async_context_manager() -> None:
    async with Closing() as critic:
        assert critic.closed == []
    assert critic.closed == [asyncio.get_running_loop()]
    with Closing() as critic:
        assert critic.closed == []
    assert len(critic.closed) == 1
    assert critic.closed != [asyncio.get_running_loop()]


@dataclass(frozen=True)
class Closing(RuleCritic):
    """Notes the loops that closed it."""

    closed: list[asyncio.AbstractEventLoop] = field(default_factory=list)

    async def close(self) -> None:
        self.closed.append(asyncio.get_running_loop())


def test_an_error_that_stops_the_run_is_raised_in_the_caller(tmp_path: Path) -> None:
    shutil.copyfile(resource("cache.db.example"), tmp_path / "cache.db")
    with pytest.raises(ConfigError, match="recorded"):
        label_all(ROWS, "recorded/example-judge", db=tmp_path / "cache.db", quiet=True)


def test_a_judge_that_cannot_be_read_gives_rows_without_scores(tmp_path: Path) -> None:
    labels = label_all(ROWS, script(tmp_path, "I am a teapot."), db=tmp_path / "cache.db", quiet=True)
    assert [(row.label.status, set(row.label.p_correct)) for row in labels] == [("unparseable", {None})] * 2
    assert repr(labels).endswith("unparseable 2)")


def test_samples_are_written_as_on_the_command_line(tmp_path: Path) -> None:
    name = script(tmp_path, "Step 1: Fine.\nThe step is \\boxed{correct}")
    labels = label_all(ROWS[1:], name, samples="auto:3-9", db=tmp_path / "cache.db", quiet=True)
    assert labels[0].label.votes == ((5, 5),)  # five of nine decide
    with pytest.raises(UsageError, match="seven"):
        label_all(ROWS, "rules", samples="seven", quiet=True)


def test_options_belong_to_a_judge_that_is_opened_here() -> None:
    with pytest.raises(UsageError, match="base_url: the judge is already open"):
        label_all(ROWS, RuleCritic(), base_url="http://127.0.0.1:1")


def test_an_interrupt_lets_the_work_end_and_is_raised() -> None:
    """A notebook's interrupt arrives in the thread that waits, as KeyboardInterrupt."""
    stopped = asyncio.Event()

    class Interrupted(BackgroundLoop):
        def submit(self, work: Any) -> Any:
            future = super().submit(work)
            waited = future.result

            def result(timeout: float | None = None) -> Any:
                future.result = waited  # type: ignore[method-assign]
                raise KeyboardInterrupt

            future.result = result  # type: ignore[method-assign]
            self.future = future
            return future

    async def work() -> str:
        await stopped.wait()
        return "in flight, finished"

    loop = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        loop.run(work(), stopped.set)
    assert loop.future.result() == "in flight, finished"
    loop.stop()


def test_waiting_for_itself_is_refused() -> None:
    async def inner() -> None: ...

    async def outer() -> None:
        BACKGROUND.run(inner())

    with pytest.raises(UsageError, match="await"):
        BACKGROUND.run(outer())


def test_the_keywords_of_open_critic_are_the_fields_of_its_options() -> None:
    typed = get_type_hints(JudgeKeywords)
    for cls in (JudgeOptions, Sampling):
        hints = get_type_hints(cls)
        for one in fields(cls):
            expected = str | Path | None if one.name == "db" else hints[one.name]
            assert typed.pop(one.name, "missing in JudgeKeywords") == expected, one.name
    assert not typed
    with pytest.raises(UsageError, match="no option 'baseurl'; did you mean base_url"):
        open_critic("rules", baseurl="http://127.0.0.1:1")  # type: ignore[call-arg]


def test_keywords_add_to_options(tmp_path: Path) -> None:
    options = JudgeOptions(style="first-error", sampling=Sampling(temperature=1.0, top_p=0.9))
    with open_critic(script(tmp_path, "Fine."), options, db=str(tmp_path / "cache.db"), temperature=0.0) as critic:
        card = critic.card
    assert card["style"] == "first-error"
    assert (card["sampling"]["temperature"], card["sampling"]["top_p"]) == (0.0, 0.9)


def test_a_trajectory_from_a_text() -> None:
    made = Trajectory.from_text("What is 6 * 7?", "Step 1: 6 * 7 is 42.\nStep 2: So it is 42.")
    assert made.texts == ["Step 1: 6 * 7 is 42.", "Step 2: So it is 42."]
    assert made.id == Trajectory.from_text("What is 6 * 7?", "Step 1: 6 * 7 is 42.\n\n\nStep 2: So it is 42.").id
    assert Trajectory.from_text("p", "s", id="mine").id == "mine"
    code = "Run this:\n\n```python\na = 1\n\nb = 2\n```\n\nIt ends with b = 2."
    assert Trajectory.from_text("p", code).texts == [code[: code.index("It")].strip(), "It ends with b = 2."]
    assert Trajectory.from_text("p", code, segment="none").texts == [code]
    with pytest.raises(InputError, match="the solution is empty"):
        Trajectory.from_text("What?", " \n ")


# --- tables ---


def test_a_frame_is_read_and_written() -> None:
    pandas = pytest.importorskip("pandas")
    rows = trajectories_from(ROWS)
    assert rows[1].label is None
    frame = to_pandas(rows)
    assert frame["label"].isna().tolist() == [False, True]  # the label became 1.0 beside a missing one
    assert trajectories_from(frame) == rows
    frame["steps"] = [pandas.Series(steps).to_numpy() for steps in frame["steps"]]  # as a Parquet file is read
    assert trajectories_from(frame) == rows
    assert trajectories_from(pandas.DataFrame([{"question": "q", "answer": "One.\nTwo.\n#### 2"}]))[0].final_answer == "2"
    labels = label_all(frame, "rules", quiet=True)
    steps = to_pandas(labels, per="step")
    assert steps[["id", "step", "p_correct", "first_error"]].values.tolist() == [
        ["a", 0, 1.0, False],
        ["a", 1, 0.0, True],
        ["b", 0, 1.0, False],
    ]
    assert steps["critique"][1] == "42 + 1 is 43, the step says 44"
    assert trajectories_from(to_pandas(labels))[0].extra["first_error"] == 1


def test_solutions_of_one_text_are_split_and_not_paid_for_whole(tmp_path: Path) -> None:
    text = "First we look at the number {0} and count. Then it is {0}. So it is {0}."
    rows = [{"problem": f"What is {n}?", "steps": [text.format(n)]} for n in range(4)]
    assert {len(row.steps) for row in trajectories_from(rows, segment="sentences")} == {3}
    with pytest.warns(UserWarning, match="4 of 4 solutions have one step.*segment=lines"):
        whole = trajectories_from([{**row, "steps": ["It is a number"]} for row in rows])
    name = script(tmp_path, "Step 1: Fine.\nThe step is \\boxed{correct}")
    with open_critic(name, db=tmp_path / "cache.db") as judge:
        with pytest.raises(UsageError, match=r"every solution has one step.*segment='none'"):
            label_all(whole, judge, quiet=True)
        assert judge.client is not None
        assert judge.client.money.requests == 0
        assert len(label_all(whole, judge, segment="none", quiet=True)) == 4


def test_columns_with_other_names_are_mapped() -> None:
    rows = trajectories_from([{"prompt": "p", "reasoning": ["s"], "score": 1}], map={"problem": "prompt", "steps": "reasoning"})
    assert (rows[0].problem, rows[0].texts) == ("p", ["s"])
    with pytest.raises(UsageError, match="cannot set 'stepps'"):
        trajectories_from(ROWS, map={"stepps": "reasoning"})


def test_a_dataset_is_read_and_written() -> None:
    pytest.importorskip("datasets", reason="needs the datasets package")
    looked = [{"text": "look", "observation": "seen"}, "done"]
    mixed = trajectories_from([ROWS[0], {"problem": "p", "steps": looked, "meta": {"x": 1}}])
    assert trajectories_from(to_dataset(mixed)) == mixed
    labels = label_all(mixed, "rules", quiet=True)
    assert label_all(to_dataset(labels), "rules", quiet=True) == labels


def test_a_bad_row_is_named() -> None:
    with pytest.raises(InputError, match="row 2"):
        trajectories_from([ROWS[0], {**ROWS[1], "steps": []}])
    with pytest.raises(InputError, match="row 1: this is a int"):
        trajectories_from([1])
    with pytest.raises(InputError, match="one Trajectory; give a list"):
        label_all(Trajectory("a", "p", (Step("s"),)), "rules")


# --- what a notebook shows ---

HOSTILE = '<script>alert(1)</script> <img src=x onerror=alert(1)> & "quoted" $x$ \\(y\\) \u202eRTL\u2066 \x1b[31m'


def test_hostile_texts_are_shown_as_text() -> None:
    steps = (Step(HOSTILE, observation=HOSTILE), Step("then"))
    one = Trajectory(HOSTILE, HOSTILE, steps, label=1)
    judged = Judgement("ok", (Verdict(0, "incorrect", HOSTILE),), 0)
    label = Label((0.1, None), ((0, 1), (0, 0)), 0, "ok", (judged,))
    labelled = critic_prm.LabelledTrajectory(one, label)
    for shown in (one, label, labelled, Labels([labelled]), Trajectories([one])):
        html = shown._repr_html_()
        assert set(re.findall(r"<(\w+)", html)) <= {"div", "span", "b"}
        assert "onerror=alert" not in re.sub(r">[^<]*<", "><", html)  # not in any tag
        assert not re.search("[\u202e\u2066\x1b]", html)
        assert "mathjax_ignore" in html
    assert len(labelled._repr_html_()) > 4 * len("&lt;script&gt;")
    assert "&lt;script&gt;" in labelled._repr_html_()


def test_steps_are_coloured_by_p_correct_and_the_first_error_is_marked() -> None:
    html = label_all(ROWS, "rules", quiet=True)[0]._repr_html_()
    assert html.index(f"rgb({','.join(map(str, GOOD))})") < html.index(f"rgb({','.join(map(str, BAD))})")
    assert html.count(">first error</b>") == 1
    assert colour(None) == colour(0.5) == MIDDLE


def test_long_lists_and_texts_are_cut() -> None:
    long = Trajectory("a", "p " * 9000, tuple(Step("s " * 9000) for _ in range(300)))
    assert "... and 200 more steps" in long._repr_html_()
    assert len(long._repr_html_()) < 400_000
    shown = Trajectories([long] * 30)._repr_html_()
    assert "... and 20 more" in shown
    assert len(shown) < 200_000
    assert len(repr(Label((0.5,) * 300, ((1, 2),) * 300, None, "ok", ()))) < 200


def luminance(rgb: Sequence[float]) -> float:
    linear = [c / 3294.6 if c <= 10.31475 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: Sequence[float], other: Sequence[float]) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(("page", "ink"), [((255, 255, 255), (33, 33, 33)), ((17, 17, 17), (224, 224, 224))])
def test_the_colours_are_readable_on_light_and_dark_pages(page: tuple[int, int, int], ink: tuple[int, int, int]) -> None:
    for step in range(21):
        edge = colour(step / 20)
        behind = [TINT * a + (1 - TINT) * b for a, b in zip(edge, page, strict=True)]
        soft = [0.75 * a + 0.25 * b for a, b in zip(ink, behind, strict=True)]
        assert contrast(edge, page) >= 3
        assert contrast(soft, behind) >= 4.5
