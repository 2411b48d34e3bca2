"""The sorting family: every pass is made again on the list of the step before, and its words are held against it."""

from __future__ import annotations

import re

import pytest

from tests.families import trajectories_of, unnumbered


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def selection(before: list[int], done: int) -> tuple[list[int], list[int]]:
    """The list after the pass, and the numbers that its words should name."""
    head, rest = before[:done], before[done:]
    least = min(rest)
    rest = [least, *(rest[0] if number == least else number for number in rest[1:])]
    return head + rest, [least] if before[done] == least else [least, before[done]]


def insertion(before: list[int], done: int) -> tuple[list[int], list[int]]:
    head, number = sorted(before[: done + 1]), before[done + 1]
    smaller = [other for other in head if other < number]
    named = [number] if not smaller or len(smaller) == len(head) else [number, smaller[-1]]
    return sorted([*head, number]) + before[done + 2 :], named


def bubble(before: list[int], done: int) -> tuple[list[int], list[int]]:
    """A pass carries the largest number so far along; every number it passes is a swap."""
    carried, passed, named = before[0], list[int](), list[int]()
    end = len(before) - done
    for number in before[1:end]:
        if number < carried:
            passed.append(number)
            named += [carried, number]
        else:
            passed.append(carried)
            carried = number
    return [*passed, carried, *before[end:]], named


PASSES = {"selection": selection, "insertion": insertion, "bubble": bubble}


def test_every_label_is_confirmed_by_making_the_passes_again() -> None:
    for t in trajectories_of("sorting"):
        before, first = numbers(t.problem), -1
        assert ", ".join(map(str, sorted(before))) == t.gold_answer
        *passes, last = [unnumbered(text) for text in t.texts]
        for done, text in enumerate(passes):
            said, stated = (
                re.split(r"\. The list is now |, which gives ", text)
                if "now" in text or "gives" in text
                else text.rsplit(": ", 1)
            )
            after, named = PASSES[t.meta["form"]](before, done)
            true = numbers(stated) == after and numbers(said) == named
            assert ("stays" in said or "in its place" in said) == (len(named) == 1 and "front" not in said) or not true
            if not true:
                first = done
                break
            before = after
        result = numbers(last)
        assert ", ".join(map(str, result)) == t.final_answer
        if first == -1 and result != sorted(numbers(t.problem)):
            first = len(passes)
        assert first == t.label, (t.problem, t.texts)


@pytest.mark.parametrize("how", PASSES)
def test_the_passes_of_this_file_sort(how: str) -> None:
    now = [5, 2, 9, 1, 7]
    for done in range(4):
        now, _ = PASSES[how](now, done)
    assert now == [1, 2, 5, 7, 9]
