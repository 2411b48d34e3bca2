"""critic-prm score: add P(correct) per step and the first error to trajectories."""

from __future__ import annotations

from typing import Annotated

import typer

from critic_prm import signals
from critic_prm.cli.options import InputOptions, TrustOptions
from critic_prm.engine.options import RayOptions

HOW = "How a transformer verifier is computed"


def score(
    critic: Annotated[str, typer.Argument(metavar="CRITIC", help="A verifier folder, `rules`, or provider/MODEL.")],
    source: Annotated[
        str, typer.Argument(metavar="INPUT", help="Trajectories in any format that `convert` reads; - is stdin.")
    ],
    out: Annotated[str, typer.Option("-o", "--out", metavar="FILE", help="Label file to write; - is stdout.")] = "-",
    backend: Annotated[
        str, typer.Option(help="Backend of a transformer verifier: torch, onnx (after `export`) or vllm.", rich_help_panel=HOW)
    ] = "torch",
    dtype: Annotated[
        str, typer.Option(help="fp32, bf16, or auto: bf16 on a GPU that supports it.", rich_help_panel=HOW)
    ] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, or a device such as cuda:1.", rich_help_panel=HOW)] = "auto",
    base_url: Annotated[
        str | None,
        typer.Option("--base-url", help="URL of a vLLM server that serves the verifier folder.", rich_help_panel=HOW),
    ] = None,
    *,
    reading: InputOptions,
    ray: RayOptions,
    judging: TrustOptions,
) -> None:
    """Score every step of trajectories with a critic, usually a local verifier.

    Reads trajectories (INPUT). Writes each row with `p_correct` (per step, null if unjudged) and `first_error`; a verifier with
    several heads adds `spread`, the disagreement of its heads. The output is a label file without critiques, which `rank`,
    `report` and `analyze` read.

    Example: critic-prm score verifier solutions.jsonl -o scored.jsonl
    """
    from critic_prm.cli.running import Input
    from critic_prm.critics.open import open_critic
    from critic_prm.data.critic import Critic
    from critic_prm.data.label_rows import label_row
    from critic_prm.data.records.reading import RecordWriter
    from critic_prm.engine.options import on_workers
    from critic_prm.errors import UsageError
    from critic_prm.label.run import label
    from distill.verifier import load_verifier

    plain = (backend, dtype, device, base_url) == ("torch", "auto", "auto", None)
    if ray.engine != "local" and not plain:
        raise UsageError("--backend, --dtype, --device and --base-url are for a verifier in this process, not for a cluster")
    judging = on_workers(judging, ray)
    rows = Input(source, reading)

    def as_asked() -> Critic:
        return load_verifier(critic, backend=backend, dtype=dtype, device=device, base_url=base_url)

    async def run() -> int:
        failed = 0
        opened: Critic = open_critic(critic, judging) if plain else as_asked()
        try:
            with RecordWriter(out) as sink:
                async for trajectory, found in label(rows, opened, workers=judging.max_connections):
                    row = label_row(trajectory, found, opened.card)
                    spreads = [verdict.spread for j in found.judgements for verdict in j.verdicts]
                    if any(spread is not None for spread in spreads):
                        row["spread"] = spreads
                    del row["judgements"]
                    failed += found.status != "ok"
                    sink.write(row)
            typer.echo(f"{sink.rows} trajectories scored" + (f", {failed} without a judgement" if failed else ""), err=True)
        finally:
            await opened.close()
        return 3 if failed or rows.skipped.count else 0

    raise typer.Exit(signals.run(run()))
