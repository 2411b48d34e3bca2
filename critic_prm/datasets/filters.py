"""Filter rows, and the judgements in label files, by rules."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from critic_prm.data.judgement import Judgement, Label, Prior, combine
from critic_prm.data.label_rows import label_to_json, labelled_from_json
from critic_prm.data.records.reading import RecordWriter
from critic_prm.datasets.balance import Thinning
from critic_prm.datasets.rows import CLASSES, DatasetStats, Row, spool
from critic_prm.datasets.words import words
from critic_prm.errors import InputError, UsageError
from critic_prm.option import Option, check_fields

Critiques = Literal["off", "error", "all"]
CHARACTERS_A_TOKEN = 4
"""Used to estimate tokens for replies without recorded usage, as in imported files."""


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """The rules; each is off by default. Rules about rows are applied before rules about judgements, in this order."""

    status: Annotated[bool, Option(("--ok",))] = False
    """Keep only rows with status ok."""
    min_agreement: Annotated[float | None, Option(min=0, max=1)] = None
    """Require that this share of the judgements agrees on the first error."""
    min_steps: Annotated[int | None, Option(min=1)] = None
    """Keep only solutions with at least N steps."""
    max_steps: Annotated[int | None, Option(min=1)] = None
    """Keep only solutions with at most N steps."""
    max_chars: Annotated[int | None, Option(min=1)] = None
    """Allow at most N characters in problem and steps together."""
    well_formed: bool = False
    """Reject empty steps and steps with several Step k: markers."""
    answered: bool = False
    """Require a final answer."""
    complete: bool = False
    """Keep only judgements with verdicts for all steps or up to the first error."""
    forgiven: Annotated[bool, Option(("--forgiven/--plain",))] = True
    """Keep judgements that were parsed with leniency, or (--plain) only those parsed without any."""
    max_tokens: Annotated[int | None, Option(min=1)] = None
    """Keep only judgements whose reply has at most N tokens."""
    critiques: Critiques = "off"
    """Reject empty, short, copied or looping critiques: off, error (of the wrong step) or all."""
    min_words: int = 3
    """A critique with fewer words is short."""
    matches_gold: bool = False
    """Keep only judgements that equal the gold labels, if there are any."""
    balance: bool = False
    """Subsample the larger class, erroneous or correct solutions."""
    seed: Annotated[int, Option(envvar="CRITIC_PRM_SEED")] = 0
    """Random seed of balancing."""

    def __post_init__(self) -> None:
        check_fields(self)


PRESETS: dict[str, FilterOptions] = {
    "thinkprm": FilterOptions(status=True, complete=True, matches_gold=True, max_tokens=4096, balance=True),
}
"""thinkprm: ThinkPRM's four conditions on a verification chain (arXiv 2504.16828); about 20% of the chains pass them there."""


def preset_rules(name: str, asked: FilterOptions) -> FilterOptions:
    """A preset combined with the options set in `asked`. Raises UsageError for an unknown preset."""
    if name not in PRESETS:
        raise UsageError(f"there is no preset {name!r}; available: {', '.join(sorted(PRESETS))}")
    default = FilterOptions()
    besides = {one.name: getattr(asked, one.name) for one in fields(asked)}
    besides = {key: value for key, value in besides.items() if value != getattr(default, key)}
    return replace(PRESETS[name], **besides)


RowRule: TypeAlias = Callable[[Row, Sequence[Judgement]], str]
JudgementRule: TypeAlias = Callable[[Row, Judgement], str]


_MARK = re.compile(r"^[ \t]*(?:\*\*|#+[ \t]*)?step[ \t]+\d+[ \t]*[:.)]", re.IGNORECASE | re.MULTILINE)


def row_rules(options: FilterOptions) -> dict[str, RowRule]:
    """The selected rules about rows, by name, in the order they are applied."""
    lowest, fewest, most, longest = options.min_agreement, options.min_steps, options.max_steps, options.max_chars

    def status(row: Row, judgements: Sequence[Judgement]) -> str:
        found = row.data.get("status", "ok") if row.shape == "label file" else "ok"
        return "" if found == "ok" else str(found)

    def agreement(row: Row, judgements: Sequence[Judgement]) -> str:
        if row.shape != "label file":
            return ""
        firsts = [j.first_error for j in judgements if j.status == "ok"]
        if not firsts:
            raise InputError(row.where, "the row has no judgements, so their agreement is unknown", "leave the rule out")
        share = 0.0 if row.first_error is None else firsts.count(row.first_error) / len(firsts)
        return "" if lowest is None or (row.first_error is not None and share >= lowest - 1e-12) else "low agreement"

    def length(row: Row, judgements: Sequence[Judgement]) -> str:
        steps = len(row.trajectory.steps)
        if fewest is not None and steps < fewest:
            return "too few steps"
        if most is not None and steps > most:
            return "too many steps"
        if longest is None:
            return ""
        characters = len(row.trajectory.problem) + sum(len(s.text) + len(s.observation or "") for s in row.trajectory.steps)
        return "too long" if characters > longest else ""

    def well_formed(row: Row, judgements: Sequence[Judgement]) -> str:
        if any(not text.strip() for text in row.trajectory.texts):
            return "empty step"
        return "several steps in one" if any(len(_MARK.findall(text)) > 1 for text in row.trajectory.texts) else ""

    def answered(row: Row, judgements: Sequence[Judgement]) -> str:
        return "" if row.trajectory.final_answer else "no final answer"

    asked: tuple[tuple[str, bool, RowRule], ...] = (
        ("status", options.status, status),
        ("agreement", lowest is not None, agreement),
        ("length", (fewest, most, longest) != (None, None, None), length),
        ("well formed", options.well_formed, well_formed),
        ("answered", options.answered, answered),
    )
    return {name: rule for name, on, rule in asked if on}


def judgement_rules(options: FilterOptions) -> dict[str, JudgementRule]:
    """The selected rules about judgements, by name, in the order they are applied."""

    def complete(row: Row, judgement: Judgement) -> str:
        steps = [verdict.step for verdict in judgement.verdicts]
        first = judgement.first_error
        wanted = {len(row.trajectory.steps)} | ({first + 1} if first is not None and first >= 0 else set())
        return "" if steps == list(range(len(steps))) and len(steps) in wanted else "no verdict for every step"

    def plain(row: Row, judgement: Judgement) -> str:
        return "read with forgiveness" if judgement.notes else ""

    def tokens(row: Row, judgement: Judgement) -> str:
        return "reply too long" if options.max_tokens is not None and reply_tokens(judgement) > options.max_tokens else ""

    def critiques(row: Row, judgement: Judgement) -> str:
        texts = row.trajectory.texts
        for verdict in judgement.verdicts:
            if options.critiques == "all" or verdict.step == judgement.first_error:
                reason = fault(verdict.critique, texts[verdict.step], options.min_words)
                if reason:
                    return reason
        return ""

    asked: tuple[tuple[str, bool, JudgementRule], ...] = (
        ("complete", options.complete, complete),
        ("plain", not options.forgiven, plain),
        ("reply length", options.max_tokens is not None, tokens),
        ("critiques", options.critiques != "off", critiques),
        ("matches gold", options.matches_gold, _matches_gold),
    )
    return {name: rule for name, on, rule in asked if on}


def reply_tokens(judgement: Judgement) -> int:
    """The tokens of a reply as reported by the provider, else estimated from its critiques at four characters per token."""
    return judgement.usage.output or sum(len(v.critique) for v in judgement.verdicts) // CHARACTERS_A_TOKEN


def _matches_gold(row: Row, judgement: Judgement) -> str:
    """Check that the first error and every verdict up to it match the gold labels. Passes if there are none."""
    gold = row.trajectory.gold()
    if row.gold is not None and judgement.first_error != row.gold:
        return "differs from gold"
    end = len(gold) if judgement.first_error is None or judgement.first_error < 0 else judgement.first_error + 1
    for verdict in judgement.verdicts:
        wanted = gold[verdict.step]
        if verdict.step >= end or not isinstance(wanted, float):
            continue
        if verdict.value == "neutral":
            return "neutral where gold is not"
        if verdict.vote != (wanted >= 0.5):
            return "differs from gold"
    return ""


COPIED = 0.8
"""A critique with at least this fraction of its word 3-grams in the step adds nothing of its own."""
LOOPING = 0.5
"""A critique with at least this fraction of repeated word 4-grams is looping."""

_SENTENCE = re.compile(r"[.!?\n]+\s*")


def fault(critique: str, step: str, shortest: int) -> str:
    """What is wrong with the critique of a step; "" if nothing. `shortest` is the minimum number of words."""
    tokens = words(critique) if critique.strip() else []
    if not tokens:
        return "empty critique"
    if len(tokens) < shortest:
        return "short critique"
    if loops(critique, tokens):
        return "looping critique"
    return "copied critique" if _copied(tokens, words(step)) else ""


def loops(critique: str, tokens: Sequence[str] | None = None) -> bool:
    """Whether a text repeats itself: half of its 4-grams are repeats (from 40 words on), or a sentence occurs four times."""
    tokens = words(critique) if tokens is None else tokens
    grams = _grams(tokens, 4)
    if len(tokens) >= 40 and 1 - len(set(grams)) / len(grams) >= LOOPING:
        return True
    sentences = Counter(part for part in (_plain(s) for s in _SENTENCE.split(critique)) if part.count(" ") >= 4)
    return bool(sentences) and sentences.most_common(1)[0][1] >= 4


def _copied(tokens: Sequence[str], step: Sequence[str]) -> bool:
    size = min(3, len(tokens))
    own, there = _grams(tokens, size), set(_grams(step, size))
    return sum(gram in there for gram in own) / len(own) >= COPIED


def _grams(tokens: Sequence[str], size: int) -> list[tuple[str, ...]]:
    return list(zip(*(tokens[start:] for start in range(size)), strict=False))


def _plain(sentence: str) -> str:
    return " ".join(sentence.casefold().split())


@dataclass(slots=True)
class _Passed:
    """Counts for one rule: rows and judgements checked, and those that passed."""

    rows_in: Counter[str] = field(default_factory=Counter)
    rows_out: Counter[str] = field(default_factory=Counter)
    judgements_in: int = 0
    judgements_out: int = 0
    faults: Counter[str] = field(default_factory=Counter)


def filter_rows(
    source: str | Path, out: str | Path, options: FilterOptions, say: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Write the rows of `source` that pass to `out` and return the report, with the counts for each rule.

    Rules are applied in the order of FilterOptions. A row whose ok judgements all fail a rule is dropped; if some pass, the
    label is recomputed from those. Rows without judgements pass the rules about judgements, and are counted. `say` receives
    warnings. Raises InputError and UsageError.
    """
    rules, judging = row_rules(options), judgement_rules(options)
    if not (rules or judging or options.balance):
        raise UsageError("no rule is asked for; see critic-prm dataset filter --help")
    account = DatasetStats("filter")
    passed = {name: _Passed() for name in (*rules, *judging)}
    bare, estimated = Counter[str](), 0
    thinning = Thinning("first-error" if options.balance else "none", options.seed)
    with spool(out) as rows:
        for row in account.read(source):
            judgements = _judgements(row)
            if not judgements:
                bare[row.kind] += 1
            ok = [(number, j) for number, j in enumerate(judgements) if j.status == "ok"]
            estimated += sum(not j.usage.output for _, j in ok)
            if reason := _through(row, judgements, ok, rules, judging, passed):
                account.drop(reason, row.kind)
                continue
            thinning.note(row.kind, (), row.content)
            keep = {number for number, _ in ok}
            rows.write([row.kind, row.content, _without(row, judgements, keep)])
        thinning.decide()
        with RecordWriter(out) as writer:
            for kind, content, data in rows.rows():
                if options.balance and thinning.thin(kind, (1.0,), content) != [1.0]:
                    account.drop("balance", kind)
                    continue
                account.keep(kind)
                writer.write(data)
    more: dict[str, Any] = {
        "rules": [_said(name, one) for name, one in passed.items()],
        "rows_without_judgements": bare.total(),
    }
    if options.max_tokens is not None:
        more["replies_with_estimated_tokens"] = estimated
    report = account.report(out, asdict(options), more)
    if judging and bare.total():
        names = ", ".join(judging)
        say(f"{bare.total():,} of {account.rows_in.total():,} rows have no judgements; {names} do not apply to them")
    return report


def _through(
    row: Row,
    judgements: Sequence[Judgement],
    ok: list[tuple[int, Judgement]],
    rules: dict[str, RowRule],
    judging: dict[str, JudgementRule],
    passed: dict[str, _Passed],
) -> str:
    """Why the row is dropped, "" if it is kept. Judgements that fail are removed from `ok`."""
    for name, rule in rules.items():
        tally = passed[name]
        tally.rows_in[row.kind] += 1
        if reason := rule(row, judgements):
            tally.faults[reason] += 1
            return reason
        tally.rows_out[row.kind] += 1
    for name, judge in judging.items():
        tally = passed[name]
        tally.rows_in[row.kind] += 1
        tally.judgements_in += len(ok)
        faults = [judge(row, judgement) for _, judgement in ok]
        tally.faults.update(filter(None, faults))
        stay = [pair for pair, reason in zip(ok, faults, strict=True) if not reason]
        tally.judgements_out += len(stay)
        if ok and not stay:
            return Counter(faults).most_common(1)[0][0]
        ok[:] = stay
        tally.rows_out[row.kind] += 1
    return ""


def _judgements(row: Row) -> Sequence[Judgement]:
    return labelled_from_json(row.data, row.where).label.judgements if row.data.get("judgements") else ()


def _without(row: Row, judgements: Sequence[Judgement], keep: set[int]) -> dict[str, Any]:
    """The row without the ok judgements that failed, with its label recomputed from the others."""
    stay = [n for n, j in enumerate(judgements) if j.status != "ok" or n in keep]
    if len(stay) == len(judgements):
        return row.data
    before = labelled_from_json(row.data, row.where).label
    label = combine([judgements[n] for n in stay], len(row.trajectory.steps), _prior(before))
    return {**row.data, **label_to_json(label), "judgements": [row.data["judgements"][n] for n in stay]}


def _prior(label: Label) -> Prior:
    """The prior that the label's probabilities were computed with, inferred from its first step with votes."""
    for p, (k, n) in zip(label.p_correct, label.votes, strict=True):
        if n and label.p_from == "votes":
            return "jeffreys" if p is not None and abs(p - (k + 0.5) / (n + 1)) < 1e-9 and abs(p - k / n) > 1e-9 else "none"
    return "none"


def _said(name: str, passed: _Passed) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "rule": name,
        "rows_in": passed.rows_in.total(),
        "rows_out": passed.rows_out.total(),
        "by_class": {
            kind: {"in": passed.rows_in[kind], "out": passed.rows_out[kind]} for kind in CLASSES if passed.rows_in[kind]
        },
    }
    if passed.judgements_in:
        entry |= {"judgements_in": passed.judgements_in, "judgements_out": passed.judgements_out}
    return {**entry, "faults": dict(sorted(passed.faults.items()))}


def rule_lines(report: dict[str, Any]) -> list[str]:
    """The counts for each rule, as text."""
    shown = []
    for entry in report["rules"]:
        rates = ", ".join(f"{n['out'] / n['in']:.1%} of the {kind}" for kind, n in entry["by_class"].items())
        line = f"{entry['rule']}: {entry['rows_in']:,} rows in, {entry['rows_out']:,} out ({rates or 'none came'})"
        if "judgements_in" in entry:
            line += f"; judgements {entry['judgements_in']:,} in, {entry['judgements_out']:,} out"
        if entry["faults"]:
            line += ": " + ", ".join(f"{n:,} {reason}" for reason, n in entry["faults"].items())
        shown.append(line)
    return shown
