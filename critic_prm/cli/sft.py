"""critic-prm dataset sft, and the sft objective of distill: train a small judge on critiques."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from critic_prm.datasets.decontaminate import DecontaminateOptions
from critic_prm.option import Option
from critic_prm.terminal import plain_table, safe_console
from distill.settings import ChatOptions, TrainingSettings

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True)
class SftOptions:
    """What the chats are made from, besides label files."""

    db: Path | None = None
    """Train on the raw replies in this cache instead of the critiques in LABELS."""
    tokenizer: str | None = None
    """Count tokens with this model's tokenizer; default: estimate them."""
    exclude: Annotated[tuple[str, ...], Option(metavar="FILE")] = ()
    """Leave out problems of this benchmark, by the rules of `dataset decontaminate`: copies, near copies, and the same with
    other names and numbers. May be repeated."""
    as_json: Annotated[bool, Option(("--json",))] = False
    """Print sft.json to stdout."""


def sft(
    labels: Annotated[
        list[str], typer.Argument(metavar="LABELS...", help="Label files of a judge, or published critiques with gold labels.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Folder to write.")],
    *,
    given: SftOptions,
    options: ChatOptions,
    same: DecontaminateOptions,
) -> None:
    """Write verified critiques as chats for supervised fine-tuning of a small judge.

    Reads label files (LABELS). Writes train, dev and test chats (`messages`, a format that trainers of chat models read) and
    sft.json to a folder (-o). A critique is kept if it could be parsed, matches the label, judges every step up to the first
    error, passes the critique checks, can be parsed again in the target style, and is short enough. Problems are split as in
    `dataset build`.

    Example: critic-prm dataset sft labels.jsonl -o chats
    """
    from distill.sft.chats import MARK, build_chats, counted_by, stored_in

    counting, stored = counted_by(given.tokenizer), stored_in(given.db)
    summary = build_chats(labels, out, options, exclude=given.exclude, same=same, counting=counting, stored=stored)
    print_chats(summary, out, safe_console(stderr=True))
    if given.as_json:
        typer.echo((out / MARK).read_text(encoding="utf-8"), nl=False)


def print_chats(summary: Mapping[str, Any], out: Path, console: Console) -> None:
    """Print one row per filter, then the content of the splits, then the warnings."""
    from critic_prm.datasets.decontaminate import contamination_line

    style = summary["style"]
    console.print(
        f"{out}: chats in the style {style['name']}, {summary['answers']}; tokens by {summary['tokens_by']}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    rows = []
    for stage in summary["funnel"]:
        why = ", ".join(f"{n:,} {reason}" for reason, n in sorted(stage["stopped"].items(), key=lambda item: -item[1]))
        rows.append((stage["stage"], *(f"{stage[name]:,}" for name in ("in", "out", "erroneous", "correct")), why))
    table = plain_table(("filter", "in", "kept", "erroneous", "correct", "left out"), rows)
    table.columns[-1].justify = "left"
    console.print(table)
    rows = []
    for name, split in summary["splits"].items():
        mean = f"{split['tokens'] / split['chats']:,.0f}" if split["chats"] else "-"
        counts = (f"{split[column]:,}" for column in ("chats", "erroneous", "correct"))
        rows.append((name, *counts, mean, f"{split['longest']:,}"))
    console.print(plain_table(("split", "chats", "erroneous", "correct", "mean tokens", "longest"), rows))
    if thinned := summary["splits"]["train"]["thinned"]:
        console.print(f"balance: {thinned:,} chats of the larger class left out of train", highlight=False)
    if summary["excluded"]:
        told = contamination_line(summary["excluded"])
        console.print(told, highlight=False, markup=False, soft_wrap=True)
    for warning in summary["warnings"]:
        console.print(f"warning: {warning}", style="yellow", highlight=False, markup=False, soft_wrap=True)


def train_judge(
    data: Path, out: Path, base: str, settings: TrainingSettings, judge_dev: int, seed: int, say: Callable[..., None]
) -> None:
    """Train a small judge on chats and print its loss, its accuracy and how to serve it."""
    from critic_prm.errors import UsageError
    from distill.sft.run import distill_sft

    if base == "linear":
        raise UsageError("--objective sft needs a causal language model: --student BASE")
    result = distill_sft(data, out, base, settings, measure_on=judge_dev, seed=seed, say=say)
    dev, style = result.metrics["dev"], result.info["style"]
    lines = [f"{out}: loss per token on dev {dev['loss']:.3f}"]
    if judging := dev.get("judging"):
        shares = {name: "-" if judging[name] is None else f"{judging[name]:.0%}" for name in ("read", "accuracy")}
        lines.append(
            f"as a judge of {judging['solutions']} solutions of dev: {shares['read']} could be read,"
            f" {shares['accuracy']} had the right first error"
        )
    if style is not None:
        lines.append(f"serve it with: vllm serve {out}; ask it with: critic-prm label SOLUTIONS --judge vllm/{out}")
        lines.append(f"    --style {out}/{style['name']}.jinja --temperature 0 --max-tokens {result.info['max_tokens']}")
    for line in lines:
        say(line, style=None)
