"""State tracking: who holds what after swaps, or the contents of a list after changes, one event per step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from critic_prm.generate.families._runs import RunTask
from critic_prm.generate.families._words import NAMES, NUMBERING, listed, numbered, some
from critic_prm.generate.family import FamilyTask, Solution

KINDS = {
    "skipped": 4.0,  # the event has no effect
    "other": 4.0,  # it affects another holder or another position
    "half": 3.0,  # only one of two receives the other's item; an item is dropped
    "reversed": 3.0,  # the wrong end or the wrong direction
    "answer": 3.0,  # the correct final state with the wrong value read from it
}
THINGS = (
    ("a {} ball", ("red", "blue", "green", "yellow", "white", "black", "orange", "purple")),
    ("a {} book", ("thin", "thick", "old", "new", "heavy", "torn", "blue", "signed")),
    ("the {} ticket", ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")),
    ("a {} hat", ("straw", "felt", "wool", "silk", "paper", "leather", "cotton", "fur")),
    ("a {}", ("coin", "key", "ring", "stone", "whistle", "feather", "shell", "marble")),
    ("a cup of {}", ("tea", "coffee", "milk", "cocoa", "water", "juice", "broth", "punch")),
)
WORDS = (
    "apple", "brick", "cloud", "drum", "engine", "flute", "glove", "harbor", "island", "jacket", "kettle", "ladder", "mirror",
    "needle", "orchid", "pillow", "quartz", "ribbon", "saddle", "tunnel",
)  # fmt: skip
EVENTS = {1: (2, 3), 2: (3, 4), 3: (4, 5), 4: (5, 6), 5: (6, 8)}
HOLDERS = {1: 3, 2: 3, 3: 4, 4: 5, 5: 6}
PASS = "All of them pass what they have to the next, in the order {}, and {} to {}."

State = tuple[str, ...]
Wrong = Callable[[State, Random], State]
SKIPPED: Mapping[str, Wrong] = {"skipped": lambda state, _: state}


class Event(NamedTuple):
    """The text of an event, its effect, and its effect under each error kind that fits it."""

    told: str
    do: Callable[[State], State]
    wrong: Mapping[str, Wrong]


@dataclass(frozen=True)
class Tracking:
    """A state, events and a question about the final state. `show` writes a state; `read` answers the question."""

    told: str
    ask: str
    start: State
    events: tuple[Event, ...]
    show: Callable[[State], str]
    read: Callable[[State], str]
    say: str
    end: str
    numbering: str
    form: str

    @property
    def problem(self) -> str:
        return f"{self.told} {' '.join(event.told for event in self.events)} {self.ask}"

    @property
    def facts(self) -> Mapping[str, object]:
        return {"form": self.form}

    def places(self, steps: int) -> tuple[tuple[str, ...], ...]:
        return (*(tuple(event.wrong) for event in self.events), ("answer",))

    def run(self, at: int, kind: str, rng: Random) -> Solution | None:
        state, texts = self.start, list[str]()
        try:
            for index, event in enumerate(self.events):
                true = event.do(state)
                state = event.wrong[kind](state, rng) if index == at else true
                if index == at and state == true:
                    return None
                texts.append(self.say.format(event=event.told.removesuffix("."), state=self.show(state)))
            answer = self.read(state)
        except (ValueError, IndexError):  # the error removed what a later event, or the question, refers to
            return None
        if kind == "answer":
            others = [other for other in state if other != answer]
            answer = rng.choice(others)
        texts.append(self.end.format(answer))
        return Solution(numbered(texts, self.numbering), answer)


def draw(rng: Random, level: int) -> FamilyTask:
    """Draw swaps between people or changes of a list."""
    return RunTask((_swaps if rng.random() < 0.5 else _changes)(rng, level))


def _swaps(rng: Random, level: int) -> Tracking:
    people = some(rng, NAMES, HOLDERS[level])
    thing, kinds = rng.choice(THINGS)
    held = tuple(some(rng, kinds, len(people)))
    swap_words = rng.choice(
        (("{} and {} swap.",), ("{} and {} trade with each other.", "{} exchanges with {}."), ("{} and {} change over.",))
    )
    events = []
    for _ in range(rng.randint(*EVENTS[level])):
        if level >= 3 and rng.random() < 0.2:
            order = rng.sample(range(len(people)), len(people))
            told = PASS.format(", ".join(people[i] for i in order), people[order[-1]], people[order[0]])
            events.append(Event(told, _rotate(order), {**SKIPPED, "reversed": _back(order)}))
            continue
        a, b = rng.sample(range(len(people)), 2)
        told = rng.choice(swap_words).format(people[a], people[b])
        events.append(Event(told, _swap(a, b), {**SKIPPED, "other": _swap_other(a, b), "half": _half(a, b)}))
    who = rng.randrange(len(people))
    things = [thing.format(one).replace("a o", "an o") for one in held]
    owned = listed([f"{person} {one}" for person, one in zip(people, things, strict=True)])
    owned = owned.replace(" ", " has ", 1)
    ask = rng.choice((f"What does {people[who]} have in the end?", f"Which one is with {people[who]} at the end?"))
    return Tracking(
        told=f"At first {owned}.",
        ask=ask,
        start=held,
        events=tuple(events),
        show=lambda state: ", ".join(f"{person}: {one}" for person, one in zip(people, state, strict=True)),
        read=lambda state: state[who],
        say=rng.choice(("{event}. Now {state}.", "After this ({event}): {state}.", "{event}, which gives {state}.")),
        end=rng.choice((f"So {people[who]} has: {{}}.", f"In the end {people[who]} has: {{}}.")),
        numbering=rng.choice(NUMBERING),
        form="swaps",
    )


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
    def do(state: State) -> State:
        new = list(state)
        for giver, taker in zip(order, [*order[1:], order[0]], strict=True):
            new[taker] = state[giver]
        return tuple(new)

    return do


def _back(order: Sequence[int]) -> Wrong:
    return lambda state, rng: _rotate(order[::-1])(state)


def _changes(rng: Random, level: int) -> Tracking:
    words = some(rng, WORDS, len(WORDS))
    start = tuple(words.pop() for _ in range(HOLDERS[level]))
    state, events = start, list[Event]()
    for _ in range(rng.randint(*EVENTS[level])):
        event = _change(rng, state, words)
        state = event.do(state)
        events.append(event)
    where = rng.choice(("first", "last", *(("second", "third") if len(state) > 3 else ())))
    at = {"first": 0, "last": -1, "second": 1, "third": 2}[where]
    return Tracking(
        told=f"A list holds {', '.join(start)}.",
        ask=f"Which word is {where} in the list now?",
        start=start,
        events=tuple(events),
        show=lambda state: ", ".join(state),
        read=lambda state: state[at],
        say=rng.choice(("{event}. Now the list is {state}.", "{event}: {state}.", "{event}, so we have {state}.")),
        end=rng.choice((f"So the {where} word is {{}}.", f"The {where} word in the list is {{}}.")),
        numbering=rng.choice(NUMBERING),
        form="list",
    )


def _change(rng: Random, state: State, fresh: list[str]) -> Event:
    """Draw a change that this list allows, with its possible errors."""
    kinds = ["append", "front", "reverse", "swap", "remove", "rotate"]
    kind = rng.choice(
        [k for k in kinds if (k != "remove" or len(state) > 3) and (k not in ("append", "front") or len(state) < 8)]
    )
    if kind in ("append", "front"):
        return _added(fresh.pop(), kind == "append")
    if kind == "reverse":
        return Event("The order of the list is reversed.", lambda s: s[::-1], {**SKIPPED, "other": _shuffled})
    if kind == "swap":
        a, b = rng.sample(state, 2)
        return Event(f"The words {a} and {b} change places.", lambda s: _swap(s.index(a), s.index(b))(s), {
            **SKIPPED,
            "other": lambda s, r: _swap_other(s.index(a), s.index(b))(s, r),
            "half": lambda s, r: _half(s.index(a), s.index(b))(s, r),
        })  # fmt: skip
    if kind == "remove":
        gone = rng.choice(state)
        return Event(
            f"The word {gone} is removed.",
            lambda s: _without(s, gone),
            {**SKIPPED, "other": lambda s, r: _without(s, r.choice(s))},
        )
    return _turned(rng.random() < 0.5)


def _added(word: str, at_end: bool) -> Event:
    def end(state: State) -> State:
        return (*state, word)

    def front(state: State) -> State:
        return (word, *state)

    if at_end:
        return Event(f"The word {word} is added at the end.", end, {**SKIPPED, "reversed": lambda s, _: front(s)})
    return Event(f"The word {word} is put in front.", front, {**SKIPPED, "reversed": lambda s, _: end(s)})


def _turned(left: bool) -> Event:
    def first_to_end(state: State) -> State:
        return (*state[1:], state[0])

    def last_to_front(state: State) -> State:
        return (state[-1], *state[:-1])

    told = "The first word is moved to the end." if left else "The last word is moved to the front."
    right, back = (first_to_end, last_to_front) if left else (last_to_front, first_to_end)
    wrong: Mapping[str, Wrong] = {"reversed": lambda s, _: back(s), "half": lambda s, _: s[1:] if left else s[:-1]}
    return Event(told, right, {**SKIPPED, **wrong})


def _without(state: State, word: str) -> State:
    at = state.index(word)
    return state[:at] + state[at + 1 :]


def _shuffled(state: State, rng: Random) -> State:
    """Return the list reversed, with two words additionally swapped."""
    i, j = rng.sample(range(len(state)), 2)
    return _swap(i, j)(state[::-1])
