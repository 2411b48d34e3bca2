"""Make preference pairs for DPO and KTO from scored or labelled solutions, refinements and search trees.

Solutions of one problem are compared as a whole, or step by step: two different steps after the same steps (Step-DPO, arXiv
2406.18629). The value of a step is the mean P(correct) over all solutions that take it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import chain, combinations
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal

from critic_prm.data.aggregate import aggregate, open_aggregation
from critic_prm.data.formats.common import describe
from critic_prm.data.records.reading import Record, RecordWriter, read_records
from critic_prm.datasets.rows import Row, read_rows, row_of
from critic_prm.errors import InputError, UsageError
from critic_prm.option import Option, check_fields

Columns = Literal["trl", "trl-chat", "openrlhf", "kto", "kto-chat"]
JOINT = "\n\n"
"""Text between two steps."""

MOST_STEPS = 1000
"""Maximum depth of a tree: the steps before a node are kept with it."""


@dataclass(frozen=True, slots=True)
class PairOptions:
    """How preference pairs are chosen and written."""

    level: Literal["solution", "step"] = "solution"
    """Compare whole solutions of a problem, or next steps after the same steps."""
    to: Columns = "trl"
    """Columns to write: trl (prompt, chosen, rejected), trl-chat (the same as messages), openrlhf (chosen and rejected
    conversations), kto or kto-chat (unpaired: prompt, completion, label)."""
    margin: Annotated[float, Option(min=0, max=1)] = 0.2
    """Minimum difference between the scores of the chosen and the rejected text; must be exceeded."""
    aggregate: str = "min"
    """How step scores become a solution's score: min, mean, product, last, ..."""
    by: Literal["score", "gold"] = "score"
    """Compare by P(correct) of the row's labels, or by gold labels."""
    per_prompt: Annotated[int, Option(min=1)] = 1
    """Make at most N pairs per prompt, those with the largest differences first."""
    max_length_ratio: Annotated[float | None, Option(min=1)] = None
    """Pair only texts of which neither is more than this many times as long as the other."""

    def __post_init__(self) -> None:
        check_fields(self)
        open_aggregation(self.aggregate)
        if self.level == "step" and (self.to.endswith("-chat") or self.to == "openrlhf"):
            raise UsageError(f"--to {self.to} ends each turn after a whole solution; use --to trl or kto with --level step")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A solution or a prefix of one. `values` has P(correct) per step, None where unknown; `score` is None if the solution as a
    whole has none."""

    id: str
    problem: str
    steps: tuple[str, ...]
    values: tuple[float | None, ...]
    score: float | None


@dataclass(frozen=True, slots=True)
class Completion:
    """A text that may follow a prompt, with its score and the id of a row that contains it."""

    text: str
    score: float
    id: str


@dataclass(slots=True)
class PairStats:
    """Counts of a run."""

    candidates: int = 0
    scored: int = 0
    prompts: int = 0
    paired: int = 0
    rows: int = 0
    lengths: list[tuple[int, int]] = field(default_factory=list)
    """Characters of the chosen and the rejected text of each pair."""
    labels: Counter[bool] = field(default_factory=Counter)

    def lines(self, out: str) -> Iterator[str]:
        """The counts as text."""
        place = "stdout" if out == "-" else out
        yield f"pairs: {self.candidates:,} solutions in, {self.scored:,} with scores; {self.rows:,} rows to {place}"
        if self.labels:
            yield f"unpaired: {self.labels[True]:,} desirable, {self.labels[False]:,} undesirable"
        else:
            yield f"{self.paired:,} of {self.prompts:,} prompts with two different texts or more gave a pair"
        if self.lengths:
            chosen, rejected = (fmean(each) for each in zip(*self.lengths, strict=True))
            yield f"mean length: {chosen:,.0f} characters chosen, {rejected:,.0f} rejected"
            if not 0.8 <= chosen / max(rejected, 1) <= 1.25:
                yield "warning: a model can learn the length from these pairs; --max-length-ratio 1.2 makes them alike"


def pairs(source: str | Path, out: str | Path, options: PairOptions = PairOptions()) -> PairStats:
    """Write the preference pairs of `source` to `out` and return the counts.

    `source` is a label file, trajectories or training rows, refined solutions of `refine`, or a tree file of `search`. All
    texts are held in memory. Raises InputError if no two texts can be compared.
    """
    stats = PairStats()
    problems: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidates(source, options):
        stats.candidates += 1
        stats.scored += candidate.score is not None
        problems[candidate.problem].append(candidate)
    with RecordWriter(out) as writer:
        for problem, group in problems.items():
            prompts = _next_steps(problem, group) if options.level == "step" else [(problem, _solutions(group))]
            for prompt, completions in prompts:
                for row in _rows(prompt, completions, options, stats):
                    writer.write(row)
                    stats.rows += 1
        if not stats.rows:
            raise InputError(
                str(source),
                f"no pair: {stats.candidates:,} solutions of {len(problems):,} problems, {stats.scored:,} with scores",
                "pairs need several different solutions per problem (generate sample -n 8) with scores, or a lower --margin",
            )
    return stats


def candidates(source: str | Path, options: PairOptions) -> Iterator[Candidate]:
    """The solutions of a file, in order; both versions of a refined one, and every node of a search tree."""
    records = iter(read_records(source))
    first = next(records, None)
    if first is not None and isinstance(first.data, dict) and {"node", "parent", "step"} <= first.data.keys():
        yield from _tree(chain((first,), records))
        return
    if first is not None and isinstance(first.data, dict) and "refine" in first.data:
        for record in chain((first,), records):
            yield from _refined(row_of(record))
        return
    for row in read_rows(source):
        texts = tuple(row.trajectory.texts)
        values, first_error = row.labels, row.first_error
        if options.by == "gold":
            values = tuple(p if isinstance(p, float) else None for p in row.trajectory.gold())
            first_error = row.trajectory.first_error()
        score = None if first_error is None else aggregate(values, options.aggregate)
        yield Candidate(row.id, row.trajectory.problem, texts, values, score)


def _refined(row: Row) -> Iterator[Candidate]:
    """The solution before and after its refinement. The first step that differs is the only one with a value."""
    record, after = row.data.get("refine"), tuple(row.trajectory.texts)
    fix = "write the solutions again with: critic-prm refine"
    if not isinstance(record, dict):
        raise InputError(row.where, f'"refine" is {describe(record)}', fix)
    before, scores = record.get("steps_before"), record.get("score")
    if before is None:
        return
    if not isinstance(before, list) or not all(isinstance(step, str) for step in before):
        raise InputError(row.where, f'"steps_before" of "refine" is {describe(before)}', fix)
    if not isinstance(scores, list) or len(scores) != 2 or not all(map(_is_score, scores)):
        raise InputError(row.where, f'"score" of "refine" is {describe(scores)}', fix)
    same = next((at for at, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after)))
    for name, steps, score in zip(("before", "after"), (tuple(before), after), scores, strict=True):
        values = tuple(score if at == same else None for at in range(len(steps)))
        yield Candidate(f"{row.id}/{name}", row.trajectory.problem, steps, values, score)


def _tree(records: Iterable[Record]) -> Iterator[Candidate]:
    """Every node as a prefix with the value of its last step: that of the search if it has one, else P(correct)."""
    paths: dict[tuple[str, int], tuple[str, ...]] = {}
    problems: dict[str, str] = {}
    fix = "write the tree again with: critic-prm search --tree"
    for record in records:
        row = record.data if isinstance(record.data, dict) else {}
        for name, kind in _NODE.items():
            if not isinstance(row.get(name), kind):
                raise InputError(record.where, f'"{name}" of a node is {describe(row.get(name))}', fix)
        tree, node, parent = row["id"], row["node"], row.get("parent")
        if parent is None:
            if not isinstance(row.get("problem"), str):
                raise InputError(record.where, "the root has no problem", fix)
            problems[tree], paths[tree, node] = row["problem"], ()
            continue
        if (tree, parent) not in paths:
            raise InputError(record.where, f"no earlier node of {tree!r:.60} is the parent {parent}", fix)
        path = (*paths[tree, parent], row["step"])
        if len(path) > MOST_STEPS:
            raise InputError(record.where, f"the node is more than {MOST_STEPS:,} steps from its root", fix)
        paths[tree, node] = path
        value, score = row.get("value", row.get("p_correct")), row.get("score")
        if not _is_score(value) or not _is_score(score):
            raise InputError(record.where, f"the value or the score of a node is {describe((value, score))}", fix)
        values = (*((None,) * (len(path) - 1)), value)
        yield Candidate(f"{tree}/{node}", problems[tree], path, values, score if row.get("done") else None)


_NODE: Mapping[str, Any] = {"id": str, "node": int, "parent": int | None, "step": str}
"""The types of a node's fields."""


def _is_score(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _solutions(group: Sequence[Candidate]) -> list[Completion]:
    """The different solutions of a problem, with the mean score of equal ones."""
    same: dict[tuple[str, ...], list[Candidate]] = defaultdict(list)
    for one in group:
        if one.score is not None:
            same[one.steps].append(one)
    return [
        Completion(JOINT.join(steps), fmean(one.score for one in ones if one.score is not None), ones[0].id)
        for steps, ones in same.items()
    ]


def _next_steps(problem: str, group: Sequence[Candidate]) -> Iterator[tuple[str, list[Completion]]]:
    """(prompt, next steps) after each prefix that several solutions share; the value of a step is its mean over them."""
    after: dict[int, dict[str, list[tuple[float, str]]]] = defaultdict(lambda: defaultdict(list))
    number: dict[tuple[int, str], int] = {}  # of each prefix, by that of the prefix before its last step
    where: dict[int, tuple[Candidate, int]] = {}
    for one in group:
        prefix = 0
        for at, (step, value) in enumerate(zip(one.steps, one.values, strict=True)):
            if value is not None:
                where.setdefault(prefix, (one, at))
                after[prefix][step].append((value, one.id))
            prefix = number.setdefault((prefix, step), len(number) + 1)
    for prefix, steps in after.items():
        if len(steps) > 1:
            one, at = where[prefix]
            prompt = JOINT.join((problem, *one.steps[:at])) + JOINT
            yield prompt, [Completion(text, fmean(v for v, _ in seen), seen[0][1]) for text, seen in steps.items()]


def _rows(prompt: str, completions: Sequence[Completion], options: PairOptions, stats: PairStats) -> Iterator[dict[str, Any]]:
    if options.to in ("kto", "kto-chat"):
        for one in completions:
            if abs(one.score - 0.5) > options.margin / 2:
                stats.labels[one.score > 0.5] += 1
                yield _unpaired(prompt, one, options.to)
        return
    stats.prompts += len(completions) > 1
    chosen_pairs = list(_chosen(completions, options))
    stats.paired += bool(chosen_pairs)
    for better, worse in chosen_pairs:
        stats.lengths.append((len(better.text), len(worse.text)))
        yield _paired(prompt, better, worse, options.to)


def _chosen(completions: Sequence[Completion], options: PairOptions) -> Iterator[tuple[Completion, Completion]]:
    """The pairs with the largest differences, of equal ones those of the most similar length; each text is used once."""

    def possible() -> Iterator[tuple[float, int, str, str, Completion, Completion]]:
        for a, b in combinations(completions, 2):
            better, worse = (a, b) if a.score > b.score else (b, a)
            short, long = sorted((len(a.text), len(b.text)))
            if better.score - worse.score > options.margin and long <= (options.max_length_ratio or float("inf")) * short:
                yield round(worse.score - better.score, 9), long - short, better.id, worse.id, better, worse

    used: set[str] = set()
    left = options.per_prompt
    enough = 1 + 4 * len(completions) * (left - 1)  # each pair excludes the others of its two texts; all would need much memory
    for *_, better, worse in nsmallest(enough, possible(), key=lambda pair: pair[:4]):
        if left and not used & {better.text, worse.text}:
            used |= {better.text, worse.text}
            left -= 1
            yield better, worse


def _paired(prompt: str, better: Completion, worse: Completion, to: Columns) -> dict[str, Any]:
    texts: dict[str, Any] = {"prompt": prompt, "chosen": better.text, "rejected": worse.text}
    if to == "trl-chat":
        texts = {"prompt": [_user(prompt)], "chosen": [_answer(better.text)], "rejected": [_answer(worse.text)]}
    elif to == "openrlhf":
        texts = {name: [_user(prompt), _answer(one.text)] for name, one in (("chosen", better), ("rejected", worse))}
    scores = {"score_chosen": better.score, "score_rejected": worse.score}
    return {**texts, **scores, "id_chosen": better.id, "id_rejected": worse.id}


def _unpaired(prompt: str, one: Completion, to: Columns) -> dict[str, Any]:
    texts: Mapping[str, Any] = {"prompt": prompt, "completion": one.text}
    if to == "kto-chat":
        texts = {"prompt": [_user(prompt)], "completion": [_answer(one.text)]}
    return {**texts, "label": one.score > 0.5, "score": one.score, "id": one.id}


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _answer(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}
