"""Write a dataset card for a folder of training rows: YAML metadata for `load_dataset`, and a description."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from critic_prm.datasets.stats import statistics
from critic_prm.errors import InputError, UsageError

FEATURES: tuple[tuple[str, str, str], ...] = (
    ("prompt", "dtype: string", "the problem"),
    ("completions", "list: string", "the steps of one solution, in order"),
    ("labels", "list: float64", "P(the step is correct) from 0 to 1 for each step; null where nothing is known of it"),
    ("votes", "{list: {list: int64}}", "[k, n] for each step: k of n judgements called it correct; [0, 0] without any"),
    ("weight", "dtype: float64", "what the row weighs in a loss"),
    ("id", "dtype: string", "which solution it is"),
    ("source", "dtype: string", "where it is from"),
    ("observations", "list: string", "what a tool answered after each step, null where none did; null where no step has any"),
)
"""The columns of a training row: name, type in dataset-card notation, meaning."""

SPLITS = {"train": "train", "dev": "validation", "validation": "validation", "test": "test"}
_SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"))


@dataclass(frozen=True, slots=True)
class About:
    """Metadata of a card that cannot be counted from files. Empty fields are omitted."""

    name: str = ""
    license: str = ""
    languages: tuple[str, ...] = ()


def write_card(folder: str | Path, about: About | None = None) -> Path:
    """Write README.md into a folder with a training set's splits (train.jsonl, or data/train-*), and return its path.

    All figures are counted from the files. Raises InputError for unreadable rows, UsageError for a folder without splits.
    """
    place = Path(folder)
    found = dict(_splits(place))
    if not found:
        raise UsageError(f"{place} holds no train.jsonl, dev.jsonl or test.jsonl, nor data/train-*; is it a training set?")
    counted = {split: statistics([file]) for split, file in found.items()}
    counted = {split: summary for split, summary in counted.items() if summary["rows"]}
    files = {split: found[split].relative_to(place).as_posix() for split in counted}
    text = card(about or About(), files, counted, _accounts(place))
    path = place / "README.md"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(str(path), f"cannot be written: {error.strerror or error}", "choose another folder") from None
    return path


def card(
    about: About, files: Mapping[str, str], counted: Mapping[str, Mapping[str, Any]], made: Mapping[str, Any] | None = None
) -> str:
    """The card's text. `files` and `counted` are by split; `made` is the set's dataset.json, if known."""
    rows = sum(summary["rows"] for summary in counted.values())
    parts = [*_yaml(about, files, rows), f"# {about.name or 'Step-labelled solutions'}", ""]
    parts += [
        f"{rows:,} solutions, cut into steps, with a label for every step that was judged: P(the step is correct). Rows for a"
        " process reward model.",
        "",
        "```python",
        "from datasets import load_dataset",
        "",
        'splits = load_dataset("path/to/this/folder")',
        "```",
        "",
        "| split | rows | problems | erroneous | correct | partly labelled | good steps | bad steps | unlabelled steps |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for split, one in counted.items():
        classes, steps = one["classes"], one["steps"]
        cells = (
            *(one["rows"], one["problems"], classes.get("erroneous", 0), classes.get("correct", 0), classes.get("partial", 0)),
            *(steps["good"], steps["bad"], steps["unlabelled"]),
        )
        parts.append(f"| {split} | " + " | ".join(f"{cell:,}" for cell in cells) + " |")
    parts += [
        "",
        "A solution is erroneous when a step of it is labelled below 0.5, correct when all are labelled from 0.5 on, and partly"
        " labelled otherwise. Steps after the first error carry no label.",
        "",
    ]
    parts += ["| column | meaning |", "|---|---|", *(f"| `{name}` | {meaning} |" for name, _, meaning in FEATURES), ""]
    sources: dict[str, int] = {}
    for one in counted.values():
        for name, kinds in one["sources"].items():
            sources[name] = sources.get(name, 0) + sum(kinds.values())
    parts += ["| source | rows |", "|---|---|", *(f"| {name} | {n:,} |" for name, n in sorted(sources.items())), ""]
    parts += _made(made) if made else []
    return "\n".join(parts)


def _yaml(about: About, files: Mapping[str, str], rows: int) -> Iterator[str]:
    yield "---"
    if about.name:
        yield f"pretty_name: {json.dumps(about.name, ensure_ascii=False)}"
    if about.license:
        yield f"license: {json.dumps(about.license)}"
    if about.languages:
        yield f"language: {json.dumps(list(about.languages))}"
    yield f"size_categories: [{json.dumps(next((name for limit, name in _SIZES if rows < limit), 'n>10M'))}]"
    yield "task_categories: [token-classification]"
    yield "tags: [process-supervision, critic-prm]"
    yield "configs:"
    yield "- config_name: default"
    yield "  default: true"
    yield "  data_files:"
    for split, file in files.items():
        yield f"  - {{split: {split}, path: {json.dumps(file)}}}"
    # Types are explicit because they cannot be inferred from a column that is null in the first rows. Sizes are omitted
    # because a reader that checks them fails as soon as a row is added.
    yield "dataset_info:"
    yield "  features:"
    for name, kind, _ in FEATURES:
        yield f"  - name: {name}"
        yield f"    {kind.strip('{}') if kind.count('{') < 2 else 'list: ' + kind[7:-1]}"
    yield "---"
    yield ""


def _made(made: Mapping[str, Any]) -> Iterator[str]:
    options = made["options"]
    yield "## How it was made"
    yield ""
    inputs = ", ".join(f"{one['name']} ({one['rows']:,} rows)" for one in made["inputs"])
    yield f"By critic-prm {made['version']} from {inputs}: {made['kept']:,} of {made['rows']:,} rows were kept."
    yield ""
    if options["gold"]:
        yield "Labels are the gold labels of these files."
    else:
        kind = "the share or mean probability of its judgements" if options["soft"] else "1 or 0 by the voted first error"
        agreed = f"{options['min_agreement']:.0%}"
        yield f"Labels are a critic's: a step's label is {kind}."
        yield f"Solutions were kept when at least {agreed} of the judgements named the same first error."
    yield ""
    for reason, kinds in made["dropped"].items():
        yield f"- left out: {sum(kinds.values()):,} {reason}"
    for kind, entry in made["acceptance"].items():
        yield f"- {kind} solutions: {entry['accepted']:,} of {entry['offered']:,} accepted ({entry['rate']:.1%})"
    if options["exclude"]:
        yield f"- problems of these files were left out: {', '.join(options['exclude'])}"
    yield ""


def _splits(folder: Path) -> Iterator[tuple[str, Path]]:
    for name, split in SPLITS.items():
        for pattern in (f"{name}.jsonl", f"{name}.parquet", f"data/{name}-*"):
            yield from ((split, path) for path in sorted(folder.glob(pattern))[:1] if path.stat().st_size)


def _accounts(folder: Path) -> dict[str, Any] | None:
    path = folder / "dataset.json"
    return json.loads(path.read_text("utf-8")) if path.is_file() else None
