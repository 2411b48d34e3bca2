"""Right solutions -> each with one error planted at a known step, by a program or by a model, and checked to be one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from typing import Any, Literal, get_args

from critic_prm.arithmetic.judge import judge_one
from critic_prm.data.critic import Critic
from critic_prm.data.trajectory import Step, StepLabel, Trajectory
from critic_prm.errors import UsageError
from critic_prm.generate.planting import KINDS, differs, place_of, plant
from critic_prm.generate.policy.answers import final_answer
from critic_prm.generate.policy.policy import LLMPolicy, Policy, marked, open_prompt, prompt_names, unmarked
from critic_prm.providers.provider import Request

FOLDER = "perturb"
Later = Literal["keep", "cut", "regenerate"]
LATER: tuple[Later, ...] = get_args(Later)


@dataclass(frozen=True, slots=True)
class Perturbing:
    """What is planted. `kinds` are kinds of error with their weights; `each`, how many changed solutions a right one makes,
    none of them with the same step and kind; `later`, what becomes of the steps after the error: kept, cut off, or written
    anew by the policy. With `right`, the right solution is written too."""

    kinds: Mapping[str, float]
    each: int = 1
    later: Later = "keep"
    right: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.later not in LATER:
            raise UsageError(f"--later is {self.later!r}; it is {', '.join(LATER)}")
        for kind, weight in self.kinds.items():
            if kind not in KINDS and kind not in written_kinds():
                there = f"{', '.join(KINDS)}; written by a model: {', '.join(written_kinds())}"
                raise UsageError(f"no kind of error is called {kind!r}; there are: {there}")
            if not weight > 0:
                raise UsageError(f"the weight of {kind} is {weight}; it must be above 0")

    @property
    def needs_model(self) -> bool:
        return self.later == "regenerate" or any(kind not in KINDS for kind in self.kinds)


def parse_kinds(text: str) -> dict[str, float]:
    """ "number,sign=2" as kinds with weights; "program" and "model" stand for all of the one and of the other. Raises
    UsageError."""
    found: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, weight = part.partition("=")
        try:
            value = float(weight or 1)
        except ValueError:
            raise UsageError(f"the kind {part!r} has no number for a weight; write name or name=2") from None
        group = {"program": list(KINDS), "model": written_kinds()}.get(name, [name])
        found |= dict.fromkeys(group, value)
    if not found:
        raise UsageError("no kind of error is named; write some of them with commas between, or program, or model")
    return found


def written_kinds() -> list[str]:
    """The kinds that a model writes, one template in prompts/perturb each (PRMBench's nine, arXiv 2501.03124)."""
    return prompt_names(FOLDER)


@lru_cache(maxsize=32)
def effect(kind: str) -> str:
    """What a step of this kind is: "incorrect", "neutral" (needless), or "correct" (a change that must not be held against
    it)."""
    if kind in KINDS:
        return "incorrect"
    match = re.match(r"\{#\s*label:\s*(incorrect|neutral|correct)\b", open_prompt(kind, FOLDER).source)
    if match is None:
        raise UsageError(f"prompts/{FOLDER}/{kind}.jinja: the first line must say label: incorrect, neutral or correct")
    return match.group(1)


@dataclass(frozen=True, slots=True)
class Plan:
    """A right solution and what is to be done to it: nothing (`kind` is empty), or the error `kind` at step `at` (0-based).
    `text` is the changed step, None where it is left out or where a model is still to write it; `shown` is what shows that it
    is wrong."""

    solution: Trajectory
    number: int = 0
    at: int = -1
    kind: str = ""
    text: str | None = None
    shown: str = ""


DROPPED = ("no reply", "unreadable", "unchanged", "not confirmed", "not gone on with")
"""Why a planned change is not written."""


@dataclass
class PerturbStats:
    """What became of the solutions, for the end of a run."""

    name: str = "perturbed"
    counts: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)

    def report(self) -> Mapping[str, Any]:
        return {**self.counts, "kinds": dict(self.kinds)}

    def lines(self) -> list[str]:
        c = self.counts
        lines = [
            f"{c['solutions']:,} solutions: {c['not known to be right']:,} not known to be right,"
            f" {c['false as they are']:,} with a false equation, {c['no place']:,} without a place for these kinds",
            f"{self.kinds.total():,} planted: " + (", ".join(f"{k} {n:,}" for k, n in self.kinds.most_common()) or "none"),
        ]
        dropped = ", ".join(f"{c[name]:,} {name}" for name in DROPPED if c[name])
        return [*lines, f"not written: {dropped}"] if dropped else lines


def known_right(solution: Trajectory) -> bool:
    """Whether gold says that every step is right or, where it says nothing of steps, that the final answer is."""
    first = solution.first_error()
    if first is not None:
        return first == -1
    right = solution.extra.get("final_answer_correct", solution.meta.get("final_answer_correct"))
    return right is True and not any(label is not None for label in solution.gold())


def plans(solutions: Iterable[Trajectory], what: Perturbing, account: PerturbStats) -> Iterator[Plan]:
    """What to do to each solution. Among solutions of one length every step is chosen equally often, as far as kinds fit there;
    the same input and seed make the same plans."""
    chosen: Counter[tuple[int, int]] = Counter()
    for solution in solutions:
        account.counts["solutions"] += 1
        if not known_right(solution):
            account.counts["not known to be right"] += 1
            continue
        if judge_one(solution).first_error not in (-1, None):
            account.counts["false as they are"] += 1
            continue
        rng = Random(f"{what.seed} {solution.id}")
        found = list(_places(solution, what, chosen, rng))
        if not found:
            account.counts["no place"] += 1
            continue
        if what.right:
            yield Plan(solution)
        yield from found


def _places(solution: Trajectory, what: Perturbing, chosen: Counter[tuple[int, int]], rng: Random) -> Iterator[Plan]:
    length, used = len(solution.steps), set[tuple[int, str]]()
    for number in range(what.each):
        plan = None
        for at in sorted(range(length), key=lambda at: (chosen[length, at], rng.random())):
            if plan := _plan(solution, at, what, rng, used):
                break
        if plan is None:
            return
        used.add((plan.at, plan.kind))
        chosen[length, plan.at] += 1
        yield replace(plan, number=number)


def _plan(solution: Trajectory, at: int, what: Perturbing, rng: Random, used: set[tuple[int, str]]) -> Plan | None:
    kinds = {kind: weight for kind, weight in what.kinds.items() if (at, kind) not in used}
    place = place_of(solution, at)
    while kinds:
        kind = rng.choices(list(kinds), list(kinds.values()))[0]
        del kinds[kind]
        if kind not in KINDS:
            return Plan(solution, at=at, kind=kind)
        if planted := plant(kind, place, rng):
            return Plan(solution, at=at, kind=kind, text=planted.text, shown=planted.shown)
    return None


async def carry_out(
    plan: Plan, what: Perturbing, policy: Policy | None, confirm: Critic | None, account: PerturbStats
) -> Trajectory | None:
    """The changed solution; None, and counted, where the change came to nothing or is not one. Raises what must stop the
    run."""
    if not plan.kind:
        return plan.solution
    if plan.kind not in KINDS:
        assert isinstance(policy, LLMPolicy)
        written = await _write(plan, policy, account)
        if written is None:
            return None
        plan = written
    changed = changed_solution(plan)
    if confirm is not None:
        judgement = (await confirm.judge([changed]))[0]
        expected = plan.at if effect(plan.kind) == "incorrect" else -1
        if judgement.status != "ok" or judgement.first_error != expected:
            account.counts["not confirmed"] += 1
            return None
        changed = _noted(changed, "confirmed_by", dict(confirm.card))
    if what.later != "keep" and effect(plan.kind) == "incorrect":
        kept = changed.steps[: plan.at + 1]
        if what.later == "regenerate":
            assert policy is not None
            rest = await policy.complete(changed.problem, [step.text for step in kept])
            if rest.came != "ok":
                account.counts["not gone on with"] += 1
                return None
            kept = (*kept, *(Step(text) for text in rest.steps))
        answer = final_answer(kept[-1].text)
        labels = None if changed.step_labels is None else changed.step_labels[: len(kept)]
        shorter = replace(changed, steps=kept, final_answer=answer, step_labels=labels, meta=_without_outcome(changed.meta))
        changed = _noted(shorter, "later", what.later)
    account.kinds[plan.kind] += 1
    return changed


async def _write(plan: Plan, policy: LLMPolicy, account: PerturbStats) -> Plan | None:
    """Have the model write the step. What it writes must be another step, not the same in other words as far as can be told."""
    request = writing_request(plan, policy)
    answer = await policy.client.ask(request, plan.number)
    if answer.reply is None or answer.reply.finish != "stop":
        account.counts["no reply"] += 1
        return None
    found = re.findall(r"<rewritten>(.*?)</rewritten>", answer.reply.text, re.DOTALL)
    if len(found) != 1 or not found[0].strip():
        account.counts["unreadable"] += 1
        return None
    old = plan.solution.steps[plan.at].text
    new = unmarked(found[0].strip())
    if unmarked(old) != old.strip():  # the mark of the step stays what it was
        new = old[: len(old) - len(unmarked(old))] + new
    if not differs(old, new):
        account.counts["unchanged"] += 1
        return None
    false = effect(plan.kind) == "incorrect" and place_of(plan.solution, plan.at).false_with(new)
    return replace(plan, text=new, shown="rules" if false else "equality")


def writing_request(plan: Plan, policy: LLMPolicy) -> Request:
    """The question that has a model write the step of a plan."""
    prompt = open_prompt(plan.kind, FOLDER)
    return Request(prompt.messages(plan.solution.problem, marked(plan.solution.texts), plan.at), policy.sampling)


def changed_solution(plan: Plan) -> Trajectory:
    """The solution with its changed step, labelled: `label` is the step of the error; one that is merely needless is neutral,
    and a change that is right leaves all steps right. Exactly one step differs from the right solution, or one is missing.
    The final answer is what the last step states; None where that was changed and states none that can be told."""
    old = plan.solution
    left_out = plan.text is None
    new = () if plan.text is None else (Step(plan.text, old.steps[plan.at].observation),)
    steps = (*old.steps[: plan.at], *new, *old.steps[plan.at + 1 :])
    says = effect(plan.kind)
    labels: Sequence[StepLabel] | None = None
    if says == "neutral":
        labels = [1.0] * len(steps)
        labels[plan.at] = "neutral"
    facts = {
        "kind": plan.kind,
        "at": plan.at,
        "before": old.steps[plan.at].text,
        "after": plan.text,
        "shown_by": plan.shown if says == "incorrect" else None,
        "left_out": left_out,
        "later": "keep",
        "from": old.id,
    }
    # The steps that follow still end in the old answer. An error in the last one is where the answer was.
    keeps = says == "correct" or plan.at < len(old.steps) - 1
    answer = old.final_answer if keeps else final_answer(steps[-1].text) if steps else None
    return Trajectory(
        id=f"{old.id}-{plan.kind}-{plan.at}",
        problem=old.problem,
        steps=steps,
        final_answer=answer,
        gold_answer=old.gold_answer,
        label={"incorrect": plan.at, "correct": -1}.get(says),
        step_labels=None if labels is None else tuple(labels),
        images=old.images,
        tools=old.tools,
        meta={**(old.meta if keeps else _without_outcome(old.meta)), "error": plan.kind, "perturbed": facts},
    )


def planted_error(trajectory: Trajectory) -> tuple[int, str] | None:
    """The (step, kind) of an error that was planted, here or by ReasonEval's or PRMBench's makers; None where there is none."""
    at = trajectory.first_error()
    kind = next(
        (trajectory.meta[name] for name in ("error", "error_type", "classification") if trajectory.meta.get(name)), None
    )
    return None if at is None or at < 0 or not isinstance(kind, str) else (at, kind)


def _without_outcome(meta: Mapping[str, Any]) -> dict[str, Any]:
    """What was known of the right solution's answer says nothing of another one's."""
    return {name: value for name, value in meta.items() if name != "final_answer_correct"}


def _noted(changed: Trajectory, fact: str, value: Any) -> Trajectory:
    return replace(changed, meta={**changed.meta, "perturbed": {**changed.meta["perturbed"], fact: value}})
