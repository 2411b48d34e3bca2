"""Measure outcome uncertainty after each shared solution prefix: spread and tail of the scores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from critic_prm.data import LabelledTrajectory, problem_key
from critic_prm.data.aggregate import aggregate, cvar, open_aggregation, posterior_cvar
from critic_prm.errors import InputError
from critic_prm.evaluate.analyze.analysis import Analysis, Cell, Table, mean_effect, shortened
from critic_prm.evaluate.settings import RiskSettings

NUMBERS = {
    "prefixes": "number of prefixes with enough continuations",
    "mean_sd": "mean standard deviation of the continuations' scores",
    "mean_gap": "mean difference between the mean of the continuations' scores and their tail",
    "worst_tail": "lowest tail of any prefix",
    "hidden": "share of prefixes with hidden risk: a mean of at least --good and a tail below --floor",
    "riskiest_step": "largest decrease of the tail by one step",
}
SHOWN = 10


@dataclass(frozen=True, slots=True)
class Prefix:
    """A prefix of `depth` steps (0: the problem alone) and the scores of its continuations."""

    key: Hashable
    """Identifies the prefix."""
    parent: Hashable
    """The key of the prefix that is one step shorter."""
    problem: str
    text: str
    depth: int
    last: str
    """The last step."""
    scores: tuple[float, ...]
    tail: float
    """Mean of the lowest `alpha` share of the scores. For rollouts with binary outcomes: mean of the lowest share of the
    posterior of the success rate, which accounts for their number."""

    @property
    def mean(self) -> float:
        return fmean(self.scores)

    @property
    def sd(self) -> float:
        return pstdev(self.scores)

    @property
    def gap(self) -> float:
        return self.mean - self.tail

    @property
    def name(self) -> str:
        """The prefix as text."""
        last = f" ({shortened(self.last)})" if self.last else ""
        return f"{shortened(self.text)} after {self.depth} step{'' if self.depth == 1 else 's'}{last}"


DEFAULTS = RiskSettings()


def risk(rows: Iterable[LabelledTrajectory], settings: RiskSettings = DEFAULTS) -> Analysis:
    """Measure the risk after each prefix shared by at least `settings.min_continuations` solutions of a problem; all solutions
    share the empty prefix.

    The score of a continuation is the aggregate of its steps' P(correct). Rows of the Monte Carlo critic have the rollouts in
    their votes; there every step is a prefix whose continuations were correct or incorrect. `settings.alpha` is the share of
    worst scores averaged for the tail. A prefix hides its risk if its mean is at least `settings.good` and its tail below
    `settings.floor`. Raises InputError if no prefix has enough continuations.
    """
    alpha, least, good, floor = settings.alpha, settings.min_continuations, settings.good, settings.floor
    prefixes = list(_prefixes(rows, settings))
    if not prefixes:
        raise InputError(
            "the label file",
            f"no prefix has {least} continuations with a score",
            "sample several solutions of each problem or prefix, or lower --min-continuations",
        )
    hidden = sorted(
        (prefix for prefix in prefixes if prefix.mean >= good and prefix.tail < floor), key=lambda prefix: prefix.tail
    )
    by_key = {prefix.key: prefix for prefix in prefixes}
    extensions = [(by_key[prefix.parent], prefix) for prefix in prefixes if prefix.depth and prefix.parent in by_key]
    falls = sorted(((before.tail - after.tail, before, after) for before, after in extensions), key=lambda fall: -fall[0])
    problems, gaps = [prefix.problem for prefix in prefixes], [prefix.gap for prefix in prefixes]
    gap = mean_effect(problems, gaps, replicates=settings.resamples, seed=settings.seed)
    numbers: dict[str, float | None] = {
        "prefixes": float(len(prefixes)),
        "mean_sd": fmean(prefix.sd for prefix in prefixes),
        "mean_gap": gap.value,
        "worst_tail": min(prefix.tail for prefix in prefixes),
        "hidden": len(hidden) / len(prefixes),
        "riskiest_step": falls[0][0] if falls else None,
    }
    findings = [
        f"{prefix.name}: its continuations score {prefix.mean:.2f} on average, but {prefix.tail:.2f} in the worst {alpha:.0%}"
        for prefix in hidden[:SHOWN]
    ]
    if len(hidden) > SHOWN:
        findings.append(f"and {len(hidden) - SHOWN:,} more prefixes hide their risk")
    notes = (
        f"tail: the mean of the worst {alpha:.0%} of the continuations; gap: mean less tail, {gap.value:.3f}{gap.interval} on"
        " average",
        f"A prefix has {least} continuations or more; mean {good:g} or more and tail below {floor:g}: its risk is hidden.",
    )
    details = tuple(
        {
            "problem": prefix.text,
            "depth": prefix.depth,
            "last": prefix.last,
            "futures": len(prefix.scores),
            "mean": prefix.mean,
            "sd": prefix.sd,
            "tail": prefix.tail,
        }
        for prefix in prefixes
    )
    worst = [(after.name, len(after.scores), before.tail, after.tail) for fall, before, after in falls[:5] if fall > 0]
    columns = ("after", "continuations", "tail before", "tail after")
    tables = [_by_depth(prefixes), *([Table("Steps that lowered the tail most", columns, tuple(worst))] if worst else [])]
    return Analysis("risk", numbers, tuple(findings), notes, tuple(tables), details)


def _prefixes(rows: Iterable[LabelledTrajectory], settings: RiskSettings) -> Iterator[Prefix]:
    aggregation, alpha, least = open_aggregation(settings.aggregation), settings.alpha, settings.min_continuations
    continuations: dict[tuple[str, tuple[str, ...]], list[float]] = defaultdict(list)
    texts: dict[str, str] = {}
    for row in rows:
        trajectory, problem = row.trajectory, problem_key(row.trajectory.problem)
        text = texts.setdefault(problem, trajectory.problem)
        if row.critic.get("provider") == "rollout":
            for depth, (k, n) in enumerate(row.label.votes, 1):
                if n >= least:
                    scores, last = (1.0,) * k + (0.0,) * (n - k), trajectory.texts[depth - 1]
                    tail, name = posterior_cvar(k, n, alpha), trajectory.id
                    yield Prefix((name, depth), (name, depth - 1), problem, text, depth, last, scores, tail)
        elif (score := aggregate(row.label.p_correct, aggregation)) is not None:
            for depth in range(len(trajectory.steps)):
                continuations[problem, tuple(trajectory.texts[:depth])].append(score)
    for (problem, steps), scored in continuations.items():
        if len(scored) >= least:
            key, parent, last = (problem, steps), (problem, steps[:-1]), steps[-1] if steps else ""
            yield Prefix(key, parent, problem, texts[problem], len(steps), last, tuple(scored), cvar(scored, alpha))


def _by_depth(prefixes: Sequence[Prefix]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for depth in sorted({prefix.depth for prefix in prefixes}):
        here = [prefix for prefix in prefixes if prefix.depth == depth]
        means = (fmean(getattr(prefix, name) for prefix in here) for name in ("mean", "sd", "tail", "gap"))
        rows.append((depth, len(here), sum(len(prefix.scores) for prefix in here), *means))
    return Table("By steps already written", ("steps", "prefixes", "continuations", "mean", "sd", "tail", "gap"), tuple(rows))
