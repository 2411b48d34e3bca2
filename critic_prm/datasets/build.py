"""Build a training set from label files or gold-labelled trajectories; dataset.json accounts for every row."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Annotated, Any, Literal, get_args

import orjson

from critic_prm.data.formats.common import Corrected, MapOption, Options
from critic_prm.data.hashing import SPLITS, check_shares, parse_shares, problem_key
from critic_prm.data.judgement import Judgement, Label
from critic_prm.data.label_rows import labelled_from_json
from critic_prm.data.records.reading import encode, read_records
from critic_prm.data.records.writing import new_folder
from critic_prm.data.trajectory import StepLabel, Trajectory, content_id
from critic_prm.datasets.balance import Balance, Thinning, acceptance_weights, effective_rows
from critic_prm.datasets.decontaminate import BY_DEFAULT, Benchmarks, DecontaminateOptions, excluded
from critic_prm.datasets.duplicates import list_of
from critic_prm.datasets.rows import Spool, fingerprint, spool
from critic_prm.datasets.splits import Splits
from critic_prm.errors import InputError, UsageError
from critic_prm.option import Option, check_fields

Neutral = Literal["good", "bad", "drop"]
"""How to treat a neutral step: as good (the usual reading of PRM800K), as bad, or without a label."""

Kind = Literal["erroneous", "correct", "partial"]
"""A trajectory with a known first error; without errors; or with some labelled steps and an unknown first error."""


@dataclass(frozen=True, slots=True)
class Targets:
    """The training targets of one trajectory."""

    labels: tuple[float | None, ...]
    """P(correct) per step, None after the first error and where unknown."""
    votes: tuple[tuple[int, int], ...]
    """(k, n) of each step's judgements, (0, 0) without any."""
    first_error: int | None
    """0-based, -1 without an error, None if unknown."""
    agreement: float | None = None
    """Fraction of the ok judgements with this first error; None if there are no judgements (gold labels)."""
    states_first: bool = False
    """Whether the first error does not follow from the labels, because corrected steps are labelled incorrect or not at all."""

    @property
    def kind(self) -> Kind:
        """The class of the trajectory by its first error."""
        if self.first_error is None:
            return "partial"
        return "erroneous" if self.first_error >= 0 else "correct"


def from_gold(
    trajectory: Trajectory, *, neutral: Neutral = "drop", corrected: Corrected = "drop", soft: bool = True
) -> Targets | str:
    """The targets from a trajectory's gold labels, or the reason there are none."""
    first = trajectory.first_error()
    corrected = _known(corrected, first)
    gold = [_plain(value, neutral, corrected) for value in trajectory.gold()]
    if all(value is None for value in gold):
        return "no gold label"
    if neutral == "bad":
        first = _earlier(first, [i for i, value in enumerate(trajectory.gold()) if value == "neutral"])
    own = {i for i, value in enumerate(trajectory.gold()) if value == "corrected"}
    labels = _until(gold, first, soft, own if corrected == "flip" else ())
    return Targets(labels, ((0, 0),) * len(gold), first, states_first=_states(own, first, corrected))


def from_label(
    label: Label, *, neutral: Neutral = "drop", corrected: Corrected = "drop", soft: bool = True, where: str = ""
) -> Targets | str:
    """The targets from a label, or the reason there are none: its status, "tie", "nothing judged" or "no first error".

    Only judgements with status `ok` count. A soft target is the judgements' P(correct); a hard target is 1 before the voted
    first error and 0 at it. A corrected verdict is a vote for correct (keep), for incorrect (flip) or none (drop), and never a
    first error. The totals of a file without judgements (a slim file) count it as correct. Raises InputError if neutral
    verdicts should count, or corrected ones be flipped, in such a file.
    """
    if label.status != "ok":
        return label.status
    ok = [j for j in label.judgements if j.status == "ok"]
    if not ok:
        if neutral != "drop":
            raise InputError(
                where, "the row has no judgements, so its neutral verdicts cannot be counted", "use --neutral drop"
            )
        if corrected == "flip":
            problem = "the row has no judgements, so its corrected verdicts are not known"
            raise InputError(where, problem, "use --corrected keep, which is what its totals say")
        if label.first_error is None:
            return "no first error"
        return Targets(_until(list(label.p_correct), label.first_error, soft), label.votes, label.first_error)
    firsts = [_first_error(j, neutral) for j in ok]
    ranked = Counter(f for f in firsts if f is not None).most_common(2)
    if len(ranked) == 2 and ranked[0][1] == ranked[1][1]:
        return "tie"
    first = ranked[0][0] if ranked else None
    corrected = _known(corrected, first)
    p_correct, votes = _count(ok, len(label.p_correct), neutral, corrected)
    if all(p is None for p in p_correct):
        return "nothing judged"
    own = {v.step for j in ok for v in j.verdicts if v.value == "corrected"}
    labels = _until(p_correct, first, soft, own if corrected == "flip" else ())
    return Targets(labels, votes, first, firsts.count(first) / len(ok), _states(own, first, corrected))


def _known(corrected: Corrected, first: int | None) -> Corrected:
    """What happens to corrected steps. If the first error is unknown, a flipped step would be read as it: it has no label."""
    return "drop" if first is None and corrected == "flip" else corrected


def _states(steps: Collection[int], first: int | None, corrected: Corrected) -> bool:
    return bool(steps) and first is not None and corrected != "keep"


def _first_error(judgement: Judgement, neutral: Neutral) -> int | None:
    if neutral != "bad":
        return judgement.first_error
    return _earlier(judgement.first_error, [v.step for v in judgement.verdicts if v.value == "neutral"])


def _earlier(first: int | None, bad: Sequence[int]) -> int | None:
    """The first error if the steps in `bad` also count as errors."""
    if not bad:
        return first
    return min(bad) if first is None or first < 0 else min(first, *bad)


def _count(
    judgements: Sequence[Judgement], steps: int, neutral: Neutral, corrected: Corrected
) -> tuple[list[float | None], tuple[tuple[int, int], ...]]:
    good, total, mass = [0] * steps, [0] * steps, [0.0] * steps
    for judgement in judgements:
        for verdict in judgement.verdicts:
            value = verdict.value
            mark: StepLabel = value if value in ("neutral", "corrected") else float(value == "correct")
            p = _plain(mark, neutral, corrected)
            if p is None:
                continue
            good[verdict.step] += p == 1.0
            total[verdict.step] += 1
            mass[verdict.step] += p if isinstance(mark, str) or verdict.p_correct is None else verdict.p_correct
    return [m / n if n else None for m, n in zip(mass, total, strict=True)], tuple(zip(good, total, strict=True))


def _plain(value: StepLabel, neutral: Neutral, corrected: Corrected) -> float | None:
    """A step's label as a number, with neutral and corrected mapped as the options say."""
    if value == "corrected":
        return {"keep": 1.0, "flip": 0.0, "drop": None}[corrected]
    if isinstance(value, str):
        return {"good": 1.0, "bad": 0.0, "drop": None}[neutral]
    return value


def _until(
    values: Sequence[float | None], first: int | None, soft: bool, flipped: Collection[int] = ()
) -> tuple[float | None, ...]:
    """The values up to the first error; later values are None, even if a judge continued.

    Hard values follow from the first error. If it is unknown, everything after the first value below 0.5 is None.
    Hard values of the steps in `flipped`, which are wrong without being the first error, follow from their own values.
    """
    last = next((i for i, v in enumerate(values) if v is not None and v < 0.5), -1) if first is None else first
    end = len(values) if last < 0 else last + 1
    kept = list(values[:end])
    if not soft:
        kept = [
            None if v is None else float(v >= 0.5 if first is None or i in flipped else i != first) for i, v in enumerate(kept)
        ]
        if first is not None and first >= 0:
            kept[first] = 0.0
    return (*kept, *(None,) * (len(values) - end))


KINDS: tuple[Kind, ...] = get_args(Kind)
FORMAT = "critic-prm training set 1"
EXCLUDED = "excluded.jsonl"
"""The file of a training set that lists the rows left out because of `--exclude`, with their matches."""


@dataclass(frozen=True, slots=True)
class DatasetOptions:
    """How labels become a training set."""

    gold: bool = False
    """Use gold labels instead of judgements."""
    min_agreement: Annotated[float, Option(min=0, max=1)] = 0.5
    """Keep solutions if at least this share of the judgements agrees on the first error."""
    soft: Annotated[bool, Option(("--soft/--hard",))] = True
    """Labels: P(correct) from the judgements, or 1 and 0."""
    neutral: Neutral = "drop"
    """Treat neutral steps as good or bad, or drop their labels."""
    corrected: Corrected = "drop"
    """Steps that the solution corrects later: keep (as correct), flip (incorrect, but not the first error) or drop."""
    balance: Balance = "none"
    """Balance the train split by dropping rows: none, step (good and bad steps) or first-error (solutions)."""
    reweight: bool = False
    """Weight rows by the inverse acceptance rate of their class (mean 1, at most 5)."""
    split: Annotated[tuple[float, float, float], Option(parse=parse_shares)] = (0.9, 0.05, 0.05)
    """Shares of problems in train, dev and test; default: 0.9,0.05,0.05."""
    seed: Annotated[int, Option(envvar="CRITIC_PRM_SEED")] = 0
    """Random seed of the split and of balancing."""
    max_steps: Annotated[int | None, Option(min=1)] = None
    """Leave out solutions with more than N steps."""
    map: MapOption = ()
    """With --gold: read fields under other names, such as problem=prompt,label=first_bad; may be repeated."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_shares(self.split)
        if self.map and not self.gold:
            raise UsageError("--map names fields of trajectories with gold labels; add --gold")


@dataclass(slots=True)
class _Part:
    """The file of one split, with its counts."""

    file: IO[bytes]
    kinds: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=lambda: Counter(good=0, bad=0, unlabelled=0, thinned=0))
    problems: set[str] = field(default_factory=set)
    digest: Any = field(default_factory=hashlib.sha256)

    def write(self, kind: str, key: str, row: Mapping[str, Any], thinned: int) -> None:
        """Add a row of a problem; `thinned` of its labels were removed to balance the classes."""
        self.kinds[kind] += 1
        self.problems.add(key)
        self.steps["thinned"] += thinned
        for label in row["labels"]:
            self.steps["unlabelled" if label is None else "good" if label >= 0.5 else "bad"] += 1
        written = encode(row)
        self.digest.update(written)
        self.file.write(written)

    def counts(self) -> dict[str, Any]:
        counts = {"rows": self.kinds.total(), "problems": len(self.problems)} | {kind: self.kinds[kind] for kind in KINDS}
        return {**counts, "steps": dict(self.steps), "sha256": self.digest.hexdigest()}


@dataclass(slots=True)
class _Builder:
    """Assigns rows to splits, and counts. Nothing else is kept of rows already read."""

    options: DatasetOptions
    benchmarks: Benchmarks | None
    """The problems to leave out."""
    splits: Splits
    thinning: Thinning
    inputs: list[dict[str, Any]] = field(default_factory=list)
    dropped: dict[str, Counter[str]] = field(default_factory=dict)
    offered: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    mass: dict[str, float] = field(default_factory=dict)
    squares: dict[str, float] = field(default_factory=dict)
    seen: set[bytes] = field(default_factory=set)

    def read(self, path: str | Path, kept: Spool, list_excluded: Callable[[Any], None]) -> None:
        """First pass: collect the rows of a file that are kept, without splits, thinning or weights."""
        count = 0
        for where, trajectory, targets in (_gold if self.options.gold else _labelled)(path, self.options):
            count += 1
            if isinstance(targets, str):
                self.drop(targets, "unknown")
                continue
            kind, key = targets.kind, problem_key(trajectory.problem)
            content = content_id(trajectory.problem, trajectory.steps)
            if self.benchmarks is not None and (match := self.benchmarks.match(trajectory.problem)) is not None:
                self.drop("excluded problem", kind)
                list_excluded({"id": trajectory.id, "problem": trajectory.problem, **self.benchmarks.listed(match)})
                continue
            if reason := self.refuse(trajectory, targets, content, where):
                self.drop(reason, kind)
                continue
            self.accepted[kind] += 1
            self.splits.note(key, kind)
            row = training_row(trajectory, targets, Path(path).name.partition(".")[0])
            self.mass[kind] = self.mass.get(kind, 0.0) + row["weight"]
            self.squares[kind] = self.squares.get(kind, 0.0) + row["weight"] ** 2
            kept.write([kind, key, content, row])
        self.inputs.append({"name": Path(path).name, "rows": count, "sha256": fingerprint(path)})

    def drop(self, reason: str, kind: str) -> None:
        self.dropped.setdefault(reason, Counter())[kind] += 1

    def refuse(self, trajectory: Trajectory, targets: Targets, content: str, where: str) -> str:
        """Why a row with targets is left out; "" for a row that is kept."""
        options = self.options
        if options.max_steps is not None and len(trajectory.steps) > options.max_steps:
            return "too many steps"
        mark = bytes.fromhex(content)
        if mark in self.seen:
            return "duplicate"
        self.seen.add(mark)
        self.offered[targets.kind] += 1
        if options.gold or options.min_agreement <= 0:
            return ""
        if targets.agreement is None:
            raise InputError(where, "the row has no judgements, so their agreement is unknown", "use --min-agreement 0")
        return "" if targets.agreement >= options.min_agreement - 1e-12 else "low agreement"

    def write(self, kept: Spool, weights: Mapping[str, float], work: Path) -> dict[str, dict[str, Any]]:
        """Second pass: assign the rows to splits, thin and weight them, write them, and return the counts of each split."""
        with ExitStack() as stack:
            parts = {name: _Part(stack.enter_context((work / f"{name}.jsonl").open("wb"))) for name in SPLITS}
            for kind, key, content, row in kept.rows():
                name = self.splits.of(key)
                thinned = 0
                if name == "train":
                    labels = self.thinning.thin(kind, row["labels"], content)
                    if all(label is None for label in labels):
                        self.drop("balance", kind)
                        continue
                    thinned = labels.count(None) - row["labels"].count(None)
                    row["labels"] = labels
                row["weight"] *= weights.get(kind, 1.0)
                parts[name].write(kind, key, row, thinned)
        return {name: part.counts() for name, part in parts.items()}

    def finish(self, kept: Spool, work: Path, exclude: Sequence[str | Path]) -> dict[str, Any]:
        """Write the splits and return the summary."""
        from importlib.metadata import version

        options = self.options
        self.splits.settle()
        if options.balance != "none":
            for kind, key, content, row in kept.rows():
                if self.splits.of(key) == "train":
                    self.thinning.note(kind, row["labels"], content)
        self.thinning.decide()
        weights = acceptance_weights(self.offered, self.accepted) if options.reweight else {}
        splits = self.write(kept, weights, work)
        summary: dict[str, Any] = {
            "format": FORMAT,
            "version": version("critic-prm"),
            "options": {
                **asdict(options),
                "split": list(options.split),
                "map": list(options.map),
                "exclude": [Path(path).name for path in exclude],
            },
            "inputs": self.inputs,
            "rows": sum(file["rows"] for file in self.inputs),
            "kept": sum(split["rows"] for split in splits.values()),
            "excluded": None if self.benchmarks is None else self.benchmarks.report(),
            "dropped": {reason: dict(sorted(kinds.items())) for reason, kinds in sorted(self.dropped.items())},
            "acceptance": {
                kind: {"offered": n, "accepted": self.accepted[kind], "rate": self.accepted[kind] / n}
                for kind, n in sorted(self.offered.items())
            },
            "weights": weights,
            "effective_rows": effective_rows(weights, self.mass, self.squares),
            "splits": splits,
            "moved_for_classes": len(self.splits.moved),
        }
        _require_trainable(summary)
        return {**summary, "warnings": list(_warnings(summary, options))}


def build_dataset(
    inputs: Sequence[str | Path],
    out: str | Path,
    options: DatasetOptions | None = None,
    *,
    exclude: Sequence[str | Path] = (),
    same: DecontaminateOptions = BY_DEFAULT,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Build the training set `out` from label files, or with `options.gold` from gold-labelled trajectories.

    Problems that occur in the `exclude` files (held-out benchmarks) are left out and listed in `excluded.jsonl`; `same` says
    what counts as the same problem, as in `decontaminate`. `say` receives warnings. Rows are streamed; memory grows by a few
    hundred bytes per row. The same inputs, options and seed give identical bytes. `out` is created atomically and replaces an
    earlier training set. Returns the contents of dataset.json.

    Raises InputError for unreadable rows and if the remaining rows cannot be trained on, UsageError for invalid options and if
    `out` exists and is not a training set.
    """
    options = options or DatasetOptions()
    splits = Splits(options.split, options.seed)
    builder = _Builder(options, excluded(exclude, same), splits, Thinning(options.balance, options.seed))
    with new_folder(out, "dataset.json", "training set") as work, ExitStack() as stack:
        kept = stack.enter_context(spool(work / "rows"))
        list_excluded = stack.enter_context(list_of(work / EXCLUDED if exclude else None))
        for path in inputs:
            builder.read(path, kept, list_excluded)
        summary = builder.finish(kept, work, exclude)
        (work / "dataset.json").write_bytes(orjson.dumps(summary, option=orjson.OPT_INDENT_2) + b"\n")
    for warning in summary["warnings"]:
        say(warning)
    return summary


def training_row(trajectory: Trajectory, targets: Targets, source: str) -> dict[str, Any]:
    """The training row: `prompt`, `completions` and `labels` as in TRL's stepwise supervision, plus votes, weight, id and
    source.

    `weight` is the trajectory's own weight, as set by `dataset consensus`, else 1. Raises InputError if it is not a number >=
    0.

    Completions are the step texts. Observations, if any, are a separate list of the same length, so that tool output is never
    trained on as model output. Gold answers and `meta` are omitted. `first_error` is given only where it does not follow from
    the labels, because of corrected steps.
    """
    row: dict[str, Any] = {
        "prompt": trajectory.problem,
        "completions": trajectory.texts,
        "labels": list(targets.labels),
        "votes": [list(vote) for vote in targets.votes],
        "weight": _own_weight(trajectory),
        "id": trajectory.id,
        "source": str(trajectory.extra.get("source") or source),
    }
    if any(step.observation is not None for step in trajectory.steps):
        row["observations"] = [step.observation for step in trajectory.steps]
    if targets.states_first:
        row["first_error"] = targets.first_error
    return row


def _own_weight(trajectory: Trajectory) -> float:
    weight = trajectory.extra.get("weight", 1.0)
    if not isinstance(weight, int | float) or isinstance(weight, bool) or not 0 <= weight < float("inf"):
        raise InputError(trajectory.id, f'"weight" is {weight!r:.40}', "it is a number from 0 on, or left out")
    return float(weight)


def _require_trainable(summary: Mapping[str, Any]) -> None:
    train = summary["splits"]["train"]
    if train["steps"]["good"] and train["steps"]["bad"]:
        return
    fix = "a training set needs both: label more, or lower --min-agreement"
    if summary["excluded"] and summary["excluded"]["problems"]["removed"] and not summary["excluded"]["rule"]["literal"]:
        fix += "; if the --exclude files are made from the same templates, use --literal"
    reasons = ", ".join(f"{sum(kinds.values())} {reason}" for reason, kinds in summary["dropped"].items())
    raise InputError(
        ", ".join(entry["name"] for entry in summary["inputs"]) or "no input",
        f"of {summary['rows']} rows {train['rows']} are left to train on, with {train['steps']['good']} good and "
        f"{train['steps']['bad']} bad steps" + (f" (left out: {reasons})" if reasons else ""),
        fix,
    )


def _warnings(summary: Mapping[str, Any], options: DatasetOptions) -> Iterator[str]:
    total = Counter({kind: sum(split[kind] for split in summary["splits"].values()) for kind in ("erroneous", "correct")})
    for name, share in zip(SPLITS, options.split, strict=True):
        split = summary["splits"][name]
        wrong, right = split["erroneous"], split["correct"]
        if not share or (wrong and right):
            continue
        if not split["rows"]:
            lack = f"{name} is empty: {share:.0%} of the problems came to none"
        else:
            lack = f"{name} holds {wrong} erroneous and {right} correct solutions; what is chosen or measured on it needs both"
        rare = min(total, key=lambda kind: total[kind])
        yield f"{lack}; label more {rare} solutions ({total[rare]} in all), or {_without(name, options.split)}"
    rates = {kind: entry["rate"] for kind, entry in summary["acceptance"].items() if kind != "partial"}
    if rates and max(rates.values()) - min(rates.values()) > 0.1 and not options.reweight:
        shown = " and ".join(f"{rate:.0%} of the {kind}" for kind, rate in rates.items())
        yield f"agreement kept {shown} solutions; --reweight gives the classes their shares back"
    if repeated := sum(summary["dropped"].get("duplicate", {}).values()):
        yield f"{repeated} rows repeat a trajectory that came earlier; the first one counts"


def _without(name: str, shares: Sequence[float]) -> str:
    """The flag that gives up a held-out split, and what `distill` then does."""
    train, dev, test = shares
    if name == "test":
        return f"give up the test split with --split {train:g},{dev + test:g},0"
    return "leave it: critic-prm distill cross-validates by problem if dev lacks a class (--folds)"


def _labelled(path: str | Path, options: DatasetOptions) -> Iterator[tuple[str, Trajectory, Targets | str]]:
    for record in read_records(path):
        if isinstance(record.data, dict) and "p_correct" not in record.data:
            fix = "label it first with critic-prm label, or build from its gold labels with --gold"
            raise InputError(record.where, "this is not a row of a label file", fix)
        row = labelled_from_json(record.data, record.where)
        targets = from_label(
            row.label, neutral=options.neutral, corrected=options.corrected, soft=options.soft, where=record.where
        )
        yield record.where, row.trajectory, targets


def _gold(path: str | Path, options: DatasetOptions) -> Iterator[tuple[str, Trajectory, Targets | str]]:
    from critic_prm.data.formats.convert import read_trajectories

    for trajectory in read_trajectories(path, options=Options(map=options.map)):
        targets = from_gold(trajectory, neutral=options.neutral, corrected=options.corrected, soft=options.soft)
        yield str(path), trajectory, targets
