"""Convert label files to a folder of chats for fine-tuning, with statistics of every filter."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

import orjson

from critic_prm.data import problem_key, trajectory_to_json, without_labels
from critic_prm.data.hashing import SPLITS, split_of
from critic_prm.data.records.reading import encode
from critic_prm.data.records.writing import new_folder
from critic_prm.datasets.balance import Thinning
from critic_prm.datasets.decontaminate import BY_DEFAULT, Benchmarks, DecontaminateOptions, excluded
from critic_prm.datasets.filters import CHARACTERS_A_TOKEN
from critic_prm.datasets.rows import Row, fingerprint, read_rows
from critic_prm.errors import InputError, UsageError
from critic_prm.styles.prompt import Style, open_style, style_in_data
from distill.settings import ChatOptions
from distill.sft.chains import STAGES, Candidate, Chat, Count, Judged, Stored, candidates, judged, style_of

FORMAT = "critic-prm chats 1"
MARK = "sft.json"
SOLUTIONS = "dev.solutions.jsonl"
"""File with the labelled solutions of dev, whether or not one of their chains was kept; judges are measured on it."""


@dataclass(frozen=True, slots=True)
class Counting:
    """A token counter and its description for the statistics."""

    by: str
    count: Count


ESTIMATED = Counting(f"an estimate of {CHARACTERS_A_TOKEN} characters a token", lambda text: len(text) // CHARACTERS_A_TOKEN)


@dataclass(slots=True)
class Funnel:
    """Counts of the chains: how many of each class were examined, and how many each stage stopped, by reason and class."""

    examined: Counter[str] = field(default_factory=Counter)
    stopped: dict[str, dict[str, Counter[str]]] = field(default_factory=dict)

    def stop(self, stage: str, reason: str, kind: str) -> None:
        self.stopped.setdefault(stage, {}).setdefault(reason, Counter())[kind] += 1

    def report(self) -> list[dict[str, Any]]:
        here, stages = Counter(self.examined), []
        for stage in STAGES:
            reasons = self.stopped.get(stage, {})
            entry: dict[str, Any] = {"stage": stage, "in": here.total()}
            here = here - sum(reasons.values(), Counter[str]())
            entry |= {"out": here.total(), "erroneous": here["erroneous"], "correct": here["correct"]}
            stages.append({**entry, "stopped": {reason: kinds.total() for reason, kinds in sorted(reasons.items())}})
        return stages


@dataclass(slots=True)
class _Run:
    """The state of a conversion while rows are streamed."""

    options: ChatOptions
    counting: Counting
    stored: Stored | None
    benchmarks: Benchmarks | None
    """The problems to leave out."""
    style: Style | None = None
    funnel: Funnel = field(default_factory=Funnel)
    accepted: Counter[str] = field(default_factory=Counter)
    seen: set[bytes] = field(default_factory=set)
    solutions: Counter[str] = field(default_factory=Counter)
    styles: Counter[str] = field(default_factory=Counter)
    thinning: Thinning = field(default_factory=lambda: Thinning("none", 0))


def build_chats(
    inputs: Sequence[str | Path],
    out: str | Path,
    options: ChatOptions | None = None,
    *,
    exclude: Sequence[str | Path] = (),
    same: DecontaminateOptions = BY_DEFAULT,
    counting: Counting = ESTIMATED,
    stored: Stored | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Convert label files (or published chains with gold labels) to chats in the folder `out`, and return its sft.json.

    The folder holds one JSONL file per split, and sft.json, which accounts for every chain. Every row of train, dev and
    test.jsonl is {"messages": [...]} with further metadata. Problems are split as by `dataset build`, so the same seed holds
    out the same problems. `counting` counts tokens for the length filter. `stored` finds replies in a cache; if it is None,
    answers are written from the critiques. `exclude` names files whose problems are left out; `same` says what counts as the
    same problem. `say` receives warnings. Rows are streamed, and `out` is written atomically.

    Raises InputError for unreadable rows and if nothing is left, UsageError for invalid options.
    """
    options = options or ChatOptions()
    run = _Run(options, counting, stored, excluded(exclude, same))
    run.thinning = Thinning("first-error" if options.balance else "none", options.seed)
    with new_folder(out, MARK, "folder of chats") as work:
        files = _collect(inputs, work, run)
        splits = {name: _write(work, name, run) for name in SPLITS}
        summary = _summary(files, exclude, splits, run)
        (work / MARK).write_bytes(orjson.dumps(summary, option=orjson.OPT_INDENT_2) + b"\n")
        if run.style is not None:
            (work / f"{run.style.name}.jinja").write_text(run.style.source, encoding="utf-8")
    for warning in summary["warnings"]:
        say(warning)
    return summary


def _collect(inputs: Sequence[str | Path], work: Path, run: _Run) -> list[dict[str, Any]]:
    """First pass: write every chain that passes the filters to its split, and the solutions of dev to their file."""
    files = []
    with ExitStack() as stack:
        parts = {name: stack.enter_context((work / f"{name}.part").open("wb")) for name in SPLITS}
        solutions = stack.enter_context((work / SOLUTIONS).open("wb"))
        for path in inputs:
            rows = 0
            for row in read_rows(path):
                rows += 1
                _take(row, Path(path).name.partition(".")[0], parts, solutions, run)
            files.append({"name": Path(path).name, "rows": rows, "sha256": fingerprint(path)})
    return files


def _take(row: Row, source: str, parts: Mapping[str, IO[bytes]], solutions: IO[bytes], run: _Run) -> None:
    if row.shape == "training row":
        raise InputError(
            row.where, "a training set contains labels, not critiques", "name the label file that it was built from"
        )
    options, key = run.options, problem_key(row.trajectory.problem)
    judge_style = style_of(row)
    run.styles[judge_style or "none"] += 1
    if run.style is None:
        run.style = _style(options.style, judge_style)
    if run.benchmarks is not None and run.benchmarks.match(row.trajectory.problem) is not None:
        run.solutions["excluded problem"] += 1
        return
    labelled = judged(row, options.chain)
    run.solutions[labelled.kind] += 1
    run.solutions["unchecked"] += labelled.unchecked
    split = split_of(key, options.split, options.seed)
    if split == "dev" and not isinstance(labelled.wanted, str) and not run.accepted[row.content]:
        solutions.write(encode({**trajectory_to_json(without_labels(row.trajectory)), "label": labelled.wanted}))
    passed = candidates(labelled, run.style, options.chain, run.counting.count, run.stored)
    for number, candidate in enumerate(passed):
        run.funnel.examined[labelled.kind] += 1
        stage, reason = _limit(candidate, row.content, run)
        if stage:
            run.funnel.stop(stage, reason, labelled.kind)
            continue
        run.accepted[row.content] += 1
        for chat in candidate.chats:
            lot = f"{row.content}:{number}:{chat.step}"
            if split == "train":
                run.thinning.note(chat.kind, (), lot)
            parts[split].write(encode({"kind": chat.kind, "lot": lot, "row": _row(chat, labelled, source, run)}))


def _style(asked: str | None, judge_style: str | None) -> Style:
    try:
        return open_style(asked) if asked else style_in_data(judge_style or "stepwise", "a label")
    except UsageError as error:
        if asked is not None:
            raise
        raise UsageError(f"{error}; labels of a custom prompt need its file: dataset sft --style FILE") from None


def _limit(candidate: Candidate, content: str, run: _Run) -> tuple[str, str]:
    """Apply the filters that depend on the other chains of the solution. Returns stage and reason, "" if it passes."""
    if candidate.stage:
        return candidate.stage, candidate.reason
    answers = "\x00".join(chat.messages[-1].content for chat in candidate.chats)
    digest = hashlib.sha256(f"{content}\x00{answers}".encode()).digest()[:12]
    if digest in run.seen:
        return "chains a solution", "said before word for word"
    run.seen.add(digest)
    if run.options.chains and run.accepted[content] >= run.options.chains:
        return "chains a solution", "enough chains of the solution"
    return "", ""


def _row(chat: Chat, labelled: Judged, source: str, run: _Run) -> dict[str, Any]:
    trajectory = labelled.row.trajectory
    assert run.style is not None
    return {
        "messages": [{"role": message.role, "content": message.content} for message in chat.messages],
        "id": trajectory.id if chat.step is None else f"{trajectory.id}#{chat.step}",
        "source": str(trajectory.extra.get("source") or source),
        "style": run.style.name,
        "finds_error": chat.kind == "erroneous",
        "tokens": run.counting.count(chat.messages[-1].content),
    }


def _write(work: Path, name: str, run: _Run) -> dict[str, Any]:
    """Second pass: thin train, write a split, and return its statistics."""
    if name == "train":
        run.thinning.decide()
    kinds, thinned, tokens, longest = Counter[str](), 0, 0, 0
    digest = hashlib.sha256()
    part = work / f"{name}.part"
    with part.open("rb") as lines, (work / f"{name}.jsonl").open("wb") as file:
        for line in lines:
            entry = orjson.loads(line)
            if name == "train" and run.options.balance and run.thinning.thin(entry["kind"], (1.0,), entry["lot"]) != [1.0]:
                thinned += 1
                continue
            row = entry["row"]
            kinds[entry["kind"]] += 1
            tokens, longest = tokens + row["tokens"], max(longest, row["tokens"])
            written = encode(row)
            digest.update(written)
            file.write(written)
    part.unlink()
    return {
        "chats": kinds.total(),
        "erroneous": kinds["erroneous"],
        "correct": kinds["correct"],
        "thinned": thinned,
        "tokens": tokens,
        "longest": longest,
        "sha256": digest.hexdigest(),
    }


def _summary(
    files: Sequence[Mapping[str, Any]], exclude: Sequence[str | Path], splits: Mapping[str, Mapping[str, Any]], run: _Run
) -> dict[str, Any]:
    from importlib.metadata import version

    options, style = run.options, run.style
    summary: dict[str, Any] = {
        "format": FORMAT,
        "version": version("critic-prm"),
        "options": {**asdict(options), "split": list(options.split), "exclude": [Path(path).name for path in exclude]},
        "answers": "written from the critiques" if run.stored is None else "the replies themselves",
        "tokens_by": run.counting.by,
        "inputs": list(files),
        "style": None
        if style is None
        else {"name": style.name, "fingerprint": style.fingerprint, "reader": style.reader, "per": style.per},
        "excluded": None if run.benchmarks is None else run.benchmarks.report(),
        "solutions": dict(sorted(run.solutions.items())),
        "funnel": run.funnel.report(),
        "splits": dict(splits),
    }
    if not splits["train"]["chats"]:
        stopped = ", ".join(f"{n} {reason}" for stage in summary["funnel"] for reason, n in stage["stopped"].items())
        raise InputError(
            ", ".join(str(file["name"]) for file in files) or "no input",
            f"no chain of {run.funnel.examined.total()} is left to train on" + (f" (left out: {stopped})" if stopped else ""),
            "label more solutions or samples, or relax the filters",
        )
    assert style is not None
    messages = warnings(summary, style, run.styles, written=run.stored is None, with_dev=options.split[1] > 0)
    return {**summary, "warnings": list(messages)}


def warnings(
    summary: Mapping[str, Any], style: Style, others: Mapping[str, int], *, written: bool, with_dev: bool
) -> Iterator[str]:
    """Yield the warnings that the statistics give rise to.

    `others` counts rows by the style they were judged in. `written` says that answers were written from critiques, `with_dev`
    that the split reserves a share for dev.
    """
    train = summary["splits"]["train"]
    if unchecked := summary["solutions"].get("unchecked"):
        yield (
            f"{unchecked:,} solutions have one judgement and no gold label, so nothing checked it;"
            " label with --samples 4, or add gold labels or a consensus"
        )
    if not train["erroneous"] or not train["correct"]:
        yield f"{train['erroneous']} answers of train find an error and {train['correct']} do not; a judge needs both"
    if with_dev and not summary["splits"]["dev"]["chats"]:
        yield "dev is empty: give it a larger share with --split"
    if written:
        shifted = [name for name in others if name != style.name and _base(name) not in (None, style.base)]
        if shifted:
            yield (
                f"critiques of the style {', '.join(shifted)} count steps from another number than {style.name};"
                " step numbers in them are wrong"
            )


def _base(name: str) -> int | None:
    try:
        return style_in_data(name, "a label").base
    except UsageError:
        return None


def counted_by(tokenizer: str | None) -> Counting:
    """Count with the tokenizer of a model folder or hub name, None for an estimate.

    Raises InputError if the tokenizer cannot be opened.
    """
    if tokenizer is None:
        return ESTIMATED
    from distill.sft.tokens import open_chat_tokenizer

    loaded = open_chat_tokenizer(tokenizer)
    return Counting(f"the tokenizer of {tokenizer}", lambda text: len(loaded(text, add_special_tokens=False)["input_ids"]))


def stored_in(db: Path | None) -> Stored | None:
    """Return a lookup of replies in this cache, opened read-only. Raises InputError."""
    if db is None:
        return None
    from critic_prm.engine.cache import Cache

    return partial(Cache(db, readonly=True).reply, complete=True)
