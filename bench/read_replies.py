"""Parse recorded replies of LLM judges with our readers, and compare with the records' own parses and with gold.

    python bench/read_replies.py DIR

DIR holds `*.jsonl` files with one reply per line: {"id", "model", "prompt_style", "response_text", "gold", "source_parse"}. The
format of each prompt style is data: bench/profiles.toml. A reply that cannot be read counts as wrong in the scores, as
in the papers these replies come from; the rate is shown. Exit code 1 if readings agree with less than 99% of the records'
own parses, or a reply without a verdict was given one.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from critic_prm.data.judgement import first_error_of
from critic_prm.providers.provider import Reply
from critic_prm.styles.prompt import open_style
from critic_prm.styles.reader import Expect, read_reply
from critic_prm.styles.readers import boxed_verdicts
from critic_prm.styles.readers._chances import CORRECT_INCORRECT
from critic_prm.styles.readers._patterns import ANSWER, plain, value_of
from critic_prm.styles.readers.json_verdicts import objects
from critic_prm.styles.readers.verdict_line import Shape, label, read_line

MANY = 64
"""The steps of replies that say nothing about how many there were."""

_NUMBER = re.compile(r"[^\d\n]{0,12}?(\d{1,4})\b")
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Said:
    """What a reply was read as. `first_error` is 0-based, -1 for none; `steps` are verdicts by the record's own step names."""

    verdict: str | None = None
    first_error: int | None = None
    steps: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    @property
    def read(self) -> bool:
        return self.verdict is not None or self.first_error is not None or bool(self.steps)


@dataclass
class Tally:
    """The replies of one model to one style."""

    replies: int = 0
    read: int = 0
    own: int = 0
    agree: int = 0
    given: int = 0
    scores: dict[str, list[tuple[bool, bool]]] = field(default_factory=dict)
    differ: list[str] = field(default_factory=list)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--style", help="only this prompt style")
    options = parser.parse_args(arguments)
    profiles = tomllib.loads((Path(__file__).parent / "profiles.toml").read_text("utf-8"))
    tallies: dict[tuple[str, str, str], Tally] = defaultdict(Tally)
    unread: dict[str, int] = defaultdict(int)
    for path, record in records(options.folder):
        style = record["prompt_style"]
        if options.style not in (None, style):
            continue
        if style not in profiles:
            unread[style] += 1
            continue
        count(tallies[path.stem, style, record["model"]], profiles[style], record)
    show(tallies)
    for style, replies in unread.items():
        print(f"no profile for {style}: {replies} replies are not step judgements and were left out")
    own, agree = (sum(getattr(t, name) for t in tallies.values()) for name in ("own", "agree"))
    given = sum(t.given for t in tallies.values())
    share = agree / own if own else 1.0
    print(f"\nagreement with the records' own parse: {agree} of {own} ({share:.2%}); given a verdict without one: {given}")
    return 0 if share >= 0.99 and not given else 1


def records(folder: Path) -> Iterator[tuple[Path, Record]]:
    paths = sorted(folder.glob("*.jsonl"))
    if not paths:
        sys.exit(f"error: {folder} holds no .jsonl files")
    for path in paths:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                yield path, json.loads(line)


def count(tally: Tally, profile: Record, record: Record) -> None:
    said, own = READ[profile["kind"]](profile, record), own_parse(profile, record)
    tally.replies += 1
    tally.read += said.read
    if own is not None and own.read:
        tally.own += 1
        same = own.verdict is None or own.verdict == said.verdict
        if same and ("index" not in profile["own"] or own.first_error == said.first_error):
            tally.agree += 1
        else:
            tally.differ.append(f"{record['id']}: {tell(said)}, its own parse {tell(own)}")
    elif own is not None and said.read:
        tally.given += 1
        tally.differ.append(f"{record['id']}: {tell(said)}, its own parse has no verdict")
    for how in profile.get("scores", ()):
        tally.scores.setdefault(how["name"], []).extend(score(how, said, record["gold"]))


def tell(said: Said) -> str:
    parts = [said.verdict or "no verdict"]
    if said.first_error is not None:
        parts.append(f"first error {said.first_error}")
    return " ".join(parts) + (f" ({said.note})" if said.note else "")


def read_style(profile: Record, record: Record) -> Said:
    style = open_style(record["prompt_style"])
    expected = Expect(record["gold"]["n_steps"], style.base, style.stops, None, (record["prompt"],))
    reading = read_reply(style, expected, Reply(record["response_text"], "stop", {}))
    if reading.status != "ok":
        return Said(note="; ".join(reading.notes))
    return Said(first_error=first_error_of(reading.verdicts, expected.steps))


def read_lines(profile: Record, record: Record) -> Said:
    words = ANSWER | profile.get("words", {})
    expected = Expect(1, step=0)
    text = record["response_text"].split(profile["stop"])[0] if "stop" in profile else record["response_text"]
    reading = read_line(text, expected, (), Shape(label(profile["label"]), words, CORRECT_INCORRECT))
    if reading.status != "ok":
        return Said(note="; ".join(reading.notes))
    verdict = reading.verdicts[0].value
    if "index" not in profile:
        return Said(verdict)
    numbers = re.findall(rf"{profile['index']}[\s*:#\[-]*(?:step)?[\s#]*(\d+)", text, re.IGNORECASE)
    if profile.get("least"):
        numbers.sort(key=int, reverse=True)
    if not numbers and profile.get("elsewhere"):
        return Said(verdict, -1)
    return with_index(verdict, int(numbers[-1]) if numbers else None, profile["base"])


def with_index(verdict: str, index: int | None, base: int) -> Said:
    if verdict == "correct":
        return Said(verdict, -1) if index is None else Said(note=f"correct, and yet a first error: {index}")
    if index is None or not 0 <= index - base < MANY:
        return Said(note=f"{verdict}, with no index of a step: {index}")
    return Said(verdict, index - base)


def read_boxed(profile: Record, record: Record) -> Said:
    reading = boxed_verdicts.read(record["response_text"], Expect(1, step=0))
    return Said(reading.verdicts[0].value) if reading.status == "ok" else Said(note="; ".join(reading.notes))


def read_json(profile: Record, record: Record) -> Said:
    wanted = profile.get("labels") or profile["verdict"]
    found = [item for item in objects(record["response_text"]) if wanted in item]
    if not found:
        return Said(note="no JSON with a verdict")
    answer = found[-1]
    if "labels" in profile:
        names = {1: "correct", 0: "neutral", -1: "incorrect"}
        return Said(steps={step: names[value] for step, value in answer[wanted].items() if value in names})
    verdict = value_of(str(answer[wanted]), ANSWER)
    if verdict is None:
        return Said(note=f"{answer[wanted]!r} is no verdict")
    number = _NUMBER.match(str(answer[profile["index"]]))
    return with_index(verdict, int(number.group(1)) if number else None, profile["base"])


READ = {"style": read_style, "lines": read_lines, "boxed": read_boxed, "json": read_json}


def own_parse(profile: Record, record: Record) -> Said | None:
    """What the record's source made of the reply, in our words; None where it does not say."""
    fields = profile.get("own")
    if fields is None or not record.get("source_parse"):
        return None
    verdict = None
    if "verdict" in fields:
        value = lookup(record["source_parse"], fields["verdict"])
        if isinstance(value, bool):
            verdict = "correct" if value else "incorrect"
        elif value is not None:
            verdict = (ANSWER | profile.get("words", {})).get(plain(str(value).strip("-[] ")))
    if "index" not in fields:
        return Said(verdict)
    index = lookup(record["source_parse"], fields["index"])
    number = _NUMBER.match(str(index)) if not isinstance(index, int) else None
    step = index - fields["base"] if isinstance(index, int) else int(number.group(1)) - fields["base"] if number else None
    if "verdict" not in fields:
        return Said(None, step)
    return Said(verdict, -1 if verdict == "correct" else step) if verdict else Said()


def lookup(value: Any, path: str) -> Any:
    for key in path.split("."):
        if isinstance(value, list):
            value = value[int(key)] if int(key) < len(value) else None
        else:
            value = value.get(key) if isinstance(value, dict) else None
    return value


def score(how: Record, said: Said, gold: Record) -> list[tuple[bool, bool]]:
    """Pairs (is it an error by gold, is it read as gold has it), one a reply or, where replies judge several, one a step."""
    if "first_error" in how:
        truth = gold[how["first_error"]]
        return [(truth >= 0, said.first_error == truth)]
    if "steps" in how:
        names = {1: "correct", 0: "neutral", -1: "incorrect"}
        return [(value != 1, said.steps.get(step) == names[value]) for step, value in gold[how["steps"]].items()]
    truth = gold[how["correct"]]
    right = truth == how["means"] if "means" in how else bool(truth)
    return [(not right, said.verdict is not None and (said.verdict == "correct") == right)]


def figure(name: str, scores: Iterable[tuple[bool, bool]]) -> str:
    """A percentage: accuracy, or for first errors the harmonic mean of the accuracies on wrong and on right solutions."""
    scores = list(scores)
    if not scores:
        return "-"
    if not name.startswith("F1"):
        return f"{sum(hit for _, hit in scores) / len(scores):.1%}"
    wrong, right = ([hit for error, hit in scores if error is kind] for kind in (True, False))
    if not wrong or not right:
        return f"{sum(wrong + right) / len(scores):.1%} (one class)"
    a, b = sum(wrong) / len(wrong), sum(right) / len(right)
    return f"{2 * a * b / (a + b) if a + b else 0.0:.1%}"


def show(tallies: Mapping[tuple[str, str, str], Tally]) -> None:
    rows = [("file", "model", "replies", "read", "own parse", "agree", "score")]
    for (file, _, model), t in sorted(tallies.items()):
        agree = f"{t.agree / t.own:.1%}" if t.own else "-"
        read = f"{t.read / t.replies:.1%}"
        score = ", ".join(f"{name} {figure(name, scores)}" for name, scores in t.scores.items()) or "-"
        rows.append((file, model, str(t.replies), read, str(t.own), agree, score))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print()
    for (file, _, model), t in sorted(tallies.items()):
        for line in t.differ:
            print(f"{file} {model} {line}")


if __name__ == "__main__":
    sys.exit(main())
