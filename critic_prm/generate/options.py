"""Options of the generators; each field is a command-line option of `critic-prm generate`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from critic_prm.errors import UsageError
from critic_prm.generate.policy.stopping import Enough
from critic_prm.option import Option, check_fields

_BAND = re.compile(r"(\d*\.?\d+)-(\d*\.?\d+)")


@dataclass(frozen=True, slots=True)
class SampleOptions:
    """How many solutions of a problem to sample, and which of them to keep."""

    k: Annotated[int, Option(("-k",), min=1)] = 8
    """Sample K solutions per problem."""
    keep: str = "mixed"
    """Problems to keep: mixed (solved sometimes, not always), all, or a pass rate such as 0.1-0.9."""
    balance: bool = False
    """Keep as many correct as wrong solutions per problem."""
    most: Annotated[int | None, Option(min=1)] = None
    """Keep at most N correct and N wrong solutions per problem."""
    once: Annotated[bool, Option(("--once/--repeats",))] = True
    """Drop duplicate solutions of a problem."""
    seed: int = 0
    """Random seed for choosing among surplus solutions."""

    def __post_init__(self) -> None:
        check_fields(self)
        low, high = self.pass_rates
        if not 0 <= low <= high <= 1:
            raise UsageError(f"--keep is {self.keep!r}; write mixed, all, or a band of pass rates as in 0.1-0.9")

    @property
    def pass_rates(self) -> tuple[float, float]:
        """Smallest and largest pass rate of a problem that is kept; (1, 0) if `keep` is unreadable."""
        if self.keep in ("mixed", "all"):
            return 0.0, 1.0
        match = _BAND.fullmatch(self.keep)
        return (float(match.group(1)), float(match.group(2))) if match else (1.0, 0.0)

    def takes(self, k: int, n: int) -> bool:
        """Return whether to keep a problem with k correct solutions of n."""
        low, high = self.pass_rates
        return low <= k / n <= high and not (self.keep == "mixed" and k in (0, n))


@dataclass(frozen=True, slots=True)
class TreeOptions:
    """Growth settings of a tree (OmegaPRM, arXiv 2406.06592)."""

    rollouts: Annotated[int, Option(("-k",), min=1)] = 16
    """Completions per prefix."""
    searches: Annotated[int, Option(min=1)] = 10
    """Run at most N binary searches for a first error per problem."""
    budget: Annotated[int, Option(min=1)] = 100
    """Start no search after N completions of a problem."""
    alpha: float = 0.5
    """Alpha of Q; a lower value favours prefixes with more correct rollouts."""
    beta: float = 0.9
    """Beta of Q; a lower value favours short rollouts."""
    length: Annotated[int, Option(min=1)] = 500
    """L of Q: the rollout length in words at which beta applies once."""
    exploration: float = 0.125
    """Weight of U, which favours rarely visited prefixes."""
    least_words: Annotated[int, Option(hidden=True)] = 10
    """Drop solutions of at most this many words, as MM-PRM does."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not (0 < self.alpha <= 1 and 0 < self.beta <= 1):
            raise UsageError(f"alpha is {self.alpha} and beta {self.beta}; both must be above 0 and at most 1")


EPSILON = 0.8
"""GenPRM's threshold: the smallest progress ratio of a good step."""
NEEDS_ALL = ("progress", "dual")


@dataclass(frozen=True, slots=True)
class RolloutOptions:
    """Options for labelling steps by rollouts."""

    enough: Annotated[Enough, Option(hidden=True)] = field(default_factory=Enough)
    """Stopping rule per prefix. It also defines which prefixes are good, and so the verdict "correct"."""
    search: Literal["first", "every", "halving"] = "first"
    """Prefixes to test: first (up to the first error), every (all steps) or halving (binary search)."""
    target: Literal["soft", "hard", "progress", "dual"] = "soft"
    """Step label: soft (share of correct completions), hard (1 or 0), progress (GenPRM) or dual (MedS3)."""
    epsilon: float = EPSILON
    """With --target progress: minimum progress of a good step."""
    recheck: bool = False
    """With halving: test both sides of the error with 2 K; no first error if it moves."""
    table: Annotated[tuple[tuple[float, int], ...], Option(hidden=True)] = ()
    """Rollouts per prefix by pass rate of the problem, as (least pass rate, rollouts). Replaces `enough.most`."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.target in NEEDS_ALL and self.search != "every":
            raise UsageError(f"the target {self.target!r} compares every step with the one before it; it needs --search every")
        if self.target in ("soft", *NEEDS_ALL) and self.enough.rule == "curtailed":
            raise UsageError(
                f"rollouts that are curtailed tell good from bad and nothing more, the target {self.target!r} needs shares;"
                " use --target hard, or --stop all"
            )
        if self.recheck and self.search != "halving":
            raise UsageError("--recheck looks again at the error that --search halving found; it needs that search")


def parse_weights(texts: Collection[str], groups: Callable[[str], list[str]] = lambda name: [name]) -> dict[str, float]:
    """Parse error kinds such as "slip" and "slip=3" to weights; `groups` expands a name. Raises UsageError."""
    weights: dict[str, float] = {}
    for text in texts:
        name, equals, weight = text.partition("=")
        try:
            value = float(weight) if equals else 1.0
        except ValueError:
            raise UsageError(f"the kind of error is {text!r}; write its name, or name=weight as in {name}=3") from None
        weights |= dict.fromkeys(groups(name), value)
    return weights


def parse_kinds(text: str) -> dict[str, float]:
    """Parse error kinds such as "number,sign=2". "program" and "model" stand for all kinds of that group. Raises UsageError."""
    from critic_prm.generate.perturb import written_kinds
    from critic_prm.generate.planting import KINDS

    def group(name: str) -> list[str]:
        return list(KINDS) if name == "program" else written_kinds() if name == "model" else [name]

    weights = parse_weights([part for part in map(str.strip, text.split(",")) if part], group)
    if not weights:
        raise UsageError("no kind of error is named; write some of them with commas between, or program, or model")
    return weights


@dataclass(frozen=True, slots=True)
class PerturbOptions:
    """Which errors to plant."""

    kinds: Annotated[Mapping[str, float] | None, Option(metavar="KIND[=WEIGHT],...", parse=parse_kinds)] = None
    """Kinds of error with weights, such as number,sign=2; program (the default) or model selects all of that sort."""
    each: Annotated[int, Option(("-n",), min=1)] = 1
    """Make at most N changed solutions from each correct one; no two have the same step and kind."""
    later: Literal["keep", "cut", "regenerate"] = "keep"
    """Steps after the error: keep, cut, or regenerate (by --policy)."""
    right: bool = False
    """Also write the correct solutions."""
    seed: int = 0
    """Random seed for the errors."""

    def __post_init__(self) -> None:
        from critic_prm.generate.perturb import written_kinds
        from critic_prm.generate.planting import KINDS

        check_fields(self)
        for kind, weight in self.weights.items():
            if kind not in KINDS and kind not in written_kinds():
                available = f"{', '.join(KINDS)}; written by a model: {', '.join(written_kinds())}"
                raise UsageError(f"no kind of error is called {kind!r}; available: {available}")
            if not 0 < weight < float("inf"):
                raise UsageError(f"the weight of {kind} is {weight}; it must be above 0 and finite")

    @property
    def weights(self) -> Mapping[str, float]:
        """The error kinds and their weights."""
        return parse_kinds("program") if self.kinds is None else self.kinds

    @property
    def needs_model(self) -> bool:
        """Whether carrying out the plans needs a policy model."""
        from critic_prm.generate.planting import KINDS

        return self.later == "regenerate" or any(kind not in KINDS for kind in self.weights)


@dataclass(frozen=True, slots=True)
class CreditOptions:
    """How to assign the reward of an agent run to its steps.

    Method "td" is AgentPRM's promise and progress (arXiv 2511.08325). Method "returns" averages discounted outcomes over equal
    histories (arXiv 2502.10325).
    """

    method: Literal["td", "returns"] = "td"
    """td: promise and progress by TD(lambda); returns: discounted returns."""
    gamma: Annotated[float, Option(min=0, max=1)] = 1.0
    """Discount factor per step."""
    lam: Annotated[float, Option(("--lambda",), min=0, max=1)] = 0.95
    """Lambda of TD: 1 uses only the run's return, 0 only the next value."""
    discount: Literal["to-go", "elapsed"] = "to-go"
    """With returns: weight a step by gamma^(steps after it), or by gamma^(steps before it) as in the paper's code."""
    values: Literal["table", "labels"] = "table"
    """With td: state values from a table (mean outcome of runs with the same history) or labels (p_correct of a critic)."""
    prior: Annotated[float, Option(min=0)] = 1.0
    """Pseudo-runs at the task's mean, added to each history in the table."""
    progress: Literal["diff", "gae"] = "diff"
    """Progress: diff (change of the promise) or gae (the advantage; only with td)."""
    labels: Literal["promise", "progress"] = "promise"
    """Step label: promise (a probability), or progress (1 if the progress is at least minus the tolerance, else 0)."""
    tolerance: Annotated[float, Option(min=0)] = 0.0
    """With --labels progress: a good step may lose up to this."""
    reward: str | None = None
    """Field of the reward; default: detected."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.progress == "gae" and self.method != "td":
            raise UsageError("--progress gae needs --method td; with returns use --progress diff")


def summary(counts: Mapping[str, Any], names: Collection[str]) -> str:
    """List the nonzero counts of these names, such as "3 cut, 1 refused"; "none" if all are zero."""
    return ", ".join(f"{counts[name]:,} {name}" for name in names if counts[name]) or "none"
