"""Plant one error at a known step of a correct solution, by rule or by model, and verify it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from typing import Any

from critic_prm.arithmetic.claims import judge_one
from critic_prm.data.critic import Critic
from critic_prm.data.trajectory import Step, StepLabel, Trajectory
from critic_prm.errors import UsageError
from critic_prm.generate.options import PerturbOptions, summary
from critic_prm.generate.planting import KINDS, differs, place_of, plant
from critic_prm.generate.policy.answers import final_answer
from critic_prm.generate.policy.policy import LLMPolicy, Policy, marked, open_prompt, prompt_names, unmarked
from critic_prm.providers.provider import Request

FOLDER = "perturb"


def written_kinds() -> list[str]:
    """Return the error kinds that a model writes, one template each in prompts/perturb (PRMBench's nine, arXiv 2501.03124)."""
    return prompt_names(FOLDER)


@lru_cache(maxsize=32)
def effect(kind: str) -> str:
    """Return the label of a step of this kind: "incorrect", "neutral" (redundant) or "correct" (a harmless change)."""
    if kind in KINDS:
        return "incorrect"
    match = re.match(r"\{#\s*label:\s*(incorrect|neutral|correct)\b", open_prompt(kind, FOLDER).source)
    if match is None:
        raise UsageError(f"prompts/{FOLDER}/{kind}.jinja: the first line must say label: incorrect, neutral or correct")
    return match.group(1)


@dataclass(frozen=True, slots=True)
class Plan:
    """A planned change to a correct solution: error `kind` at step `at` (0-based), or no change if `kind` is empty."""

    solution: Trajectory
    number: int = 0
    at: int = -1
    kind: str = ""
    text: str | None = None
    """The changed step. None if the step is removed, or if a model has yet to write it."""
    shown: str = ""
    """The evidence that the step is incorrect; see `planting.Shown`."""


DROPPED = ("no reply", "unreadable", "unchanged", "not confirmed", "not gone on with")
"""Reasons why a planned change is not written."""


@dataclass
class PerturbStats:
    """Counts of solutions and planted errors, for the run summary."""

    name: str = "perturbed"
    counts: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)

    def report(self) -> Mapping[str, Any]:
        """Return the counts as JSON data."""
        return {**self.counts, "kinds": dict(self.kinds)}

    def lines(self) -> list[str]:
        """Return the summary lines for the terminal."""
        c = self.counts
        lines = [
            f"{c['solutions']:,} solutions: {c['not known to be right']:,} not known to be right,"
            f" {c['false as they are']:,} with a false equation, {c['no place']:,} without a place for these kinds",
            f"{self.kinds.total():,} planted: " + (", ".join(f"{k} {n:,}" for k, n in self.kinds.most_common()) or "none"),
        ]
        return [*lines, f"not written: {summary(c, DROPPED)}"] if any(c[name] for name in DROPPED) else lines


def known_right(solution: Trajectory) -> bool:
    """Return whether gold labels say that every step is correct or, without step labels, that the final answer is."""
    first = solution.first_error()
    if first is not None:
        return first == -1
    right = solution.extra.get("final_answer_correct", solution.meta.get("final_answer_correct"))
    return right is True and not any(label is not None for label in solution.gold())


def plans(solutions: Iterable[Trajectory], options: PerturbOptions, account: PerturbStats) -> Iterator[Plan]:
    """Plan the changes to each solution.

    Among solutions of equal length every step is chosen equally often, as far as the kinds fit. The same input and seed give
    the same plans.
    """
    chosen: Counter[tuple[int, int]] = Counter()
    for solution in solutions:
        account.counts["solutions"] += 1
        if not known_right(solution):
            account.counts["not known to be right"] += 1
            continue
        if judge_one(solution).first_error not in (-1, None):
            account.counts["false as they are"] += 1
            continue
        rng = Random(f"{options.seed} {solution.id}")
        found = list(_places(solution, options, chosen, rng))
        if not found:
            account.counts["no place"] += 1
            continue
        if options.right:
            yield Plan(solution)
        yield from found


def _places(solution: Trajectory, options: PerturbOptions, chosen: Counter[tuple[int, int]], rng: Random) -> Iterator[Plan]:
    length, used = len(solution.steps), set[tuple[int, str]]()
    for number in range(options.each):
        plan = None
        for at in sorted(range(length), key=lambda at: (chosen[length, at], rng.random())):
            if plan := _plan(solution, at, options, rng, used):
                break
        if plan is None:
            return
        used.add((plan.at, plan.kind))
        chosen[length, plan.at] += 1
        yield replace(plan, number=number)


def _plan(solution: Trajectory, at: int, options: PerturbOptions, rng: Random, used: set[tuple[int, str]]) -> Plan | None:
    kinds = {kind: weight for kind, weight in options.weights.items() if (at, kind) not in used}
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
    plan: Plan, options: PerturbOptions, policy: Policy | None, confirm: Critic | None, account: PerturbStats
) -> Trajectory | None:
    """Carry out a plan. Returns None, and counts the reason, if the change fails or is not confirmed.

    Raises errors that must stop the whole run.
    """
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
    if options.later != "keep" and effect(plan.kind) == "incorrect":
        kept = changed.steps[: plan.at + 1]
        if options.later == "regenerate":
            assert policy is not None
            rest = await policy.complete(changed.problem, [step.text for step in kept])
            if rest.came != "ok":
                account.counts["not gone on with"] += 1
                return None
            kept = (*kept, *(Step(text) for text in rest.steps))
        answer = final_answer(kept[-1].text)
        labels = None if changed.step_labels is None else changed.step_labels[: len(kept)]
        shorter = replace(changed, steps=kept, final_answer=answer, step_labels=labels, meta=_without_outcome(changed.meta))
        changed = _noted(shorter, "later", options.later)
    account.kinds[plan.kind] += 1
    return changed


async def _write(plan: Plan, policy: LLMPolicy, account: PerturbStats) -> Plan | None:
    """Have the model write the changed step. Discards rewordings of the same step, as far as these can be detected."""
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
    if unmarked(old) != old.strip():  # keep the original step marker
        new = old[: len(old) - len(unmarked(old))] + new
    if not differs(old, new):
        account.counts["unchanged"] += 1
        return None
    false = effect(plan.kind) == "incorrect" and place_of(plan.solution, plan.at).false_with(new)
    return replace(plan, text=new, shown="rules" if false else "equality")


def writing_request(plan: Plan, policy: LLMPolicy) -> Request:
    """Build the request in which a model writes the changed step."""
    prompt = open_prompt(plan.kind, FOLDER)
    return Request(prompt.messages(plan.solution.problem, marked(plan.solution.texts), plan.at), policy.sampling)


def changed_solution(plan: Plan) -> Trajectory:
    """Return the solution with its changed step and its labels.

    `label` is the step of the error. A redundant step is labelled neutral; a harmless change leaves all steps correct. Exactly
    one step differs from the correct solution, or one is missing. If the last step changed, the final answer is what it now
    states, or None if it states none.
    """
    old = plan.solution
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
        "left_out": plan.text is None,
        "later": "keep",
        "from": old.id,
    }
    # Later steps still end in the old answer. An error in the last step changes the answer itself.
    keeps = says == "correct" or plan.at < len(old.steps) - 1
    answer = old.final_answer if keeps else final_answer(steps[-1].text) if steps else None
    return replace(
        old,
        id=f"{old.id}-{plan.kind}-{plan.at}",
        steps=steps,
        final_answer=answer,
        label={"incorrect": plan.at, "correct": -1}.get(says),
        step_labels=None if labels is None else tuple(labels),
        meta={**(old.meta if keeps else _without_outcome(old.meta)), "error": plan.kind, "perturbed": facts},
        extra={},
    )


def _without_outcome(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the outcome of the correct solution, which does not apply to a solution with another answer."""
    return {name: value for name, value in meta.items() if name != "final_answer_correct"}


def _noted(changed: Trajectory, fact: str, value: Any) -> Trajectory:
    return replace(changed, meta={**changed.meta, "perturbed": {**changed.meta["perturbed"], fact: value}})
