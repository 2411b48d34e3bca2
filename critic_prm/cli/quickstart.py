"""critic-prm quickstart: the whole way once, offline: verdicts, labels, training set, verifier, evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console


SHOWN = ("bakery-change", "bakery-change-one-free")
JUDGE = "recorded/example-judge"


def quickstart(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to put what is made.")] = Path("quickstart"),
    trajectories: Annotated[int, typer.Option("-n", min=200, help="How many arithmetic trajectories to make.")] = 3000,
    seed: Annotated[int, typer.Option(help="The same seed makes the same files.")] = 0,
) -> None:
    """The whole way once, offline and without a key: label, build a training set, distill, evaluate."""
    from rich.console import Console

    console = Console(highlight=False)
    folder.mkdir(parents=True, exist_ok=True)
    examples = folder / "examples.labels.jsonl"
    labels, dataset, verifier = folder / "arithmetic.labels.jsonl", folder / "dataset", folder / "verifier"

    _verdicts(console, folder, examples)
    _make_labels(console, folder, labels, trajectories, seed)
    _training_set(console, labels, dataset, seed)
    _distill(console, dataset, verifier, seed)
    _evaluate(console, dataset, verifier)
    console.print(f"\n[bold]What there is now[/], in {folder}/")
    for name, what in (
        (examples.name, "verdicts and critiques for the examples"),
        (labels.name, "rule-made labels of the arithmetic trajectories"),
        ("dataset/", "the training set, split by problem; dataset.json says what was kept"),
        ("verifier/", "the distilled verifier, with its model card"),
    ):
        console.print(f"  {name:26}{what}")
    console.print("\n[bold]Next[/]: score solutions of your own, or label them with a judge of your own")
    console.print(f"  critic-prm score {verifier} YOUR.jsonl")
    console.print("  critic-prm label YOUR.jsonl -o labels.jsonl --judge openai/MODEL --samples 4")


def _verdicts(console: Console, folder: Path, out: Path) -> None:
    import shutil

    from critic_prm.cli.picture import picture
    from critic_prm.cli.running import run_labelling
    from critic_prm.critic import Judging, open_critic
    from critic_prm.formats import read_trajectories
    from critic_prm.labels import read_labels
    from critic_prm.resources import resource

    console.rule("1. Verdicts: an LLM judge's critique of every step")
    db = folder / "critic-prm.db"
    shutil.copyfile(resource("cache.db.example"), db)
    source = str(resource("examples/trajectories.jsonl"))
    judge = open_critic(JUDGE, Judging(style="stepwise", db=db, offline=True))
    run_labelling(read_trajectories(source), judge, str(out), source=source)
    for row in read_labels(out):
        if row.trajectory.id in SHOWN:
            console.print()
            console.print(picture(row.trajectory, row.label))
    console.print("\n[dim]Recorded example replies, from the cache that comes with the package: nothing was asked or paid.[/]")


def _make_labels(console: Console, folder: Path, out: Path, trajectories: int, seed: int) -> None:
    from critic_prm.cli.running import run_labelling
    from critic_prm.critic import open_critic
    from critic_prm.formats import read_trajectories
    from critic_prm.generate.family import generate_family
    from critic_prm.records import write_records
    from critic_prm.trajectory import trajectory_to_json

    console.rule(f"2. Labels: {trajectories:,} arithmetic solutions, judged by the rule critic")
    source = folder / "arithmetic.jsonl"
    write_records(source, (trajectory_to_json(t) for t in generate_family("arithmetic", trajectories, seed=seed)))
    run_labelling(read_trajectories(source), open_critic("rules"), str(out), source=str(source))


def _training_set(console: Console, labels: Path, out: Path, seed: int) -> None:
    from critic_prm.dataset import DatasetOptions, build_dataset

    console.rule("3. A training set: split by problem, steps after the first error left open")
    build_dataset([labels], out, DatasetOptions(split=(0.8, 0.1, 0.1), seed=seed), say=console.print)


def _distill(console: Console, dataset: Path, out: Path, seed: int) -> None:
    from distill.run import distill

    console.rule("4. A verifier: small, local, calibrated")
    distill(dataset, out, seed=seed, say=lambda line: console.print(line, style="dim"))


def _evaluate(console: Console, dataset: Path, verifier: Path) -> None:
    console.rule("5. What it is worth")
