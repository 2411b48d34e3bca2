"""Reward solutions of a policy from critic scores and the gold answer, with guards against reward hacking."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from critic_prm.background import BackgroundLoop
from critic_prm.critics.open import check_access, critic_in_file, open_critic
from critic_prm.data import Critic, Label, Step, Trajectory, content_id, split_steps
from critic_prm.data.aggregate import aggregate, open_aggregation
from critic_prm.data.trust import Origin, read_toml
from critic_prm.engine.concurrency import gather_all
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import CriticPrmError, InputError, UsageError
from critic_prm.generate.policy.answers import Grader, final_answer
from critic_prm.label.run import label
from critic_prm.providers.provider import Sampling
from critic_prm.serve.rewards import credit
from critic_prm.serve.rewards.guards import Guards
from critic_prm.styles.prompt import style_names

Dense = Literal["p_correct", "progress", "min_form", "shaping"]
DENSE: tuple[Dense, ...] = get_args(Dense)
EMPTY, NO_GOLD, UNJUDGED = "empty", "no gold answer", "no step judged"


@dataclass(frozen=True, slots=True)
class Solution:
    """A solution written by a policy. `gold` is the reference answer, as text or a number, None if there is none; critics never
    see it."""

    problem: str
    text: str
    gold: object = None


@dataclass(frozen=True, slots=True)
class Rewarded:
    """The reward of a solution."""

    reward: float | None
    """The reward; None if the judgement is missing. It is never imputed."""
    status: str
    """The status of the label, or "empty" for a solution without text (which gets the lowest reward), "no gold answer" if one
    was needed, "no step judged" if the critic judged no step."""
    score: float | None = None
    """The aggregate of the step scores."""
    right: bool | None = None
    """Whether the answer matches the gold answer; None if unknown."""
    kept: float = 1.0
    """The share of the reward left by the guards."""
    p_correct: tuple[float | None, ...] = ()
    """One value per step, None for a step that was not judged."""
    steps: tuple[float | None, ...] = ()
    """The dense rewards, one per step, None for a step that was not judged."""
    first_error: int | None = None

    @property
    def without_error(self) -> bool:
        """Whether the solution was judged and no step was found incorrect."""
        return self.reward is not None and self.first_error == -1

    @property
    def columns(self) -> dict[str, float]:
        """What trainers that average numbers log of every solution."""
        judged, without_error = float(self.reward is not None), float(self.without_error)
        return {"judged": judged, "without_error": without_error, "steps": float(len(self.p_correct)), "kept": self.kept}


@dataclass(frozen=True)
class Reward:
    """Computes the rewards of solutions.

    The reward is `process` times the aggregate of the steps' P(correct), plus `outcome` times 1 or 0 for a right or wrong
    answer, with the guards applied to the sum. The critic runs on one background event loop, whichever thread or loop calls;
    `close` stops it. Raises UsageError for unknown names.
    """

    critic: str | Critic
    """A name as accepted by `open_critic`, or a critic."""
    judging: JudgeOptions = field(default_factory=JudgeOptions)
    aggregation: str = "min"
    process: float = 1.0
    outcome: float = 0.0
    dense: Dense = "progress"
    """The reward of a step: P(correct), progress, min-form credit (PURE), or potential-based shaping with P(correct) as the
    potential, which leaves the optimal policy unchanged."""
    start: float = 0.5
    """The value before the first step, for progress and shaping."""
    gamma: float = 1.0
    """Discount factor for shaping."""
    temperature: float = credit.TEMPERATURE
    """Softmax temperature for min-form credit."""
    samples: int = 1
    concurrent: int = 64
    """Maximum number of solutions that a judge works on concurrently."""
    separator: str = ""
    """The text that separates steps; by default steps are split at "Step k:" markers or blank lines."""
    guards: Guards = field(default_factory=Guards)
    loop: BackgroundLoop = field(default_factory=BackgroundLoop, repr=False, compare=False)

    def __post_init__(self) -> None:
        open_aggregation(self.aggregation)
        if self.dense not in DENSE:
            raise UsageError(f"there is no dense reward {self.dense!r}; available: {', '.join(DENSE)}")
        if self.samples < 1 or self.concurrent < 1:
            raise UsageError(f"samples is {self.samples} and concurrent is {self.concurrent}; both must be at least 1")
        lowest = min(self.process, 0.0) + min(self.outcome, 0.0)
        if self.guards.low > lowest:
            raise UsageError(
                f"the lowest reward is set to {self.guards.low:g}, but a solution can earn {lowest:g}; set [guards] low to"
                f" {lowest:g} or less, because clipping must not raise a reward"
            )

    def of(self, solutions: Sequence[Solution]) -> list[Rewarded]:
        """Reward solutions, in order, from any thread. Raises errors that must stop a run (ConfigError, BudgetError)."""
        return self.loop.submit(self._of(solutions)).result()

    async def of_async(self, solutions: Sequence[Solution]) -> list[Rewarded]:
        """Like `of`, from any event loop."""
        return await asyncio.wrap_future(self.loop.submit(self._of(solutions)))

    def close(self) -> None:
        """Close the critic and all other resources."""
        if self.loop.objects:
            self.loop.submit(self._close()).result()
        self.loop.stop()

    def or_missing(self, rewarded: Rewarded, missing: float | None) -> float:
        """The reward, or for a missing judgement the number that a trainer requires: `missing`, or else the lowest reward, so
        that writing text that cannot be judged does not pay."""
        if rewarded.reward is not None:
            return rewarded.reward
        return self.guards.low if missing is None else missing

    async def _of(self, solutions: Sequence[Solution]) -> list[Rewarded]:
        trajectories = [self._trajectory(solution) for solution in solutions]
        places = [place for place, trajectory in enumerate(trajectories) if trajectory.steps]
        labels = await self._labels([trajectories[place] for place in places])
        out = [Rewarded(self.guards.low, EMPTY)] * len(solutions)
        for place, row in zip(places, labels, strict=True):
            right = await self._right(solutions[place])
            out[place] = self.combine(trajectories[place].texts, row, right)
        return out

    def steps_of(self, text: str) -> list[str]:
        """The steps of a solution's text, as the critic sees them; none if it is empty."""
        texts = text.split(self.separator) if self.separator else split_steps(text)
        return [part for part in map(str.strip, texts) if part]

    def _trajectory(self, solution: Solution) -> Trajectory:
        steps = tuple(map(Step, self.steps_of(solution.text)))
        answer = final_answer(solution.text)
        return Trajectory(id=content_id(solution.problem, steps), problem=solution.problem, steps=steps, final_answer=answer)

    async def _labels(self, trajectories: Sequence[Trajectory]) -> list[Label]:
        objects = self.loop.objects
        if "critic" not in objects:
            objects["critic"] = open_critic(self.critic, self.judging) if isinstance(self.critic, str) else self.critic
            objects["slots"] = asyncio.Semaphore(self.concurrent)
        critic, slots = objects["critic"], objects["slots"]
        if critic.batch > 1:  # a local critic: one batch is cheaper than many
            return [row async for _, row in label(trajectories, critic, samples=self.samples)]

        async def label_one(trajectory: Trajectory) -> Label:
            async with slots:
                [row] = [row async for _, row in label([trajectory], critic, samples=self.samples)]
                return row

        return await gather_all(map(label_one, trajectories))

    async def _right(self, solution: Solution) -> bool | None:
        if not self.outcome or solution.gold is None:
            return None
        grader: Grader = self.loop.objects.setdefault("grader", Grader())
        return await grader.same(final_answer(solution.text), str(solution.gold))

    def combine(self, steps: Sequence[str], row: Label, right: bool | None = None) -> Rewarded:
        """Compute one solution's reward from its label and whether its answer is right (None: unknown)."""
        score = aggregate(row.p_correct, self.aggregation)
        status: str = row.status if row.status != "ok" or score is not None else UNJUDGED
        if status == "ok" and self.outcome and right is None:
            status = NO_GOLD
        kept = self.guards.allowed(steps)
        reward = None
        if status == "ok" and score is not None:
            reward = self.guards.apply(self.process * score + self.outcome * bool(right), steps)
        dense = self.step_rewards(row.p_correct, self.guards.repeated(steps)) if row.status == "ok" else ()
        return Rewarded(reward, status, score, right, kept, row.p_correct, dense, row.first_error)

    def step_rewards(self, p_correct: Sequence[float | None], repeated: Sequence[bool]) -> tuple[float | None, ...]:
        """The dense rewards. A step that repeats earlier ones gets no positive reward, except under shaping, which would then
        no longer preserve the optimal policy."""
        p = [value for value in p_correct if value is not None]
        if not p:
            return (None,) * len(p_correct)
        if self.dense == "shaping":
            rewards = credit.shaping([self.start, *p], self.gamma)
        elif self.dense == "min_form":
            rewards = credit.min_form(credit.signed(p), self.temperature)
        else:
            rewards = credit.progress(p, self.start) if self.dense == "progress" else p
        remaining = iter(rewards)
        dense = [None if value is None else next(remaining) for value in p_correct]
        if self.dense == "shaping":
            return tuple(dense)
        return tuple(min(r, 0.0) if r is not None and again else r for r, again in zip(dense, repeated, strict=True))

    async def _close(self) -> None:
        for name in ("critic", "grader"):
            if name in self.loop.objects:
                await self.loop.objects[name].close()


def read_reward(path: str | Path, trust: Sequence[str | Path] = ()) -> Reward:
    """Read a Reward from a TOML file: its fields except `judging` at the top level, [guards], and the fields of `JudgeOptions`
    in [judging], with `sampling` as a subtable. Relative paths are resolved against the folder of the file.

    `trust` lists files that may name code, servers, and paths outside their folder: this one, or a cascade that it names.
    Raises InputError for a file that cannot be read or names something it may not use, UsageError for an unknown name.
    """
    origin = Origin(path, tuple(trust))
    try:
        table = read_toml(path)
    except (OSError, ValueError) as error:
        raise InputError(
            str(path), f"it cannot be read: {error}", 'give a TOML file with a line such as critic = "verifier"'
        ) from error
    judging = dict(table.pop("judging", {}))
    if "db" in judging:
        judging["db"] = origin.path("db", judging["db"])
    if "style" in judging:
        judging["style"] = origin.name("style", judging["style"], style_names())
    check_access(judging, table.get("critic"), origin)
    if "header" in judging:
        judging["header"] = tuple(judging["header"])
    if "sampling" in judging:
        judging["sampling"] = _built(Sampling, judging["sampling"], f"{path} [judging.sampling]")
    guards = _built(Guards, table.pop("guards", {}), f"{path} [guards]")
    options = replace(_built(JudgeOptions, judging, f"{path} [judging]"), trust=origin.trust)
    given = {**table, "guards": guards, "judging": options}
    if "critic" not in table:
        raise InputError(str(path), "it names no critic", 'add a line such as critic = "verifier"')
    given["critic"] = critic_in_file(table["critic"], origin)
    reward: Reward = _built(Reward, given, str(path))
    return reward


def _built(kind: Any, given: dict[str, Any], where: str) -> Any:
    """An instance of the dataclass `kind` from a TOML table; `where` names the table in errors."""
    known = [f.name for f in fields(kind) if f.name not in ("loop", "trust")]
    if unknown := sorted(set(given) - set(known)):
        raise UsageError(f"{where}: unknown name {unknown[0]!r}; known names: {', '.join(known)}")
    try:
        return kind(**given)
    except CriticPrmError as error:
        raise UsageError(f"{where}: {error}") from error
    except TypeError as error:
        raise UsageError(f"{where}: {error}; check the types of the values") from error


def shared_reward(given: str | Reward) -> Reward:
    """The Reward of a TOML file, opened once per process; a Reward is returned unchanged."""
    return given if isinstance(given, Reward) else _opened(given)


@cache
def _opened(path: str) -> Reward:
    return read_reward(path)
