"""critic-prm dataset sft, and the sft objective of distill: train a small judge on critiques."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from critic_prm.terminal import safe_console

if TYPE_CHECKING:
    from rich.console import Console

    from distill.training.settings import TrainingSettings

LENGTHS = {"scores": 2048, "sft": 8192}
"""The objectives of distill, with their default of --max-length in tokens."""


def sft(
    labels: Annotated[
        list[str], typer.Argument(metavar="LABELS...", help="Label files of a judge, or published critiques with gold labels.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Folder to write.")],
    style: Annotated[
        str | None, typer.Option(help="Style in which the student will be asked; default: the judge's style.")
    ] = None,
    db: Annotated[
        Path | None, typer.Option(help="Train on the raw replies in this cache instead of the critiques in LABELS.")
    ] = None,
    against: Annotated[
        str, typer.Option(help="Labels that a critique must match: gold, votes (of its row), or auto (gold if known).")
    ] = "auto",
    min_agreement: Annotated[
        float, typer.Option(help="Use votes only if this share of the judgements agrees on the first error.")
    ] = 0.5,
    critiques: Annotated[
        str, typer.Option(help="Reject empty, short, copied or looping critiques: off, error (of the wrong step) or all.")
    ] = "all",
    min_words: Annotated[int, typer.Option(help="A critique with fewer words is short.")] = 3,
    max_tokens: Annotated[int, typer.Option(help="Maximum tokens per answer.")] = 4096,
    tokenizer: Annotated[
        str | None, typer.Option(help="Count tokens with this model's tokenizer; default: estimate them.")
    ] = None,
    chains: Annotated[int, typer.Option(help="Keep at most N judgements per solution; 0: all.")] = 1,
    balance: Annotated[
        bool, typer.Option("--balance/--no-balance", help="Balance train: as many answers with an error as without.")
    ] = True,
    split: Annotated[str, typer.Option(help="Shares of problems in train, dev and test.")] = "0.9,0.05,0.05",
    seed: Annotated[int, typer.Option(help="Random seed of the split and of balancing.", envvar="CRITIC_PRM_SEED")] = 0,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Leave out problems of this benchmark; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print sft.json to stdout.")] = False,
) -> None:
    """Write verified critiques as chats for supervised fine-tuning of a small judge.

    Reads label files (LABELS). Writes train, dev and test chats (`messages`, a format that trainers of chat models read) and
    sft.json to a folder (-o). A critique is kept if it could be parsed, matches the label, judges every step up to the first
    error, passes the critique checks, can be parsed again in the target style, and is short enough. Problems are split as in
    `dataset build`.

    Example: critic-prm dataset sft labels.jsonl -o chats
    """

    from critic_prm.data.hashing import parse_shares
    from distill.sft.chains import ChainOptions
    from distill.sft.chats import MARK, ChatOptions, build_chats, counted_by, stored_in
    from distill.sft.table import print_chats

    chain = ChainOptions(
        against=against,  # type: ignore[arg-type]  # checked by ChainOptions
        min_agreement=min_agreement,
        critiques=critiques,  # type: ignore[arg-type]
        min_words=min_words,
        max_tokens=max_tokens,
    )
    options = ChatOptions(style, chain, chains, balance, parse_shares(split), seed)
    summary = build_chats(labels, out, options, exclude=exclude or (), counting=counted_by(tokenizer), stored=stored_in(db))
    print_chats(summary, out, safe_console(stderr=True))
    if as_json:
        typer.echo((out / MARK).read_text(encoding="utf-8"), nl=False)


def objectives(name: str) -> int:
    """Return the default maximum of tokens per sequence for an objective. Raises UsageError for an unknown objective."""
    from critic_prm.errors import UsageError

    if name not in LENGTHS:
        raise UsageError(f"--objective is {name!r}; it is {' or '.join(LENGTHS)}")
    return LENGTHS[name]


def run_sft(data: Path, out: Path, base: str, settings: TrainingSettings, judge_dev: int, seed: int, console: Console) -> None:
    """Train a small judge on chats and print its loss, its accuracy and how to serve it."""
    from critic_prm.errors import UsageError
    from distill.sft.run import distill_sft

    if base == "linear":
        raise UsageError("--objective sft needs a causal language model: --student BASE")

    def say(line: str) -> None:
        console.print(line, style="dim", highlight=False, markup=False, soft_wrap=True)

    result = distill_sft(data, out, base, settings, measure_on=judge_dev, seed=seed, say=say)
    dev, style = result.metrics["dev"], result.info["style"]
    lines = [f"{out}: loss a token on dev {dev['loss']:.3f}"]
    if found := dev.get("judging"):
        shares = {name: "-" if found[name] is None else f"{found[name]:.0%}" for name in ("read", "accuracy")}
        lines.append(
            f"as a judge of {found['solutions']} solutions of dev: {shares['read']} could be read,"
            f" {shares['accuracy']} had the right first error"
        )
    if style is not None:
        lines.append(f"serve it with: vllm serve {out}; ask it with: critic-prm label SOLUTIONS --judge vllm/{out}")
        lines.append(f"    --style {out}/{style['name']}.jinja --temperature 0 --max-tokens {result.info['max_tokens']}")
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
