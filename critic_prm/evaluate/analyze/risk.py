"""Measure outcome uncertainty after each shared solution prefix: spread and tail of the scores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from critic_prm.data.aggregate import aggregate, cvar, open_aggregation, posterior_cvar
from critic_prm.data.hashing import problem_key
from critic_prm.data.label_rows import LabelledTrajectory
from critic_prm.errors import InputError, UsageError
from critic_prm.evaluate.analyze._statistics import mean_effect
from critic_prm.evaluate.analyze.analysis import Analysis, Cell, Table

NUMBERS = {
    "prefixes": "beginnings with enough futures",
    "mean_sd": "mean standard deviation of the futures' scores",
    "mean_gap": "mean distance from the mean of the futures to the mean of their worst share",
    "worst_tail": "the lowest mean of a worst share",
    "hidden": "share of beginnings that look good (mean above --good) with a tail below --floor",
    "riskiest_step": "the most that one step lowered the tail",
}
GOOD, FLOOR = 0.5, 0.2
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


def risk(
    rows: Iterable[LabelledTrajectory],
    *,
    how: str = "min",
    alpha: float = 0.2,
    least: int = 4,
    good: float = GOOD,
    floor: float = FLOOR,
    replicates: int = 2000,
    seed: int = 0,
) -> Analysis:
    """Measure the risk after each prefix shared by at least `least` solutions of a problem; all solutions share the empty
    prefix.

    The score of a continuation is the aggregate `how` of its steps' P(correct). Rows of the Monte Carlo critic have the
    rollouts in their votes; there every step is a prefix whose continuations were correct or incorrect. `alpha` is the share of
    worst scores averaged for the tail. A prefix hides its risk if its mean is at least `good` and its tail below `floor`.
    Raises UsageError, and InputError if no prefix has enough continuations.
    """
    if not 0 < alpha <= 1 or least < 2:
        raise UsageError(f"--alpha is {alpha:g} and --least is {least}; a share above 0, and at least 2 futures")
    found = list(_prefixes(rows, how, alpha, least))
    if not found:
        raise InputError(
            "the label file",
            f"no beginning has {least} futures with a score",
            "sample several solutions of each problem or prefix, or lower --least",
        )
    hidden = [prefix for prefix in found if prefix.mean >= good and prefix.tail < floor]
    falls = sorted(_falls(found), key=lambda fall: fall[1].tail - fall[0].tail)
    gap = mean_effect([prefix.problem for prefix in found], [prefix.gap for prefix in found], replicates=replicates, seed=seed)
    worst_fall = falls[0][0].tail - falls[0][1].tail if falls else None
    numbers: dict[str, float | None] = {
        "prefixes": float(len(found)),
        "mean_sd": fmean(prefix.sd for prefix in found),
        "mean_gap": gap.value,
        "worst_tail": min(prefix.tail for prefix in found),
        "hidden": len(hidden) / len(found),
        "riskiest_step": worst_fall,
    }
    hidden.sort(key=lambda prefix: prefix.tail)
    findings = [
        f"{_where(prefix)}: its futures score {prefix.mean:.2f} in the mean, but {prefix.tail:.2f} in the worst {alpha:.0%}"
        for prefix in hidden[:SHOWN]
    ]
    if len(hidden) > SHOWN:
        findings.append(f"and {len(hidden) - SHOWN:,} more beginnings hide their risk")
    interval = "" if gap.low is None or gap.high is None else f" [{gap.low:.3f}, {gap.high:.3f}]"
    notes = (
        f"tail: the mean of the worst {alpha:.0%} of the futures; gap: mean less tail, {gap.value:.3f}{interval} on average",
        f"A beginning has {least} futures or more; mean {good:g} or more and tail below {floor:g}: its risk is hidden.",
    )
    details = [
        {
            "problem": p.text,
            "depth": p.depth,
            "last": p.last,
            "futures": len(p.scores),
            "mean": p.mean,
            "sd": p.sd,
            "tail": p.tail,
        }
        for p in found
    ]
    return Analysis("risk", numbers, tuple(findings), notes, tuple(_tables(found, falls)), tuple(details))


def _prefixes(rows: Iterable[LabelledTrajectory], how: str, alpha: float, least: int) -> Iterator[Prefix]:
    function = open_aggregation(how)
    futures: dict[tuple[str, tuple[str, ...]], list[float]] = defaultdict(list)
    texts: dict[str, str] = {}
    for row in rows:
        problem = problem_key(row.trajectory.problem)
        texts.setdefault(problem, row.trajectory.problem)
        if row.critic.get("provider") == "rollout":
            for depth, (k, n) in enumerate(row.label.votes, 1):
                if n >= least:
                    scores = (1.0,) * k + (0.0,) * (n - k)
                    name = row.trajectory.id
                    yield Prefix(
                        (name, depth),
                        (name, depth - 1),
                        problem,
                        texts[problem],
                        depth,
                        row.trajectory.texts[depth - 1],
                        scores,
                        posterior_cvar(k, n, alpha),
                    )
            continue
        score = aggregate(row.label.p_correct, function)
        if score is not None:
            for depth in range(len(row.trajectory.steps)):
                futures[problem, tuple(row.trajectory.texts[:depth])].append(score)
    for (problem, begun), scored in futures.items():
        if len(scored) >= least:
            key, parent = (problem, begun), (problem, begun[:-1])
            yield Prefix(
                key, parent, problem, texts[problem], len(begun), begun[-1] if begun else "", tuple(scored), cvar(scored, alpha)
            )


def _falls(found: Sequence[Prefix]) -> list[tuple[Prefix, Prefix]]:
    """Pairs of a prefix and its one-step extension, to find steps that made the outcome more or less certain."""
    by_key = {prefix.key: prefix for prefix in found}
    return [(by_key[prefix.parent], prefix) for prefix in found if prefix.depth and prefix.parent in by_key]


def _tables(found: Sequence[Prefix], falls: Sequence[tuple[Prefix, Prefix]]) -> Iterator[Table]:
    by_depth: dict[int, list[Prefix]] = defaultdict(list)
    for prefix in found:
        by_depth[prefix.depth].append(prefix)
    rows: list[tuple[Cell, ...]] = [
        (
            depth,
            len(here),
            sum(len(prefix.scores) for prefix in here),
            fmean(prefix.mean for prefix in here),
            fmean(prefix.sd for prefix in here),
            fmean(prefix.tail for prefix in here),
            fmean(prefix.gap for prefix in here),
        )
        for depth, here in sorted(by_depth.items())
    ]
    yield Table("By steps already written", ("steps", "beginnings", "futures", "mean", "sd", "tail", "gap"), tuple(rows))
    worst: list[tuple[Cell, ...]] = [
        (_where(after), len(after.scores), before.tail, after.tail) for before, after in falls[:5] if after.tail < before.tail
    ]
    if worst:
        yield Table("Steps that lowered the tail most", ("after", "futures", "tail before", "tail after"), tuple(worst))


def _where(prefix: Prefix) -> str:
    after = f"after {prefix.depth} step{'' if prefix.depth == 1 else 's'}"
    return f"{_cut(prefix.text)} {after}" + (f" ({_cut(prefix.last)})" if prefix.last else "")


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text[:27] + "..." if len(text) > 30 else text
