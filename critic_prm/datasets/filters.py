"""Filter rows by rules; in label files, also drop the judgements that fail and recompute the label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from critic_prm.data.judgement import Judgement, Label, Prior, combine
from critic_prm.data.label_rows import label_to_json, labelled_from_json
from critic_prm.data.records.reading import RecordWriter
from critic_prm.datasets.account import DatasetStats, write_report
from critic_prm.datasets.balance import Thinning
from critic_prm.datasets.rows import CLASSES, Row, read_rows, spool
from critic_prm.datasets.rules import FilterOptions, JudgementRule, RowRule, judgement_rules, row_rules


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
    options.check()
    rules, judging = row_rules(options), judgement_rules(options)
    account = DatasetStats("filter")
    passed = {name: _Passed() for name in (*rules, *judging)}
    bare, estimated = Counter[str](), 0
    thinning = Thinning("first-error" if options.balance else "none", options.seed)
    with spool(out) as rows:
        for row in read_rows(source):
            account.take(row.kind)
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
        account.file(source, account.rows_in.total())
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
    report = account.summary(asdict(options), more)
    write_report(out, report)
    if judging and bare.total():
        names = ", ".join(judging)
        say(f"{bare.total():,} of {account.rows_in.total():,} rows hold no judgements; {names} cannot tell of them")
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
    said = []
    for entry in report["rules"]:
        rates = ", ".join(f"{n['out'] / n['in']:.1%} of the {kind}" for kind, n in entry["by_class"].items())
        line = f"{entry['rule']}: {entry['rows_in']:,} rows in, {entry['rows_out']:,} out ({rates or 'none came'})"
        if "judgements_in" in entry:
            line += f"; judgements {entry['judgements_in']:,} in, {entry['judgements_out']:,} out"
        if entry["faults"]:
            line += ": " + ", ".join(f"{n:,} {reason}" for reason, n in entry["faults"].items())
        said.append(line)
    return said
