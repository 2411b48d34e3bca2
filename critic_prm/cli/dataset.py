"""critic-prm dataset: build, filter, mix and export training sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from critic_prm.cli import publishing, selecting, sft
from critic_prm.terminal import safe_console

app = typer.Typer(help="Build training sets from labels.", no_args_is_help=True)


@app.callback()
def dataset() -> None:
    """Build training sets from labels."""


@app.command()
def build(
    labels: Annotated[
        list[str], typer.Argument(metavar="LABELS...", help="Label files, or trajectories with gold labels; - is stdin.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Folder to write.")],
    gold: Annotated[bool, typer.Option("--gold", help="Use gold labels instead of judgements.")] = False,
    min_agreement: Annotated[
        float,
        typer.Option(help="Keep solutions if at least this share of the judgements agrees on the first error."),
    ] = 0.5,
    balance: Annotated[
        str,
        typer.Option(
            help="Balance the train split by dropping rows: none, step (good and bad steps) or first-error (solutions)."
        ),
    ] = "none",
    reweight: Annotated[
        bool, typer.Option("--reweight", help="Weight rows by the inverse acceptance rate of their class.")
    ] = False,
    split: Annotated[str, typer.Option(help="Shares of problems in train, dev and test.")] = "0.9,0.05,0.05",
    seed: Annotated[int, typer.Option(help="Random seed of the split and of balancing.", envvar="CRITIC_PRM_SEED")] = 0,
    neutral: Annotated[str, typer.Option(help="Treat neutral steps as good or bad, or drop their labels.")] = "drop",
    soft: Annotated[bool, typer.Option("--soft/--hard", help="Labels: P(correct) from the judgements, or 1 and 0.")] = True,
    max_steps: Annotated[int | None, typer.Option(help="Leave out solutions with more than N steps.")] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Leave out problems of this benchmark; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print dataset.json to stdout.")] = False,
) -> None:
    """Build a training set from labels.

    Reads label files, or trajectories with gold labels. Writes train.jsonl, dev.jsonl, test.jsonl and dataset.json, which
    accounts for every row, to a folder (-o). Only judgements with status ok are used. Problems are split by a hash of their
    text: the same problem is never in two splits, and rows added later move no problem to another split.

    Example: critic-prm dataset build labels.jsonl -o dataset --min-agreement 0.75
    """

    from critic_prm.data.hashing import parse_shares
    from critic_prm.datasets.build import DatasetOptions, build_dataset
    from critic_prm.datasets.describe import print_dataset

    options = DatasetOptions(
        gold=gold,
        min_agreement=min_agreement,
        soft=soft,
        neutral=neutral,  # type: ignore[arg-type]  # checked by DatasetOptions
        balance=balance,  # type: ignore[arg-type]
        reweight=reweight,
        split=parse_shares(split),
        seed=seed,
        max_steps=max_steps,
    )
    summary = build_dataset(labels, out, options, exclude=exclude or ())
    print_dataset(summary, out, safe_console(stderr=True))
    if as_json:
        typer.echo((out / "dataset.json").read_text(encoding="utf-8"), nl=False)


for _name in ("consensus", "filter", "dedupe", "decontaminate", "mix"):
    app.command(_name)(getattr(selecting, "filter_" if _name == "filter" else _name))
for _name in ("stats", "card", "export"):
    app.command(_name)(getattr(publishing, _name))
app.command("sft")(sft.sft)
