"""Sorting by bubble, selection or insertion sort, one pass per step, writing the list after each pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from critic_prm.generate.families._runs import RunTask
from critic_prm.generate.families._words import NUMBERING, numbered
from critic_prm.generate.family import FamilyTask, Solution

KINDS = {
    "place": 4.0,  # a number ends up at least one place from its correct position
    "choice": 4.0,  # the smallest number is not chosen; a pair is not swapped
    "lost": 2.0,  # a number is omitted
    "twice": 2.0,  # a number is written twice, replacing another
    "changed": 2.0,  # a number is miswritten
    "early": 2.0,  # claims too early that the list is sorted
}
SIZES = {1: (4, 4), 2: (5, 5), 3: (6, 6), 4: (7, 7), 5: (8, 9)}
HIGHEST = {1: 20, 2: 50, 3: 99, 4: 300, 5: 999}
ASK = ("Sort the list {} in ascending order by {} sort.", "Use {1} sort to put {0} in ascending order.",
       "Sort {} from the smallest to the largest with {} sort, showing the list after every pass.")  # fmt: skip
LISTED = ("{}: {}.", "{}. The list is now {}.", "{}, which gives {}.")
DONE = ("The sorted list is {}.", "Result: {}.", "So in order they are {}.")

List = list[int]


def selection(numbers: List, done: int) -> tuple[str, List]:
    """Swap the smallest remaining number with the first remaining one."""
    at = min(range(done, len(numbers)), key=numbers.__getitem__)
    return _select(numbers, done, at)


def _select(numbers: List, done: int, at: int) -> tuple[str, List]:
    new = list(numbers)
    new[done], new[at] = new[at], new[done]
    if at == done:
        return f"The smallest of the rest is {new[done]}, which is in its place", new
    return f"The smallest of the rest is {new[done]}; it changes places with {numbers[done]}", new


def insertion(numbers: List, done: int) -> tuple[str, List]:
    """Insert the next number among those before it."""
    number, before = numbers[done + 1], numbers[: done + 1]
    at = sum(other <= number for other in before)
    return _insert(numbers, done, at)


def _insert(numbers: List, done: int, at: int) -> tuple[str, List]:
    number, before = numbers[done + 1], numbers[: done + 1]
    where = "to the front" if at == 0 else f"behind {before[at - 1]}"
    new = [*before[:at], number, *before[at:], *numbers[done + 2 :]]
    return f"{number} stays where it is" if at == len(before) else f"{number} goes {where}", new


def bubbles(numbers: List, done: int) -> tuple[str, List]:
    """One pass of swaps of adjacent numbers."""
    return _bubble(numbers, done, -1)


def _bubble(numbers: List, done: int, left_out: int) -> tuple[str, List]:
    """Run the pass without swap number `left_out` (0-based)."""
    new, swaps = list(numbers), list[str]()
    count = 0
    for i in range(len(new) - 1 - done):
        if new[i] > new[i + 1]:
            if count != left_out:
                new[i], new[i + 1] = new[i + 1], new[i]
                swaps.append(f"{new[i + 1]}/{new[i]}")
            count += 1
    return f"Swaps in this pass: {', '.join(swaps) or 'none'}", new


PASSES: Mapping[str, Callable[[List, int], tuple[str, List]]] = {
    "selection": selection,
    "insertion": insertion,
    "bubble": bubbles,
}


@dataclass(frozen=True)
class Sorting:
    """A list, a sorting algorithm, and one way of writing the passes."""

    numbers: tuple[int, ...]
    how: str
    ask: str
    brackets: str
    listed: str
    done: str
    numbering: str

    @property
    def problem(self) -> str:
        return self.ask.format(self._show(list(self.numbers)), self.how)

    @property
    def facts(self) -> Mapping[str, object]:
        return {"form": self.how}

    def _show(self, numbers: List) -> str:
        return self.brackets.format(", ".join(map(str, numbers)))

    def places(self, steps: int) -> tuple[tuple[str, ...], ...]:
        within = ("place", "choice", "lost", "twice", "changed")
        return (within,) * min(2, steps - 1) + ((*within, "early"),) * (steps - 3) + (("lost", "twice", "changed", "place"),)

    def run(self, at: int, kind: str, rng: Random) -> Solution | None:
        """Run all passes from the current list; the last step states the result."""
        numbers, texts, done = list(self.numbers), list[str](), 0
        passes = len(numbers) - 1
        while done < passes:
            wrong = kind if len(texts) == at else ""
            if wrong == "early":
                break
            said, new = PASSES[self.how](numbers, done)
            if wrong == "choice":
                chosen = self._choose(numbers, done, rng)
                if chosen is None or chosen[1] == new:
                    return None
                said, new = chosen
            elif wrong:
                new = _spoil(new, wrong, rng)
            texts.append(self.listed.format(said, self._show(new)))
            numbers, done = new, done + 1
            passes = len(numbers) - 1
            if self.how == "bubble" and said.endswith("none"):
                break
        if kind == "early" and numbers == sorted(numbers):
            return None
        if len(texts) == at and kind != "early":
            numbers = _spoil(numbers, kind, rng)
        texts.append(self.done.format(self._show(numbers)))
        return Solution(numbered(texts, self.numbering), ", ".join(map(str, numbers)))

    def _choose(self, numbers: List, done: int, rng: Random) -> tuple[str, List] | None:
        """Run the pass with the wrong number, at the wrong position, or with a missing swap."""
        if self.how == "selection":
            return _select(numbers, done, rng.randrange(done, len(numbers)))
        if self.how == "insertion":
            return _insert(numbers, done, rng.randint(0, done + 1))
        swaps = _bubble(numbers, done, -1)[0].count("/")
        return _bubble(numbers, done, rng.randrange(swaps)) if swaps else None


def _spoil(numbers: List, kind: str, rng: Random) -> List:
    """Return the list with one number misplaced, omitted, duplicated or miswritten."""
    new = list(numbers)
    i, j = rng.sample(range(len(new)), 2)
    if kind == "place":
        new.insert(j, new.pop(i))
    elif kind == "lost":
        del new[i]
    elif kind == "twice":
        new[i] = new[j]
    else:
        digits = str(new[i])
        new[i] = int(digits[::-1]) if digits[0] != digits[-1] and digits[-1] != "0" else new[i] + rng.choice((1, 10))
    return new


def draw(rng: Random, level: int) -> FamilyTask:
    """Draw distinct numbers, so that the correct list after each pass is unique."""
    numbers = tuple(rng.sample(range(1, HIGHEST[level] + 1), rng.randint(*SIZES[level])))
    how = rng.choice(list(PASSES))
    words = (rng.choice(("[{}]", "{}", "({})")), rng.choice(LISTED), rng.choice(DONE), rng.choice(NUMBERING))
    return RunTask(Sorting(numbers, how, rng.choice(ASK), *words))
