"""critic-prm quickstart: run the full pipeline once, offline and without an API key."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from critic_prm.terminal import percent, plain_table, safe_console

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console, RenderableType

    from critic_prm.data import Critic, Label, Trajectory
    from critic_prm.metrics.scorecard import Metric

SHOWN = ("bakery-change", "bakery-change-one-free")
JUDGE = "recorded/example-judge"


def quickstart(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for all output.")] = Path("quickstart"),
    trajectories: Annotated[int, typer.Option("-n", min=300, help="Generate N arithmetic solutions.")] = 3000,
    seed: Annotated[int, typer.Option(help="Random seed; the same seed gives the same files.")] = 0,
) -> None:
    """Run the full pipeline once, offline and without an API key: label, build, distill, evaluate.

    Reads recorded replies that come with the package. Writes labels, a cache, a training set and a verifier to a folder (DIR).

    Example: critic-prm quickstart demo -n 3000
    """

    console = safe_console(highlight=False, markup=True)
    folder.mkdir(parents=True, exist_ok=True)

    console.rule("1. Verdicts: an LLM judge criticises every step")
    _verdicts(console, folder)
    console.rule(f"2. Labels: {trajectories:,} arithmetic solutions, judged by a rule critic")
    _labels(folder, trajectories, seed)
    console.rule("3. A training set, split by problem")
    _training_set(console, folder, seed)
    console.rule("4. A verifier, distilled from it")
    _distill(console, folder, seed)
    console.rule("5. What each critic is worth")
    _evaluate(console, folder)
    console.rule("What there is now, and what to try next")
    _farewell(console, folder)


def _verdicts(console: Console, folder: Path) -> None:
    import shutil

    from critic_prm.cli.running import Input, run_labelling
    from critic_prm.data.label_rows import read_labels
    from critic_prm.registry import resource

    shutil.copyfile(resource("cache.db.example"), folder / "critic-prm.db")
    source, out = str(resource("examples/trajectories.jsonl")), folder / "examples.labels.jsonl"
    run_labelling(Input(source), _judge(folder), str(out))
    for row in read_labels(out):
        if row.trajectory.id in SHOWN:
            console.print()
            console.print(picture(row.trajectory, row.label))
    console.print("\n[dim]These replies were recorded once and come with the package: nothing was asked, nothing paid.[/]")


def _judge(folder: Path) -> Critic:
    from critic_prm.critics.open import open_critic
    from critic_prm.engine.options import JudgeOptions

    return open_critic(JUDGE, JudgeOptions(style="stepwise", db=folder / "critic-prm.db", offline=True))


def _labels(folder: Path, trajectories: int, seed: int) -> None:
    from critic_prm.cli.running import Input, run_labelling
    from critic_prm.critics.open import open_critic
    from critic_prm.data.records.reading import write_records
    from critic_prm.data.trajectory import trajectory_to_json
    from critic_prm.generate.family import generate_family

    source = folder / "arithmetic.jsonl"
    write_records(source, (trajectory_to_json(made) for made in generate_family("arithmetic", trajectories, seed=seed)))
    out = str(folder / "arithmetic.labels.jsonl")
    run_labelling(Input(str(source)), open_critic("rules"), out)


def _training_set(console: Console, folder: Path, seed: int) -> None:
    from critic_prm.datasets.build import DatasetOptions, build_dataset
    from critic_prm.datasets.describe import print_dataset

    options = DatasetOptions(split=(0.8, 0.1, 0.1), seed=seed)
    summary = build_dataset([folder / "arithmetic.labels.jsonl"], folder / "dataset", options)
    print_dataset(summary, folder / "dataset", console)


def _distill(console: Console, folder: Path, seed: int) -> None:
    from distill.run import distill

    made = distill(folder / "dataset", folder / "verifier", seed=seed)
    console.print(f"{folder / 'verifier'}: a linear student, calibrated ({made.info['calibration']['method']}) on dev")


def _evaluate(console: Console, folder: Path) -> None:
    from critic_prm import signals
    from critic_prm.critics.open import open_critic
    from critic_prm.data.formats.convert import read_trajectories, write_trajectories
    from critic_prm.data.records.reading import read_records
    from critic_prm.evaluate.benchmarks import open_benchmark, read_benchmarks
    from critic_prm.evaluate.run import evaluate
    from critic_prm.registry import resource

    async def scores_of(critic: Critic, path: Path) -> Mapping[str, Metric]:
        try:
            return (await evaluate(critic, read_benchmarks(open_benchmark(f"labelled:{path}")))).scores.mean
        finally:
            await critic.close()

    held_out = {record.data["id"] for record in read_records(folder / "dataset" / "test.jsonl")}
    unseen = folder / "held-out.jsonl"
    write_trajectories(unseen, (t for t in read_trajectories(folder / "arithmetic.jsonl") if t.id in held_out))

    rows = []
    for what, path, critics in (
        ("held-out arithmetic", unseen, ("rules", "verifier")),
        ("other kinds of problems", resource("examples/trajectories.jsonl"), ("rules", "verifier", "the recorded judge")),
    ):
        for name in critics:
            judge = _judge(folder) if "judge" in name else open_critic(str(folder / name) if name == "verifier" else name)
            scores = signals.run(scores_of(judge, path))
            f1, auroc = scores["f1"], scores["auroc"].value
            shown = "-" if auroc is None or name == "rules" else f"{auroc:.3f}"
            rows.append((what, name, percent(f1.value, f1.low, f1.high), shown))
            what = ""
    table = plain_table(("", "critic", "F1 [95%]", "step AUROC"), rows)
    table.columns[1].justify = "left"
    console.print(table)
    console.print(
        "[dim]F1 is ProcessBench's: the harmonic mean of first errors found exactly and of right solutions left alone."
        " The verifier was trained on arithmetic only. For other problems, distill one on labels of your own.[/]"
    )


def _farewell(console: Console, folder: Path) -> None:
    for name, what in (
        ("examples.labels.jsonl", "verdicts and critiques for the examples"),
        ("critic-prm.db", "every reply; see `critic-prm cache -h`"),
        ("arithmetic.labels.jsonl", "what the rule critic said"),
        ("dataset/", "the training set, with its account"),
        ("verifier/", "the verifier, with its model card"),
    ):
        console.print(f"  {folder / name!s:36}{what}")
    console.print(f"\n  critic-prm score {folder / 'verifier'} {folder / 'held-out.jsonl'} | head -3", soft_wrap=True)
    console.print("  critic-prm label SOLUTIONS.jsonl -o labels.jsonl --judge openai/MODEL", soft_wrap=True)


MARKS = {
    "correct": "[green]right[/]",
    "incorrect": "[red]wrong[/]",
    "corrected": "[yellow]corrected[/]",
    "neutral": "[yellow]neutral[/]",
}


def picture(trajectory: Trajectory, label: Label) -> RenderableType:
    """Render the problem, then each step with the verdict and critique of the first judgement."""
    from rich.console import Group
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    verdicts = {verdict.step: verdict for judgement in label.judgements[:1] for verdict in judgement.verdicts}
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", style="bold")
    table.add_column(width=7)
    table.add_column()
    for index, step in enumerate(trajectory.steps):
        verdict = verdicts.get(index)
        mark = MARKS[verdict.value] if verdict else "[dim]-[/]"
        table.add_row(str(index), mark, escape(_short(step.text)))
        if verdict and verdict.critique:
            table.add_row("", "", Text(_short(verdict.critique), style="italic dim"))
    return Group(Text(_short(trajectory.problem), style="bold"), table)


def _short(text: str, limit: int = 300) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3].rstrip() + "..."
