"""Measure how a critic's verdicts change when a step is corrupted, dropped, masked or swapped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean

from critic_prm.data.aggregate import aggregate, open_aggregation
from critic_prm.data.critic import Critic
from critic_prm.data.hashing import problem_key
from critic_prm.data.judgement import Label
from critic_prm.data.trajectory import Step, Trajectory, blind
from critic_prm.errors import InputError
from critic_prm.evaluate.analyze._statistics import mean_effect
from critic_prm.evaluate.analyze.analysis import Analysis, Cell, Table, shares
from critic_prm.generate.planting import place_of, plant
from critic_prm.label.run import RunStats, label

NUMBERS = {
    "noticed": "share of planted errors that become the first error, exactly",
    "reaction": "by how much more P(correct) of a step falls with a planted error than with harmless words",
    "planted": "planted errors that were judged",
    "harmless_changed": "share of first errors that harmless words change",
    "dropped": "mean change of the score when a step is dropped",
    "masked": "mean change of the score when a step is masked",
    "swapped": "mean change of the score when two steps change places",
    "context": "mean absolute change of P(correct) of the other steps when one is masked",
    "unusable": "share of judgements of changed solutions that cannot be used",
}
KINDS = ("number", "operator", "sign", "unit", "substitution")
"""Kinds of errors that are injected, and verified to be errors, without a model."""
MASK = "(this step is not shown)"
HARMLESS = " We note this and go on."
REACTS = 0.05
"""A mean reaction below this is treated as none, even if it is significant."""
BLIND, FEW = 0.1, 10
"""A critic is blind to a kind of error if it detects less than this share of them and P(correct) falls by less than this, given
at least FEW injected errors."""
ALARMS = 0.1
"""Report harmless rewordings if they change at least this share of first errors."""


@dataclass(frozen=True, slots=True)
class Change:
    """A solution with one changed step. `at` is its index in the changed solution; `first` is the expected first error if the
    change had no effect; `places` maps the steps to their indices in the original solution."""

    how: str
    solution: Trajectory
    original: Trajectory
    at: int
    first: int
    places: tuple[int, ...]


Intervention = Callable[[Trajectory, int, int, Random], Change | None]


def corrupt(solution: Trajectory, at: int, first: int, rng: Random) -> Change | None:
    """Inject one error into the step, of the first kind that applies, trying the kinds in random order."""
    place = place_of(solution, at)
    for kind in rng.sample(KINDS, len(KINDS)):
        planted = plant(kind, place, rng)
        if planted is not None and planted.text is not None:
            return _with(f"corrupt ({kind})", solution, at, first, planted.text)
    return None


def harmless(solution: Trajectory, at: int, first: int, rng: Random) -> Change | None:
    """Append a harmless sentence to the step."""
    return _with("harmless words", solution, at, first, solution.steps[at].text + HARMLESS)


def mask(solution: Trajectory, at: int, first: int, rng: Random) -> Change | None:
    """Replace the step by a placeholder."""
    return _with("mask", solution, at, first, MASK)


def drop(solution: Trajectory, at: int, first: int, rng: Random) -> Change | None:
    """Remove the step; None if it is the only one."""
    n = len(solution.steps)
    if n < 2:
        return None
    places = tuple(place for place in range(n) if place != at)
    return _arranged("drop", solution, at, first - (first > at), places)


def swap(solution: Trajectory, at: int, first: int, rng: Random) -> Change | None:
    """Swap the step with the next one; None if that is the first error or does not exist."""
    n = len(solution.steps)
    if at + 1 >= n or at + 1 == first:
        return None
    return _arranged("swap", solution, at, first, (*range(at), at + 1, at, *range(at + 2, n)))


INTERVENTIONS: dict[str, Intervention] = {
    "corrupt": corrupt,
    "harmless": harmless,
    "drop": drop,
    "mask": mask,
    "swap": swap,
}


def _with(how: str, solution: Trajectory, at: int, first: int, text: str) -> Change:
    steps = (*solution.steps[:at], Step(text, solution.steps[at].observation), *solution.steps[at + 1 :])
    return _change(how, solution, at, first, steps, tuple(range(len(steps))))


def _arranged(how: str, solution: Trajectory, at: int, first: int, places: tuple[int, ...]) -> Change:
    return _change(how, solution, at, first, tuple(solution.steps[place] for place in places), places)


def _change(how: str, solution: Trajectory, at: int, first: int, steps: tuple[Step, ...], places: tuple[int, ...]) -> Change:
    changed = replace(solution, id=f"{solution.id}/{how}@{at}", steps=steps, label=None, step_labels=None)
    return Change(how, changed, solution, at, first, places)


@dataclass(frozen=True, slots=True)
class Move:
    """The effect of a change. `fall` is the decrease of P(correct) of the changed step, `score` the change of the solution's
    score, `others` the mean absolute change of the other steps; None if one of the two judgements has no value. `first` is the
    new first error."""

    change: Change
    usable: bool
    first: int | None = None
    fall: float | None = None
    score: float | None = None
    others: float | None = None

    @property
    def moved(self) -> bool:
        return self.first != self.change.first


async def counterfactual(
    solutions: Sequence[Trajectory],
    critic: Critic,
    *,
    how: str = "min",
    each: int = 1,
    workers: int = 64,
    replicates: int = 2000,
    seed: int = 0,
    tally: RunStats | None = None,
) -> Analysis:
    """Judge solutions unchanged, then with `each` of their steps changed in every way.

    Only steps before the first error are changed (by gold, or else by the critic itself), so an injected error is the first
    error. The same step gets every change. Gold is not shown. `how` is the aggregation of a solution's score. Raises InputError
    if no error could be injected.
    """
    function = open_aggregation(how)
    tally = tally or RunStats()
    base: list[tuple[Trajectory, Label]] = []
    originals = iter(solutions)
    async for _, said in label((blind(solution) for solution in solutions), critic, workers=workers):
        tally.add(said)
        base.append((next(originals), said))
    plan = [(change, before) for solution, before in base for change in _changes(solution, before, each, seed)]
    moves: list[Move] = []
    waiting = iter(plan)
    async for _, said in label((blind(change.solution) for change, _ in plan), critic, workers=workers):
        tally.add(said)
        change, before = next(waiting)
        moves.append(_move(change, before, said, function))
    if not any(move.change.how.startswith("corrupt") for move in moves):
        raise InputError(
            "the solutions",
            "no error could be planted in any of them",
            "give solutions with equations, whose first steps are right by gold and by the critic",
        )
    return _analysis(moves, _name(critic), len(solutions), replicates, seed)


def _changes(solution: Trajectory, before: Label, each: int, seed: int) -> Iterator[Change]:
    """Changes of randomly chosen steps of a solution, among those that can be corrupted."""
    gold, own = solution.first_error(), before.first_error
    if before.status != "ok" or own is None:
        return
    n = len(solution.steps)
    sound = min(n if own < 0 else own, n if gold is None or gold < 0 else gold)
    rng = Random(f"{seed} {solution.id}")
    left = each
    for at in rng.sample(range(sound), sound):
        if left == 0:
            return
        if (planted := corrupt(solution, at, own, rng)) is None:
            continue
        left -= 1
        yield planted
        for name, intervene in INTERVENTIONS.items():
            if name != "corrupt" and (change := intervene(solution, at, own, rng)) is not None:
                yield change


def _move(change: Change, before: Label, after: Label, how: Callable[[Sequence[float]], float]) -> Move:
    if after.status != "ok" or after.first_error is None:
        return Move(change, usable=False)
    fall = score = None
    if change.how not in ("drop", "swap"):
        old, new = before.p_correct[change.at], after.p_correct[change.at]
        fall = old - new if old is not None and new is not None else None
    one, other = aggregate(before.p_correct, how), aggregate(after.p_correct, how)
    if one is not None and other is not None:
        score = other - one
    here = change.places[change.at] if change.how != "drop" else None
    pairs = [(before.p_correct[place], after.p_correct[now]) for now, place in enumerate(change.places) if place != here]
    known = [abs(b - a) for a, b in pairs if a is not None and b is not None]
    return Move(change, True, after.first_error, fall, score, fmean(known) if known else None)


def _name(critic: Critic) -> str:
    card = critic.card
    return str(card.get("model") or card.get("provider") or "the critic")


def _analysis(moves: Sequence[Move], name: str, solutions: int, replicates: int, seed: int) -> Analysis:
    usable = [move for move in moves if move.usable]
    planted = [move for move in usable if move.change.how.startswith("corrupt")]
    calm = [move for move in usable if move.change.how == "harmless words"]
    baseline = {(move.change.original.id, move.change.at): move.fall for move in calm}
    reactions = [
        (problem_key(move.change.original.problem), move.fall - before)
        for move in planted
        if move.fall is not None and (before := baseline.get((move.change.original.id, move.change.at))) is not None
    ]
    reaction = mean_effect([p for p, _ in reactions], [r for _, r in reactions], replicates=replicates, seed=seed)
    noticed = shares(move.first == move.change.at for move in planted)
    numbers: dict[str, float | None] = {
        "noticed": noticed,
        "reaction": reaction.value,
        "planted": float(len(planted)),
        "harmless_changed": shares(move.moved for move in calm),
        **{f"{word}": _mean(usable, how) for word, how in (("dropped", "drop"), ("masked", "mask"), ("swapped", "swap"))},
        "context": _average([move.others for move in usable if move.change.how == "mask"]),
        "unusable": 1 - len(usable) / len(moves),
    }
    findings = []
    deaf = reaction.value is None or reaction.value < REACTS or (reaction.low is not None and reaction.low <= 0)
    if planted and deaf:
        fall = "no P(correct) to compare" if reaction.value is None else f"P(correct) falls by {reaction.value:.3f}"
        if reaction.low is not None and reaction.high is not None:
            fall += f" [{reaction.low:.3f}, {reaction.high:.3f}]"
        findings.append(
            f"{name} does not react to planted errors: {fall} more than with harmless words, and it finds {noticed:.0%} of"
            f" {len(planted):,}"
        )
    else:
        findings += _blind_spots(planted, name)
    if (numbers["harmless_changed"] or 0.0) > ALARMS:
        findings.append(
            f"harmless words change the first error of {name} in {numbers['harmless_changed']:.0%} of the solutions"
        )
    counts = Counter(move.change.original.id for move in planted)
    notes = [
        "found: the first error is now at the changed step; moved: it is not where it was; fall: of P(correct) of that step;"
        " score: change of the solution's; others: mean absolute change of P(correct) of the other steps.",
        f"{len(counts):,} of {solutions:,} solutions had a sound step with something to plant an error in.",
    ]
    details = [
        {
            "id": move.change.original.id,
            "change": move.change.how,
            "step": move.change.at,
            "first_error": move.first,
            "fall": move.fall,
            "score": move.score,
            "usable": move.usable,
        }
        for move in moves
    ]
    return Analysis("counterfactual", numbers, tuple(findings), tuple(notes), (_table(usable),), tuple(details))


def _blind_spots(planted: Sequence[Move], name: str) -> Iterator[str]:
    """Findings about kinds of error that the critic misses although it reacts to others."""
    for how in sorted({move.change.how for move in planted}):
        mine = [move for move in planted if move.change.how == how]
        fall, found = _average([move.fall for move in mine]) or 0.0, sum(move.first == move.change.at for move in mine)
        if len(mine) >= FEW and fall < BLIND and found / len(mine) < BLIND:
            kind = how.removeprefix("corrupt (").removesuffix(")")
            share = f"{found} of {len(mine)} found"
            yield f"{name} hardly reacts to errors of the kind {kind!r}: {share}, P(correct) falls by {fall:.3f}"


def _mean(moves: Sequence[Move], how: str) -> float | None:
    return _average([move.score for move in moves if move.change.how == how])


def _average(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _table(moves: Sequence[Move]) -> Table:
    hows = sorted({move.change.how for move in moves}, key=lambda how: (not how.startswith("corrupt"), how))
    rows: list[tuple[Cell, ...]] = []
    for how in hows:
        mine = [move for move in moves if move.change.how == how]
        rows.append(
            (
                how,
                len(mine),
                shares(move.first == move.change.at for move in mine) if how not in ("drop", "swap") else None,
                shares(move.moved for move in mine),
                *(_average([getattr(move, name) for move in mine]) for name in ("fall", "score", "others")),
            )
        )
    return Table("What a change of one step does", ("change", "n", "found", "moved", "fall", "score", "others"), tuple(rows))
