"""Measure how a critic's verdicts change when a step is corrupted, dropped, masked or swapped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from critic_prm.data import Critic, Label, Step, Trajectory, problem_key
from critic_prm.data.aggregate import Aggregation, aggregate, open_aggregation
from critic_prm.errors import InputError
from critic_prm.evaluate.analyze.analysis import HIDDEN, Analysis, Cell, Table, mean, mean_effect, share
from critic_prm.evaluate.run import predict
from critic_prm.evaluate.settings import CounterfactualSettings
from critic_prm.generate.planting import place_of, plant
from critic_prm.label.progress import RunStats

NUMBERS = {
    "noticed": "share of planted errors whose step becomes the first error",
    "reaction": "how much more a step's P(correct) falls with a planted error than with harmless words",
    "planted": "number of planted errors that were judged",
    "harmless_changed": "share of first errors that harmless words change",
    "dropped": "mean change of the score when a step is dropped",
    "masked": "mean change of the score when a step is masked",
    "swapped": "mean change of the score when two steps are swapped",
    "context": "mean absolute change of P(correct) of the other steps when one is masked",
    "unusable": "share of judgements of changed solutions that cannot be used",
}
KINDS = ("number", "operator", "sign", "unit", "substitution")
"""Kinds of errors that are injected, and verified to be errors, without a model."""
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
            return _replaced(f"corrupt ({kind})", solution, at, first, planted.text)
    return None


def harmless(solution: Trajectory, at: int, first: int, rng: Random) -> Change | None:
    """Append a harmless sentence to the step."""
    return _replaced("harmless words", solution, at, first, solution.steps[at].text + HARMLESS)


def mask(solution: Trajectory, at: int, first: int, rng: Random) -> Change | None:
    """Replace the step by a placeholder."""
    return _replaced("mask", solution, at, first, HIDDEN)


def drop(solution: Trajectory, at: int, first: int, rng: Random) -> Change | None:
    """Remove the step; None if it is the only one."""
    n = len(solution.steps)
    places = tuple(place for place in range(n) if place != at)
    return _changed("drop", solution, at, first - (first > at), places) if n > 1 else None


def swap(solution: Trajectory, at: int, first: int, rng: Random) -> Change | None:
    """Swap the step with the next one; None if that is the first error or does not exist."""
    n = len(solution.steps)
    if at + 1 >= n or at + 1 == first:
        return None
    return _changed("swap", solution, at, first, (*range(at), at + 1, at, *range(at + 2, n)))


INTERVENTIONS: dict[str, Intervention] = {
    intervention.__name__: intervention for intervention in (corrupt, harmless, drop, mask, swap)
}


def _replaced(how: str, solution: Trajectory, at: int, first: int, text: str) -> Change:
    change = _changed(how, solution, at, first, tuple(range(len(solution.steps))))
    steps = list(solution.steps)
    steps[at] = Step(text, steps[at].observation)
    return replace(change, solution=replace(change.solution, steps=tuple(steps)))


def _changed(how: str, solution: Trajectory, at: int, first: int, places: tuple[int, ...]) -> Change:
    steps = tuple(solution.steps[place] for place in places)
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

    @property
    def noticed(self) -> bool:
        return self.first == self.change.at

    @property
    def step(self) -> tuple[str, int]:
        """The changed step: the solution's id and the step's index."""
        return self.change.original.id, self.change.at


DEFAULTS = CounterfactualSettings()


async def counterfactual(
    solutions: Sequence[Trajectory],
    critic: Critic,
    settings: CounterfactualSettings = DEFAULTS,
    *,
    workers: int = 64,
    tally: RunStats | None = None,
) -> Analysis:
    """Judge solutions unchanged, then with `settings.each` of their steps changed in every way.

    Only steps before the first error are changed (by gold, or else by the critic itself), so an injected error is the first
    error. The same step gets every change. Gold is not shown. Raises InputError if no error could be injected.
    """
    aggregation = open_aggregation(settings.aggregation)
    plan: list[tuple[tuple[Change, Label], Trajectory]] = []
    unchanged = (("", solution) for solution in solutions)
    async for _, solution, before in predict(critic, unchanged, workers=workers, tally=tally):
        plan += [((change, before), change.solution) for change in _changes(solution, before, settings)]
    if not plan:
        raise InputError(
            "the solutions",
            "no error could be planted in any of them",
            "give solutions with equations, whose first steps are right by gold and by the critic",
        )
    predictions = predict(critic, plan, workers=workers, tally=tally)
    moves = [_move(change, before, after, aggregation) async for (change, before), _, after in predictions]
    return _analysis(moves, str(critic.card.get("model") or critic.card["provider"]), len(solutions), settings)


def _changes(solution: Trajectory, before: Label, settings: CounterfactualSettings) -> Iterator[Change]:
    """Changes of randomly chosen steps of a solution, among those that can be corrupted."""
    gold, own = solution.first_error(), before.first_error
    if before.status != "ok" or own is None:
        return
    n = len(solution.steps)
    sound = min(n if own < 0 else own, n if gold is None or gold < 0 else gold)
    rng = Random(f"{settings.seed} {solution.id}")
    remaining = settings.each
    for at in rng.sample(range(sound), sound):
        if remaining == 0:
            return
        if (planted := corrupt(solution, at, own, rng)) is None:
            continue
        remaining -= 1
        yield planted
        for intervene in (harmless, drop, mask, swap):
            if (change := intervene(solution, at, own, rng)) is not None:
                yield change


def _move(change: Change, before: Label, after: Label, aggregation: Aggregation) -> Move:
    if after.status != "ok" or after.first_error is None:
        return Move(change, usable=False)
    pairs = [(before.p_correct[place], after.p_correct[now]) for now, place in enumerate(change.places)]
    fall = None
    if change.how not in ("drop", "swap"):
        old, new = pairs[change.at]
        fall = None if old is None or new is None else old - new
    here = change.at if change.how != "drop" else None
    scores = [aggregate(label.p_correct, aggregation) for label in (before, after)]
    score = None if scores[0] is None or scores[1] is None else scores[1] - scores[0]
    other_steps = [pair for now, pair in enumerate(pairs) if now != here]
    others = mean(None if old is None or new is None else abs(new - old) for old, new in other_steps)
    return Move(change, True, after.first_error, fall, score, others)


def _analysis(moves: Sequence[Move], name: str, solutions: int, settings: CounterfactualSettings) -> Analysis:
    usable = [move for move in moves if move.usable]
    by_change = {how: [move for move in usable if move.change.how == how] for how in ("harmless words", "drop", "mask", "swap")}
    planted = [move for move in usable if move.change.how.startswith("corrupt")]
    harmless_falls = {move.step: move.fall for move in by_change["harmless words"]}
    reactions = [
        (problem_key(move.change.original.problem), move.fall - before)
        for move in planted
        if move.fall is not None and (before := harmless_falls.get(move.step)) is not None
    ]
    problems, values = [problem for problem, _ in reactions], [value for _, value in reactions]
    reaction = mean_effect(problems, values, replicates=settings.resamples, seed=settings.seed)
    noticed = share(move.noticed for move in planted)
    harmless_changed = share(move.moved for move in by_change["harmless words"])
    numbers: dict[str, float | None] = {
        "noticed": noticed,
        "reaction": reaction.value,
        "planted": float(len(planted)),
        "harmless_changed": harmless_changed,
        "dropped": mean(move.score for move in by_change["drop"]),
        "masked": mean(move.score for move in by_change["mask"]),
        "swapped": mean(move.score for move in by_change["swap"]),
        "context": mean(move.others for move in by_change["mask"]),
        "unusable": 1 - len(usable) / len(moves),
    }
    findings = []
    unmoved = reaction.value is None or reaction.value < REACTS or (reaction.low is not None and reaction.low <= 0)
    if planted and unmoved:
        fall = "no P(correct) to compare" if reaction.value is None else f"P(correct) falls by {reaction.value:.3f}"
        findings.append(
            f"{name} does not react to planted errors: {fall}{reaction.interval} more than with harmless words, and it finds"
            f" {noticed:.0%} of {len(planted):,}"
        )
    else:
        findings += _blind_spots(planted, name)
    if (harmless_changed or 0.0) > ALARMS:
        findings.append(f"harmless words change the first error of {name} in {harmless_changed:.0%} of the solutions")
    sound = len({move.change.original.id for move in planted})
    notes = (
        "found: the first error is now at the changed step; moved: it is not where it was; fall: of P(correct) of that step;"
        " score: change of the solution's; others: mean absolute change of P(correct) of the other steps.",
        f"{sound:,} of {solutions:,} solutions had a sound step with something to plant an error in.",
    )
    details = tuple(
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
    )
    return Analysis("counterfactual", numbers, tuple(findings), notes, (_table(usable),), details)


def _blind_spots(planted: Sequence[Move], name: str) -> Iterator[str]:
    """Findings about kinds of error that the critic misses although it reacts to others."""
    for how in sorted({move.change.how for move in planted}):
        moves = [move for move in planted if move.change.how == how]
        fall, noticed = mean(move.fall for move in moves) or 0.0, sum(move.noticed for move in moves)
        if len(moves) >= FEW and fall < BLIND and noticed / len(moves) < BLIND:
            kind = how.removeprefix("corrupt (").removesuffix(")")
            counts = f"{noticed} of {len(moves)} found"
            yield f"{name} hardly reacts to errors of the kind {kind!r}: {counts}, P(correct) falls by {fall:.3f}"


def _table(usable: Sequence[Move]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for how in sorted({move.change.how for move in usable}, key=lambda how: (not how.startswith("corrupt"), how)):
        moves = [move for move in usable if move.change.how == how]
        noticed = share(move.noticed for move in moves) if how not in ("drop", "swap") else None
        means = (mean(getattr(move, name) for move in moves) for name in ("fall", "score", "others"))
        rows.append((how, len(moves), noticed, share(move.moved for move in moves), *means))
    return Table("What a change of one step does", ("change", "n", "found", "moved", "fall", "score", "others"), tuple(rows))
