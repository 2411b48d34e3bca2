"""critic-prm distill: train a small local verifier, or a small judge, on a training set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from critic_prm.terminal import safe_console

MODEL, GOAL, TEXT, RUN = "A transformer's model", "What it learns", "What it reads", "How it trains"


def distill(
    data: Annotated[Path, typer.Argument(metavar="DIR", help="Training set; with --objective sft, chats or a label file.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="VERIFIER", help="Folder to write the verifier to.")],
    student: Annotated[
        str,
        typer.Option(
            metavar="linear|BASE",
            help="linear; or BASE, a causal model or encoder by hub name or folder; hybrid:BASE, linear plus probes on a"
            " frozen base; implicit:BASE, trained on outcomes alone.",
        ),
    ] = "linear",
    objective: Annotated[
        str,
        typer.Option(
            metavar="scores|sft", help="scores: predict a score per step; sft: train a small judge to write critiques."
        ),
    ] = "scores",
    seed: Annotated[int, typer.Option(help="Random seed; the same seed and data give the same verifier.")] = 0,
    layers: Annotated[int | None, typer.Option(rich_help_panel=MODEL, help="Keep the first N layers of the base.")] = None,
    freeze: Annotated[
        str,
        typer.Option(
            rich_help_panel=MODEL, metavar="WHAT", help="Weights to freeze: none, embeddings, all, or the first N layers."
        ),
    ] = "none",
    lora: Annotated[
        str, typer.Option(rich_help_panel=MODEL, metavar="r=16", help="Train LoRA adapters and merge them at the end.")
    ] = "",
    heads: Annotated[int, typer.Option(rich_help_panel=MODEL, help="Number of heads; their spread is the uncertainty.")] = 1,
    loss: Annotated[
        str,
        typer.Option(rich_help_panel=GOAL, help="Loss: soft, ce, mse, beta-binomial or pqm; on outcomes: freeprm or implicit."),
    ] = "soft",
    domain_weights: Annotated[
        str, typer.Option(rich_help_panel=GOAL, metavar="SOURCE=W,...", help="Weight of rows by source; 1 for other sources.")
    ] = "",
    trusted: Annotated[
        str,
        typer.Option(
            rich_help_panel=GOAL, metavar="FILE|SOURCE", help="Learn source weights from these rows, which are not trained on."
        ),
    ] = "",
    sources: Annotated[
        str,
        typer.Option(
            rich_help_panel=GOAL, metavar="PATTERN,...", help="For hybrid: sources for which the base is used; default: all."
        ),
    ] = "",
    label_smoothing: Annotated[float, typer.Option(rich_help_panel=GOAL, help="Amount of label smoothing, from 0 to 1.")] = 0.0,
    class_weights: Annotated[
        tuple[float, float] | None,
        typer.Option(rich_help_panel=GOAL, metavar="WRONG RIGHT", help="Weights of wrong and right steps."),
    ] = None,
    context_format: Annotated[
        str, typer.Option(rich_help_panel=TEXT, help="Text layout around the steps: default, trl, qwen or math-shepherd.")
    ] = "default",
    chat_template: Annotated[
        bool, typer.Option("--chat-template", rich_help_panel=TEXT, help="Put the problem into the base's chat template.")
    ] = False,
    max_length: Annotated[
        int | None, typer.Option(rich_help_panel=TEXT, help="Maximum tokens per sequence; default: 2048, with sft 8192.")
    ] = None,
    allow_dropped: Annotated[
        float, typer.Option(rich_help_panel=TEXT, help="Share of labels that may be lost to --max-length.")
    ] = 0.01,
    lr: Annotated[
        float | None,
        typer.Option(rich_help_panel=RUN, help="Learning rate; default: 2e-5, with --lora 2e-4, for heads alone 1e-3."),
    ] = None,
    weight_decay: Annotated[float, typer.Option(rich_help_panel=RUN, help="Weight decay, applied to matrices only.")] = 0.01,
    epochs: Annotated[int, typer.Option(rich_help_panel=RUN, help="Maximum number of epochs.")] = 3,
    batch_tokens: Annotated[int, typer.Option(rich_help_panel=RUN, help="Tokens per optimizer step.")] = 8192,
    micro_tokens: Annotated[
        int, typer.Option(rich_help_panel=RUN, help="Tokens per forward pass and process, with padding; 0: automatic.")
    ] = 0,
    schedule: Annotated[
        str, typer.Option(rich_help_panel=RUN, help="Learning-rate schedule: cosine, linear or constant.")
    ] = "cosine",
    warmup: Annotated[float, typer.Option(rich_help_panel=RUN, help="Share of steps used for warmup.")] = 0.05,
    clip: Annotated[float, typer.Option(rich_help_panel=RUN, help="Maximum gradient norm; 0 turns clipping off.")] = 1.0,
    evaluations: Annotated[int, typer.Option(rich_help_panel=RUN, help="Evaluations on dev per epoch.")] = 1,
    patience: Annotated[
        int, typer.Option(rich_help_panel=RUN, help="Stop after N evaluations without a better F1; 0: never.")
    ] = 3,
    dtype: Annotated[str, typer.Option(rich_help_panel=RUN, help="Precision: auto, fp32 or bf16.")] = "auto",
    device: Annotated[str, typer.Option(rich_help_panel=RUN, help="auto, cpu, cuda, or a device such as cuda:1.")] = "auto",
    checkpointing: Annotated[
        bool, typer.Option("--checkpointing", rich_help_panel=RUN, help="Recompute activations to save memory.")
    ] = False,
    save_minutes: Annotated[float, typer.Option(rich_help_panel=RUN, help="Minutes between checkpoints.")] = 5.0,
    judge_dev: Annotated[
        int, typer.Option(rich_help_panel=RUN, help="For sft: judge N dev solutions at the end; 0: none.")
    ] = 32,
) -> None:
    """Train a small local verifier, or a small judge (--objective sft), on a training set.

    Reads a training set from `dataset build`, or for sft chats from `dataset sft` (DIR). Writes the verifier folder (-o) and
    prints metrics per split. Run the same command again to resume the training of a transformer. To use several GPUs or
    processes: torchrun --nproc-per-node N -m critic_prm distill ...

    Example: critic-prm distill dataset -o verifier --student Qwen/Qwen2.5-0.5B
    """
    import os

    from rich.table import Table

    from critic_prm.cli.chatting import objectives, run_sft
    from distill.run import FEW
    from distill.run import distill as run
    from distill.training.settings import TrainingSettings
    from distill.types import choose_student

    usual = objectives(objective)
    length = usual if max_length is None else max_length
    settings = TrainingSettings(
        layers=layers, freeze=freeze, lora=lora, heads=heads, loss=loss, domain_weights=domain_weights,
        trusted=trusted, label_smoothing=label_smoothing, class_weights=class_weights, layout=context_format,
        chat_template=chat_template, max_length=length,
        allow_dropped=allow_dropped, lr=lr, weight_decay=weight_decay, epochs=epochs, batch_tokens=batch_tokens,
        micro_tokens=micro_tokens, schedule=schedule, warmup=warmup, clip=clip, evaluations=evaluations, patience=patience,
        dtype=dtype, device=device, checkpointing=checkpointing, save_minutes=save_minutes,
    )  # fmt: skip
    console = safe_console(stderr=True, quiet=os.environ.get("RANK", "0") != "0")
    if objective == "sft":
        run_sft(data, out, student, settings, judge_dev, seed, console)
        return
    chosen_student = choose_student(student, settings, tuple(filter(None, sources.split(","))))
    result = run(
        data, out, student=chosen_student, seed=seed,
        say=lambda line: console.print(line, style="dim", highlight=False, markup=False, soft_wrap=True),
    )  # fmt: skip
    columns = {"solutions": "rows", "steps": "steps", "auroc": "AUROC", "brier": "Brier", "ece": "ECE", "f1": "F1"}
    columns |= {"erroneous": "err.", "correct": "corr."}
    chosen = result.info["threshold_from"]
    word = "not chosen" if chosen["f1"] is None else "chosen on dev"
    console.print(f"{out}: threshold {chosen['threshold']:.4f}, {word}", highlight=False, markup=False)
    table = Table("split", *columns.values(), box=None, padding=(0, 2, 0, 0))
    for column in table.columns[1:]:
        column.justify = "right"
    for split, metrics in result.metrics.items():
        cells = (metrics[name] for name in columns)
        table.add_row(split, *("-" if v is None else f"{v:.3f}" if isinstance(v, float) else str(v) for v in cells))
    console.print(table)
    console.print("F1: of err. (first errors found exactly) and corr. (right ones left alone)", highlight=False, style="dim")
    known = f"{chosen['solutions']} solutions of dev with a known first error"
    if chosen["f1"] is None:
        typer.echo(f"warning: the {known} are all erroneous or all correct, so the threshold is 0.5 by default", err=True)
    elif chosen["solutions"] < FEW:
        typer.echo(
            f"warning: the threshold rests on only {known}; make dev larger, for example with"
            " critic-prm dataset build --split 0.8,0.1,0.1",
            err=True,
        )
