"""Define the filter rules: functions that return what is wrong with a row or a judgement."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, TypeAlias, get_args

from critic_prm.data.judgement import Judgement
from critic_prm.datasets.critiques import fault
from critic_prm.datasets.rows import Row
from critic_prm.errors import InputError, UsageError

Critiques = Literal["off", "error", "all"]
CHARACTERS_A_TOKEN = 4
"""Used to estimate tokens for replies without recorded usage, as in imported files."""


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """The rules; each is off by default."""

    status: bool = False
    """Row: the status is ok."""
    min_agreement: float | None = None
    """Row: at least this fraction of the ok judgements agrees on the first error."""
    min_steps: int | None = None
    """Row: minimum number of steps."""
    max_steps: int | None = None
    """Row: maximum number of steps."""
    max_chars: int | None = None
    """Row: maximum number of characters of problem and steps."""
    well_formed: bool = False
    """Row: no step is empty or contains several "Step k:" markers."""
    answered: bool = False
    """Row: it has a final answer."""
    complete: bool = False
    """Judgement: a verdict for every step, or for every step up to the first error."""
    forgiven: bool = True
    """Judgement: if False, the reply must have been readable without any tolerance."""
    max_tokens: int | None = None
    """Judgement: maximum number of tokens of the reply."""
    critiques: Critiques = "off"
    """Judgement: critiques of the error step ("error") or of all steps ("all") are not empty, copied from the step, looping or
    shorter than `min_words`."""
    min_words: int = 3
    """Minimum number of words of a critique."""
    matches_gold: bool = False
    """Judgement: its verdicts up to the first error match the gold labels, if there are any."""
    balance: bool = False
    """Thin the larger class until erroneous and correct rows are equally many."""
    seed: int = 0
    """Random seed for thinning."""

    def check(self) -> None:
        """Raises UsageError for an invalid value, and if no rule is selected."""
        if self.critiques not in get_args(Critiques):
            raise UsageError(f"critiques is {self.critiques!r}; it is one of {', '.join(get_args(Critiques))}")
        if self.min_agreement is not None and not 0 <= self.min_agreement <= 1:
            raise UsageError(f"the minimum agreement is {self.min_agreement:g}; it is a share of the judgements, from 0 to 1")
        for name in ("min_steps", "max_steps", "max_chars", "max_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"--{name.replace('_', '-')} is {value}; it must be at least 1")
        if not (row_rules(self) or judgement_rules(self) or self.balance):
            raise UsageError("no rule is asked for; see critic-prm dataset filter --help")


PRESETS: dict[str, FilterOptions] = {
    "thinkprm": FilterOptions(status=True, complete=True, matches_gold=True, max_tokens=4096, balance=True),
}
"""thinkprm: ThinkPRM's four conditions on a verification chain (arXiv 2504.16828); about 20% of the chains pass them there."""


def preset_rules(name: str, asked: FilterOptions) -> FilterOptions:
    """A preset combined with the options set in `asked`. Raises UsageError for an unknown preset."""
    if name not in PRESETS:
        raise UsageError(f"no preset is called {name!r}; there are: {', '.join(sorted(PRESETS))}")
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
            raise InputError(row.where, "the row holds no judgements, so their agreement is unknown", "leave the rule out")
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
        if (verdict.value == "correct") != (wanted >= 0.5):
            return "differs from gold"
    return ""
