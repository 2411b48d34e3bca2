"""Settings of ranking, search and refinement: the options of the commands `rank`, `search` and `refine`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Literal

from critic_prm.data.aggregate import open_aggregation
from critic_prm.errors import UsageError
from critic_prm.option import Option, check_fields

Pick = Literal["best", "vote"]
Cut = Literal["stop", "split"]

LENGTH_DEPENDENT = ("product", "sum")
"""Aggregations that decrease or increase with the number of steps."""

ENDS = r"\\(?:boxed|fbox)[ \t]*\{|^[ \t]*####|\bfinal answer\b|\bthe answer is\b"


def parse_sizes(text: str) -> tuple[int, ...]:
    """Parse numbers of candidates such as "1,2,4". Raises UsageError for other text."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(f"-n is {text!r}; write numbers of candidates as in 1,2,4,8")
    return tuple(sorted({int(part) for part in parts}))


@dataclass(frozen=True, slots=True)
class RankSettings:
    """How candidates are scored, chosen and compared. Raises UsageError for an unknown aggregation."""

    by: str = "min"
    """Aggregation of step scores: min, product, mean, last, cvar:0.2, ..."""
    pick: Pick = "best"
    """best: the highest score; vote: the answer with the largest sum of scores."""
    bound: str | None = None
    """Use conservative scores: wilson, jeffreys or posterior_cvar of the votes, or spread."""
    sizes: Annotated[tuple[int, ...], Option(("-n",), metavar="1,2,4", parse=parse_sizes)] = ()
    """Values of N for the curves; default: powers of two."""
    seed: int = 0
    """Random seed for subsets of candidates and for the intervals."""

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How a solution is searched for. Each method uses some of the fields. Raises UsageError for invalid values."""

    method: str = "beam"
    """Search method: best-of-n, beam, dvts, lookahead or mcts."""
    by: str = "min"
    """Aggregation of step scores: min, product, mean, last, cvar:0.2, ..."""
    pick: Pick = "best"
    """best: the highest score; vote: the answer with the largest sum of scores."""
    samples: Annotated[int, Option(min=1)] = 1
    """Judgements per prefix."""
    baseline: bool = True
    """Also run best-of-N with as many generated tokens, to compare."""
    seed: int = 0
    """Random seed for sampling; the same seed reuses cached samples."""
    n: Annotated[int, Option(("-n",), min=1, panel="The method")] = 16
    """Number of solutions or beams (N)."""
    width: Annotated[int, Option(min=1)] = 4
    """Number of steps sampled from each prefix that is expanded (M)."""
    depth: Annotated[int, Option(min=1)] = 40
    """Maximum number of steps per solution."""
    ahead: Annotated[int, Option(min=1)] = 3
    """For lookahead: number of greedy steps to look ahead."""
    simulations: Annotated[int, Option(min=1)] = 64
    """For mcts: number of simulations per problem."""
    exploration: Annotated[float, Option(min=0)] = 0.25
    """For mcts: the exploration constant c of PUCT."""
    prior: Literal["critic", "uniform"] = "critic"
    """For mcts: the prior of PUCT over siblings, from the critic's scores or uniform."""
    prior_temperature: float = 0.2
    """For mcts: temperature of the softmax that turns the critic's scores into a prior."""
    backup: Literal["mean", "max"] = "mean"
    """For mcts: back up the mean or the maximum of the values."""
    rollout: Annotated[float, Option(min=0, max=1)] = 0.0
    """For mcts: weight of a full rollout's score in a leaf's value, 0 (no rollouts) to 1."""

    @property
    def kept(self) -> int:
        """Number of prefixes kept per step."""
        return max(self.n // self.width, 1)

    def __post_init__(self) -> None:
        _check(self)
        if self.method == "mcts" and self.by in LENGTH_DEPENDENT:
            raise UsageError(
                f"mcts compares prefixes of different lengths, but {self.by} depends on the number of steps;"
                " use geometric_mean, mean, min or last"
            )
        if self.method in ("beam", "dvts", "lookahead") and self.n % self.width:
            raise UsageError(f"{self.method}: n is {self.n}; it must be a multiple of the width {self.width}")
        if self.prior_temperature <= 0:
            raise UsageError(f"--prior-temperature is {self.prior_temperature}; it must be above 0")


@dataclass(frozen=True, slots=True)
class SearchBudget:
    """Limits for the search of one problem. They are checked before each round, so the last round may exceed them."""

    max_calls: Annotated[int | None, Option(min=1, panel="Limits of one problem")] = None
    """Send at most N requests to policy and critic."""
    max_written: Annotated[int | None, Option(min=1)] = None
    """Generate at most N tokens, policy and critic together."""
    max_usd: Annotated[float | None, Option(min=0)] = None
    """Spend at most this many dollars."""


@dataclass(frozen=True, slots=True)
class RefineSettings:
    """How a solution is refined. Refinement ends when the critic finds no error and the score is at least `floor`. Raises
    UsageError for an unknown aggregation."""

    by: str = "min"
    """Aggregation of step scores: min, product, mean, last, cvar:0.2, ..."""
    rounds: Annotated[int, Option(min=1)] = 3
    """Maximum number of rounds per solution."""
    tries: Annotated[int, Option(min=1)] = 4
    """Candidate rewrites per round; the best one is kept if it is accepted."""
    margin: Annotated[float, Option(min=0)] = 0.0
    """Accept a rewrite only if it raises the score by more than this."""
    feedback: bool = True
    """Show the policy the step that it replaces and the step's critique."""
    floor: Annotated[float, Option(min=0, max=1)] = 0.0
    """Refine solutions below this score even if the critic finds no error."""
    seed: int = 0
    """Random seed for sampling; the same seed reuses cached samples."""

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True, slots=True)
class StepperOptions:
    """How a policy is asked for steps, completions and rewrites. Raises UsageError for an invalid value."""

    prompt: Annotated[str, Option(panel="How the policy is asked")] = "solve"
    """Prompt of the policy: `solve`, or a .jinja file."""
    feedback_prompt: str = "feedback"
    """Prompt that shows a rejected step and its critique: `feedback`, or a .jinja file."""
    cut: Cut = "stop"
    """How to get one step: stop (a stop string ends it) or split (generate more, keep the first step)."""
    ends: str = ENDS
    """Regular expression that marks the last step of a solution."""
    policy_temperature: float | None = None
    """Sampling temperature of the policy; the model's default if not given."""
    policy_top_p: float | None = None
    """Top-p of the policy; the model's default if not given."""
    policy_max_tokens: int | None = None
    """Maximum tokens per reply of the policy."""
    policy_base_url: str | None = None
    """Base URL of the policy's server; default: that of the judge."""
    policy_header: Annotated[tuple[str, ...], Option(metavar="NAME=VALUE")] = field(default=(), repr=False)
    """Add an HTTP header to every request of the policy; default, without its own address and key: those of the judge."""
    policy_api_key_env: Annotated[str | None, Option(metavar="VARIABLE")] = None
    """Environment variable with the policy's API key; default: the provider's own."""

    @property
    def policy_has_own_server(self) -> bool:
        """Whether headers and key of the judge do not apply to the policy."""
        return bool(self.policy_base_url or self.policy_header or self.policy_api_key_env)

    def __post_init__(self) -> None:
        check_fields(self)
        try:
            re.compile(self.ends)
        except re.error as error:
            raise UsageError(f"ends is {self.ends!r}, which is not a valid regular expression: {error}") from None


def _check(settings: RankSettings | SearchSettings | RefineSettings) -> None:
    check_fields(settings)
    open_aggregation(settings.by)
    object.__setattr__(settings, "by", settings.by.replace("-", "_"))
