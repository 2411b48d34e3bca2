"""critic-prm dataset sft: label files in, chats out; critic-prm distill --objective sft: chats in, a small judge out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from critic_prm.terminal import safe_console

if TYPE_CHECKING:
    from rich.console import Console

    from distill.training.settings import TrainingSettings

LENGTHS = {"scores": 2048, "sft": 8192}
"""The objectives of distill, and the tokens of a sequence where --max-length is not given."""


def sft(
    labels: Annotated[
        list[str], typer.Argument(metavar="LABELS...", help="Label files of a judge, or published chains with gold labels.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="The folder to write.")],
    style: Annotated[
        str | None, typer.Option(help="The style the student will be asked in; the judge's own when not given.")
    ] = None,
    db: Annotated[
        Path | None, typer.Option(help="Learn the replies themselves, from this cache, instead of the critiques in LABELS.")
    ] = None,
    against: Annotated[
        str, typer.Option(help="What a chain must equal: gold, the votes of its row, or auto: gold where there is gold.")
    ] = "auto",
    min_agreement: Annotated[
        float, typer.Option(help="Votes count where this share of the judgements names the same first error.")
    ] = 0.5,
    critiques: Annotated[
        str, typer.Option(help="No empty, short, copied or looping critique: off, error (of that step), or all.")
    ] = "all",
    min_words: Annotated[int, typer.Option(help="What a short critique has fewer of.")] = 3,
    max_tokens: Annotated[int, typer.Option(help="The longest answer.")] = 4096,
    tokenizer: Annotated[
        str | None, typer.Option(help="Count tokens by this model's tokenizer; otherwise they are estimated.")
    ] = None,
    chains: Annotated[int, typer.Option(help="Most judgements to keep of one solution; 0 for all.")] = 1,
    balance: Annotated[
        bool, typer.Option("--balance/--no-balance", help="Thin train until as many answers find an error as do not.")
    ] = True,
    split: Annotated[str, typer.Option(help="The shares of problems in train, dev and test.")] = "0.9,0.05,0.05",
    seed: Annotated[int, typer.Option(help="Another seed splits and thins otherwise.", envvar="CRITIC_PRM_SEED")] = 0,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Leave out the problems of this benchmark; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print sft.json on stdout.")] = False,
) -> None:
    """Write the critiques worth learning as chats (`messages`), which any trainer of chat models reads.

    A chain is kept when it could be read, equals the label, judges every step up to the first error, has sound critiques, reads
    back in the style's own form, and is short enough. Problems are split as `dataset build` splits them.
    """

    from critic_prm.data.hashing import parse_shares
    from distill.sft.chains import ChainOptions
    from distill.sft.chats import MARK, ChatOptions, build_chats
    from distill.sft.counting import counted_by, stored_in
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
    """The tokens of a sequence that suit an objective. Raises UsageError for one that does not exist."""
    from critic_prm.errors import UsageError

    if name not in LENGTHS:
        raise UsageError(f"--objective is {name!r}; it is {' or '.join(LENGTHS)}")
    return LENGTHS[name]


def run_sft(data: Path, out: Path, base: str, settings: TrainingSettings, judge_dev: int, seed: int, console: Console) -> None:
    """Train, and say what came of it."""
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
