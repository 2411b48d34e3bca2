"""critic-prm dataset: label files in, a training set out; and what makes either of them better."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from critic_prm.cli import chatting, publishing, selecting
from critic_prm.terminal import safe_console

app = typer.Typer(help="Turn labels into a training set.", no_args_is_help=True)


@app.callback()
def dataset() -> None:
    """Turn labels into a training set."""


@app.command()
def build(
    labels: Annotated[
        list[str], typer.Argument(metavar="LABELS...", help="Label files, or trajectories with gold labels; - is stdin.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="The folder to write.")],
    gold: Annotated[bool, typer.Option("--gold", help="Build from gold labels instead of judgements.")] = False,
    min_agreement: Annotated[
        float,
        typer.Option(help="Keep solutions on whose first error at least this share of the judgements agrees."),
    ] = 0.5,
    balance: Annotated[
        str, typer.Option(help="Thin the train split: none, step (good and bad steps) or first-error (solutions).")
    ] = "none",
    reweight: Annotated[
        bool, typer.Option("--reweight", help="Weigh rows by the inverse of their class's acceptance rate.")
    ] = False,
    split: Annotated[str, typer.Option(help="The shares of problems in train, dev and test.")] = "0.9,0.05,0.05",
    seed: Annotated[int, typer.Option(help="Another seed splits and thins otherwise.", envvar="CRITIC_PRM_SEED")] = 0,
    neutral: Annotated[str, typer.Option(help="What a neutral step is taken for: good, bad or drop (no label).")] = "drop",
    soft: Annotated[bool, typer.Option("--soft/--hard", help="P(correct) as the judgements have it, or 1 and 0.")] = True,
    max_steps: Annotated[int | None, typer.Option(help="Leave out solutions with more steps.")] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Leave out the problems of this benchmark; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print dataset.json on stdout.")] = False,
) -> None:
    """Build train, dev and test.jsonl, and a dataset.json that accounts for every row.

    Only judgements that could be read count. Problems are split by their text, so the same problem is never on two sides, and
    adding rows later moves none of them.
    """

    from critic_prm.data.hashing import parse_shares
    from critic_prm.datasets.build import DatasetOptions, build_dataset
    from critic_prm.datasets.table import print_dataset

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
app.command("sft")(chatting.sft)
