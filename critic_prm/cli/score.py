"""critic-prm score: add P(correct) per step and the first error to trajectories."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from critic_prm.cli.options import InputOptions, ScoringOptions
from critic_prm.engine.options import RayOptions
from distill.settings import DEFAULT, LoadOptions

if TYPE_CHECKING:
    import asyncio

    from critic_prm.data.records.reading import RecordWriter


def score(
    critic: Annotated[str, typer.Argument(metavar="CRITIC", help="A verifier folder, `rules`, or provider/MODEL.")],
    source: Annotated[
        str, typer.Argument(metavar="INPUT", help="Trajectories in any format that `convert` reads; - is stdin.")
    ],
    out: Annotated[str, typer.Option("-o", "--out", metavar="FILE", help="Label file to write; - is stdout.")] = "-",
    *,
    reading: InputOptions,
    loading: LoadOptions,
    ray: RayOptions,
    judging: ScoringOptions,
) -> None:
    """Score every step of trajectories with a critic, usually a local verifier.

    Reads trajectories (INPUT). Writes each row with `p_correct` (per step, null if unjudged) and `first_error`; a verifier with
    several heads adds `spread`, the disagreement of its heads. The output is a label file without critiques, which `rank`,
    `report` and `analyze` read. A run report is written to FILE.run.json.

    Example: critic-prm score verifier solutions.jsonl -o scored.jsonl
    """
    from critic_prm.cli.running import Input, clients_of, run_watched
    from critic_prm.cli.swapped import check_order
    from critic_prm.data.critic import Critic
    from critic_prm.engine.options import on_workers
    from critic_prm.errors import UsageError
    from critic_prm.label.progress import RunStats
    from critic_prm.label.run import label_into

    opened: Critic
    check_order("score", critic, source)
    judging = on_workers(judging, ray)
    if loading == DEFAULT:
        from critic_prm.critics.open import open_critic

        opened = open_critic(critic, judging)
    else:
        from distill.verifier import load_verifier

        if ray.engine != "local":
            raise UsageError(
                "--backend, --dtype, --device and --base-url open a verifier in this process; leave out --engine ray"
            )
        opened = load_verifier(critic, profile=judging.profile, **asdict(loading))
    rows = Input(source, reading)
    tally = RunStats(total=rows.estimated_rows())

    async def body(sink: RecordWriter, stop: asyncio.Event) -> None:
        await label_into(_ScoreRows(sink), rows, opened, tally, workers=judging.max_connections, stop=stop, stats=opened.stats)
        tally.skipped = rows.skipped.count

    raise typer.Exit(run_watched(body, out, tally, opened.client, opened.close, opened.stats, clients_of(opened)))


@dataclass(frozen=True, slots=True)
class _ScoreRows:
    """Writes label rows without their judgements, with the spread of the heads if there are several."""

    sink: RecordWriter

    def write(self, row: dict[str, Any]) -> None:
        spread = [verdict.get("spread") for judgement in row.pop("judgements") for verdict in judgement["verdicts"]]
        if any(value is not None for value in spread):
            row["spread"] = spread
        self.sink.write(row)
