"""Judge steps by their written arithmetic: the first step with a false equation is the first error."""

from __future__ import annotations

from collections.abc import Sequence

from critic_prm.arithmetic import Claim, Notes, check, remember
from critic_prm.data.judgement import Judgement, Verdict, first_error_of
from critic_prm.data.trajectory import Trajectory

NOTHING = "no equation to check"


def judge_one(trajectory: Trajectory, sample: int = 0) -> Judgement:
    """Judge one trajectory. Never raises, whatever the text."""
    verdicts: list[Verdict] = []
    checked = 0
    notes = Notes()
    remember(notes, trajectory.problem)
    for index, text in enumerate(trajectory.texts):
        notes.step = index
        claims = check(text, trajectory.problem, notes)
        verdict = _verdict(index, claims)
        verdicts.append(verdict)
        checked += verdict.value != "neutral"
        if verdict.value == "incorrect":
            break
    return Judgement(
        status="ok",
        verdicts=tuple(verdicts),
        first_error=first_error_of(verdicts, len(trajectory.steps)),
        sample=sample,
        notes=(f"{checked} of {len(verdicts)} steps held an equation that could be checked",),
    )


def _verdict(index: int, claims: Sequence[Claim]) -> Verdict:
    for claim in claims:
        if claim.finding == "false":
            return Verdict(index, "incorrect", claim.critique)
    true = sum(claim.finding == "true" for claim in claims)
    if not true:
        return Verdict(index, "neutral", NOTHING)
    return Verdict(index, "correct", "the equation holds" if true == 1 else f"all {true} equations that could be checked hold")
