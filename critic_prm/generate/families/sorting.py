"""Sorting by bubble, selection or insertion sort, one pass per step, writing the list after each pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from critic_prm.generate.families._common import Impossible, Run, SimulatedTask, draw_numbering, say
from critic_prm.generate.family import FamilyTask

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
List = list[int]
Pass = tuple[str, List]
"""The text of a pass and the list after it."""


def selection(numbers: List, done: int, at: int | None = None) -> Pass:
    """Swap the number at `at`, by default the smallest remaining one, with the first remaining one."""
    if at is None:
        at = min(range(done, len(numbers)), key=numbers.__getitem__)
    new = list(numbers)
    new[done], new[at] = new[at], new[done]
    rest = ", which is in its place" if at == done else f"; it changes places with {numbers[done]}"
    return f"The smallest of the rest is {new[done]}{rest}", new


def insertion(numbers: List, done: int, at: int | None = None) -> Pass:
    """Insert the next number among those before it: at its place, or at place `at`."""
    number, before = numbers[done + 1], numbers[: done + 1]
    if at is None:
        at = sum(other <= number for other in before)
    goes = "stays where it is" if at == len(before) else f"goes behind {before[at - 1]}" if at else "goes to the front"
    return f"{number} {goes}", [*before[:at], number, *before[at:], *numbers[done + 2 :]]


def bubble(numbers: List, done: int, left_out: int | None = None) -> Pass:
    """Run one pass of swaps of adjacent numbers, without swap number `left_out` (0-based)."""
    new, swaps, count = list(numbers), list[str](), 0
    for i in range(len(new) - 1 - done):
        if new[i] > new[i + 1]:
            if count != left_out:
                new[i], new[i + 1] = new[i + 1], new[i]
                swaps.append(f"{new[i + 1]}/{new[i]}")
            count += 1
    return f"Swaps in this pass: {', '.join(swaps) or 'none'}", new


PASSES: Mapping[str, Callable[..., Pass]] = {"selection": selection, "insertion": insertion, "bubble": bubble}


@dataclass(frozen=True)
class Sorting(SimulatedTask):
    """A list, a sorting algorithm (`form`), and one way of writing the passes."""

    problem: str
    numbers: tuple[int, ...]
    form: str
    brackets: str
    listed: str
    done: str
    numbering: str

    def kinds(self, steps: int) -> Sequence[tuple[str, ...]]:
        within = ("place", "choice", "lost", "twice", "changed")
        return [*[within] * min(2, steps - 1), *[(*within, "early")] * (steps - 3), ("lost", "twice", "changed", "place")]

    def solve(self, run: Run) -> str:
        """Run all passes from the current list; the last step states the result."""
        numbers, done = list(self.numbers), 0
        while done < len(numbers) - 1 and run.error != "early":
            text, new = PASSES[self.form](numbers, done)
            if run.error == "choice":
                text, chosen = PASSES[self.form](numbers, done, self._wrong_choice(numbers, done, run))
                if chosen == new:
                    raise Impossible
                new = chosen
            elif run.error:
                new = _spoil(new, run.error, run.rng)
            run.texts.append(self.listed.format(text, _show(self.brackets, new)))
            numbers, done = new, done + 1
            if text.endswith("none"):
                break
        if run.kind == "early" and numbers == sorted(numbers):
            raise Impossible
        if run.error and run.kind != "early":
            numbers = _spoil(numbers, run.kind, run.rng)
        run.texts.append(self.done.format(_show(self.brackets, numbers)))
        return ", ".join(map(str, numbers))

    def _wrong_choice(self, numbers: List, done: int, run: Run) -> int:
        """Draw the wrong number, the wrong position, or the missing swap of a pass."""
        if self.form == "selection":
            return run.rng.randrange(done, len(numbers))
        if self.form == "insertion":
            return run.rng.randint(0, done + 1)
        return run.choose(range(bubble(numbers, done)[0].count("/")))


def _show(brackets: str, numbers: Sequence[int]) -> str:
    return brackets.format(", ".join(map(str, numbers)))


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
    form = rng.choice(list(PASSES))
    brackets, listed, done = (say(rng, "sorting", key) for key in ("brackets", "listed", "done"))
    numbering = draw_numbering(rng)
    problem = say(rng, "sorting", "ask").format(_show(brackets, numbers), form)
    return Sorting(problem, numbers, form, brackets, listed, done, numbering)
