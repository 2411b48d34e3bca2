"""State tracking: who holds what after swaps, or the contents of a list after changes, one event per step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from critic_prm.generate.families._common import NAMES, WORDS, Impossible, Run, SimulatedTask, draw_numbering, listed, say
from critic_prm.generate.family import FamilyTask

KINDS = {
    "skipped": 4.0,  # the event has no effect
    "other": 4.0,  # it affects another holder or another position
    "half": 3.0,  # only one of two receives the other's item; an item is dropped
    "reversed": 3.0,  # the wrong end or the wrong direction
    "answer": 3.0,  # the correct final state with the wrong value read from it
}
EVENTS = {1: (2, 3), 2: (3, 4), 3: (4, 5), 4: (5, 6), 5: (6, 8)}
HOLDERS = {1: 3, 2: 3, 3: 4, 4: 5, 5: 6}
PASS = "All of them pass what they have to the next, in the order {}, and {} to {}."

State = tuple[str, ...]
Wrong = Callable[[State, Random], State]


class Event(NamedTuple):
    """The text of an event, its effect, and its effect under each error kind that fits it, besides "skipped"."""

    text: str
    do: Callable[[State], State]
    wrong: Mapping[str, Wrong]


@dataclass(frozen=True)
class Tracking(SimulatedTask):
    """A state, events and a question about the final state. `show` writes a state; `read` answers the question."""

    problem: str
    start: State
    events: tuple[Event, ...]
    show: Callable[[State], str]
    read: Callable[[State], str]
    say: str
    end: str
    numbering: str
    form: str

    def kinds(self, steps: int) -> Sequence[tuple[str, ...]]:
        return [*(("skipped", *event.wrong) for event in self.events), ("answer",)]

    def solve(self, run: Run) -> str:
        state = self.start
        try:
            for event in self.events:
                before, state = state, event.do(state)
                if run.error:
                    wrong = before if run.error == "skipped" else event.wrong[run.error](before, run.rng)
                    if wrong == state:
                        raise Impossible
                    state = wrong
                run.texts.append(self.say.format(event=event.text.removesuffix("."), state=self.show(state)))
            answer = self.read(state)
        except (ValueError, IndexError):  # the error removed what a later event, or the question, refers to
            raise Impossible from None
        if run.kind == "answer":
            answer = run.choose([other for other in state if other != answer])
        run.texts.append(self.end.format(answer))
        return answer


def draw(rng: Random, level: int) -> FamilyTask:
    """Draw swaps between people or changes of a list."""
    return (_draw_swaps if rng.random() < 0.5 else _draw_changes)(rng, level)


def _draw_swaps(rng: Random, level: int) -> Tracking:
    people = rng.sample(NAMES, HOLDERS[level])
    thing, kinds = rng.choice(WORDS["tracking"]["things"])
    held = tuple(rng.sample(kinds, len(people)))
    swap_texts = rng.choice(WORDS["tracking"]["swap"])
    events = []
    for _ in range(rng.randint(*EVENTS[level])):
        if level >= 3 and rng.random() < 0.2:
            order = rng.sample(range(len(people)), len(people))
            text = PASS.format(", ".join(people[i] for i in order), people[order[-1]], people[order[0]])
            events.append(Event(text, _rotate(order), {"reversed": _wrongly(_rotate(order[::-1]))}))
            continue
        a, b = rng.sample(range(len(people)), 2)
        text = rng.choice(swap_texts).format(people[a], people[b])
        events.append(Event(text, _swap(a, b), {"other": _swap_other(a, b), "half": _half(a, b)}))
    at = rng.randrange(len(people))
    things = [thing.format(item).replace("a o", "an o") for item in held]
    owned = listed([f"{person} {item}" for person, item in zip(people, things, strict=True)]).replace(" ", " has ", 1)
    ask = say(rng, "tracking", "ask_holder", who=people[at])
    return Tracking(
        f"At first {owned}. {' '.join(event.text for event in events)} {ask}",
        held,
        tuple(events),
        lambda state: ", ".join(f"{person}: {item}" for person, item in zip(people, state, strict=True)),
        lambda state: state[at],
        say(rng, "tracking", "say_holders"),
        say(rng, "tracking", "end_holder", who=people[at]),
        draw_numbering(rng),
        "swaps",
    )


def _wrongly(do: Callable[[State], State]) -> Wrong:
    """Return an effect that involves no chance as an erroneous effect."""
    return lambda state, rng: do(state)


def _swap(a: int, b: int) -> Callable[[State], State]:
    def do(state: State) -> State:
        new = list(state)
        new[a], new[b] = new[b], new[a]
        return tuple(new)

    return do


def _swap_other(a: int, b: int) -> Wrong:
    def do(state: State, rng: Random) -> State:
        c = rng.choice([i for i in range(len(state)) if i not in (a, b)])
        return _swap(rng.choice((a, b)), c)(state)

    return do


def _half(a: int, b: int) -> Wrong:
    def do(state: State, rng: Random) -> State:
        new = list(state)
        to, other = rng.sample((a, b), 2)
        new[to] = state[other]
        return tuple(new)

    return do


def _rotate(order: Sequence[int]) -> Callable[[State], State]:
    giver = dict(zip([*order[1:], order[0]], order, strict=True))
    return lambda state: tuple(state[giver[taker]] for taker in range(len(state)))


def _draw_changes(rng: Random, level: int) -> Tracking:
    words = rng.sample(WORDS["tracking"]["words"], len(WORDS["tracking"]["words"]))
    start = tuple(words.pop() for _ in range(HOLDERS[level]))
    state, events = start, list[Event]()
    for _ in range(rng.randint(*EVENTS[level])):
        events.append(_draw_change(rng, state, words))
        state = events[-1].do(state)
    where = rng.choice(("first", "last", *(("second", "third") if len(state) > 3 else ())))
    at = {"first": 0, "last": -1, "second": 1, "third": 2}[where]
    texts = " ".join(event.text for event in events)
    return Tracking(
        f"A list holds {', '.join(start)}. {texts} Which word is {where} in the list now?",
        start,
        tuple(events),
        ", ".join,
        lambda state: state[at],
        say(rng, "tracking", "say_list"),
        say(rng, "tracking", "end_list", where=where),
        draw_numbering(rng),
        "list",
    )


def _draw_change(rng: Random, state: State, fresh: list[str]) -> Event:
    """Draw a change that this list allows, with its possible errors."""
    adding = ["append", "front"] if len(state) < 8 else []
    kind = rng.choice([*adding, "reverse", "swap", *(["remove"] if len(state) > 3 else []), "rotate"])
    if kind in ("append", "front"):
        word = fresh.pop()
        last, first = (lambda s: (*s, word)), (lambda s: (word, *s))
        if kind == "front":
            return Event(f"The word {word} is put in front.", first, {"reversed": _wrongly(last)})
        return Event(f"The word {word} is added at the end.", last, {"reversed": _wrongly(first)})
    if kind == "reverse":
        return Event("The order of the list is reversed.", lambda s: s[::-1], {"other": _shuffled})
    if kind == "swap":
        a, b = rng.sample(state, 2)
        wrong: Mapping[str, Wrong] = {
            "other": lambda s, r: _swap_other(s.index(a), s.index(b))(s, r),
            "half": lambda s, r: _half(s.index(a), s.index(b))(s, r),
        }
        return Event(f"The words {a} and {b} change places.", lambda s: _swap(s.index(a), s.index(b))(s), wrong)
    if kind == "remove":
        gone = rng.choice(state)
        wrong = {"other": lambda s, r: _without(s, r.choice(s))}
        return Event(f"The word {gone} is removed.", lambda s: _without(s, gone), wrong)
    if rng.random() < 0.5:
        wrong = {"reversed": _wrongly(_last_to_front), "half": lambda s, _: s[1:]}
        return Event("The first word is moved to the end.", _first_to_end, wrong)
    wrong = {"reversed": _wrongly(_first_to_end), "half": lambda s, _: s[:-1]}
    return Event("The last word is moved to the front.", _last_to_front, wrong)


def _first_to_end(state: State) -> State:
    return (*state[1:], state[0])


def _last_to_front(state: State) -> State:
    return (state[-1], *state[:-1])


def _without(state: State, word: str) -> State:
    at = state.index(word)
    return state[:at] + state[at + 1 :]


def _shuffled(state: State, rng: Random) -> State:
    """Return the list reversed, with two words additionally swapped."""
    i, j = rng.sample(range(len(state)), 2)
    return _swap(i, j)(state[::-1])
