"""Label trajectories in a script or a notebook, without asyncio."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from critic_prm.background import BACKGROUND
from critic_prm.critics.open import open_critic
from critic_prm.data.critic import Critic
from critic_prm.data.judgement import Prior
from critic_prm.data.label_rows import LabelledTrajectory, without_labels
from critic_prm.data.segment.rows import FEW
from critic_prm.data.tables import Labels, trajectories_from
from critic_prm.data.trajectory import Method, Trajectory
from critic_prm.errors import UsageError
from critic_prm.label.progress import RunStats, describe, watch
from critic_prm.label.run import Samples, card_of, label, parse_samples

if TYPE_CHECKING:
    from typing import Unpack

    from critic_prm.critics.keywords import JudgeKeywords


def label_all(
    trajectories: Any,
    judge: str | Critic,
    *,
    samples: int | str | Samples = 1,
    prior: Prior = "none",
    segment: Method = "auto",
    quiet: bool = False,
    **options: Unpack[JudgeKeywords],
) -> Labels:
    """Label trajectories and return them with their labels, in order. Works in scripts, threads and notebooks.

    `trajectories` is what `trajectories_from` reads: a file, a DataFrame, a Dataset, or a list of trajectories or rows. `judge`
    is a critic or its name; `options` are those of `open_critic`, for a name only. `samples` is the number of judgements per
    trajectory, or "auto" or "bayes" as on the command line. `segment` says where solutions of one text are split into steps; a
    judge is not paid for solutions that all have one step, unless it is "none". Progress and a summary with the cost go to
    stderr unless `quiet`.

    A row that could not be judged has the label's `status`, and no scores. Errors that stop the whole run are raised
    (ConfigError, BudgetError); all replies received until then are in the cache, so a second call does not pay for them. After
    "interrupt", requests in flight are finished first.
    """
    if options and not isinstance(judge, str):
        raise UsageError(f"{', '.join(options)}: the judge is already open; give its options to open_critic")
    policy = Samples(samples, samples) if isinstance(samples, int) else samples
    rows = trajectories_from(trajectories, segment=segment)
    stop = asyncio.Event()
    run = _run(rows, judge, options, parse_samples(policy) if isinstance(policy, str) else policy, prior, quiet, stop, segment)
    return BACKGROUND.run(run, stop.set)


async def _run(
    rows: Sequence[Trajectory],
    judge: str | Critic,
    options: JudgeKeywords,
    samples: Samples,
    prior: Prior,
    quiet: bool,
    stop: asyncio.Event,
    segment: Method,
) -> Labels:
    critic = open_critic(judge, **options) if isinstance(judge, str) else judge
    undivided = segment != "none" and len(rows) >= FEW and all(len(row.steps) == 1 for row in rows)
    if undivided and (critic.client is not None or critic.judges):
        raise UsageError(
            "every solution has one step, so a judge would be paid for verdicts on whole solutions; say where steps begin with"
            " segment='lines', 'paragraphs', 'numbered', 'sentences' or 'thoughts'; accept it with segment='none'"
        )
    client, tally, found = critic.client, RunStats(total=len(rows)), list[LabelledTrajectory]()
    card = card_of(critic, prior)
    workers = 64 if client is None else client.options.max_connections
    watching = None if quiet else asyncio.create_task(watch(tally, client))
    try:
        clean = map(without_labels, rows)
        async for trajectory, labelled in label(clean, critic, samples=samples, prior=prior, workers=workers, stop=stop):
            found.append(LabelledTrajectory(trajectory, labelled, card))
            tally.add(labelled)
    finally:
        if watching is not None:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            print(describe(tally, client, final=True), file=sys.stderr, flush=True)
        if isinstance(judge, str):
            await critic.close()
    return Labels(found)
