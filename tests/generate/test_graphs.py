"""The graph family: the claims of every step are worked out again from the problem, by other algorithms where there are any."""

from __future__ import annotations

import re
from itertools import product

from critic_prm.data.trajectory import Trajectory
from tests.families import trajectories_of, unnumbered

NAME = r"([A-Z][a-z]*)"


def names(text: str) -> list[str]:
    return re.findall(NAME, text)


def shortest_paths(lengths: dict[tuple[str, str], int]) -> dict[tuple[str, str], float]:
    """Floyd and Warshall's: between all pairs of places."""
    places = {place for pair in lengths for place in pair}
    best: dict[tuple[str, str], float] = {pair: lengths.get(pair, float("inf")) for pair in product(places, places)}
    best |= {(place, place): 0 for place in places}
    for via, a, b in product(places, repeat=3):
        best[a, b] = min(best[a, b], best[a, via] + best[via, b])
    return best


def check_shortest(t: Trajectory) -> int:
    intro, asked = t.problem.split(": ", 1)[1].rsplit(". ", 1)
    lengths = {}
    for a, b, length in re.findall(rf"{NAME}(?:-| to | and ){NAME}:? (\d+)", intro):
        lengths[a, b] = lengths[b, a] = int(length)
    best = shortest_paths(lengths)
    start, target = re.findall(rf"from {NAME} to {NAME}", asked)[0]
    assert str(best[start, target]) == t.gold_answer
    waiting: dict[str, int] = {start: 0}
    settled: set[str] = set()
    for index, text in enumerate(map(unnumbered, t.texts)):
        if "shortest way" in text:
            assert text.split()[0] == target
            assert text.split()[-3] == t.final_answer
            nearest = waiting[target] == min(waiting.values())
            return -1 if nearest and t.final_answer == t.gold_answer else index
        head, rest = text.split(". ", 1)
        place = names(head)[-1]
        distance = int(re.findall(r"\d+", head)[-1])
        right = distance == waiting[place] == min(waiting.values())
        right = right and distance == best[start, place]
        waiting.pop(place)
        settled.add(place)
        claims = re.findall(rf"{NAME}: (\d+) \+ (\d+) = (\d+)(?:, (no better than|better than) (\d+))?", rest)
        neighbours = {b for a, b in lengths if a == place and b not in settled}
        right = right and {claim[0] for claim in claims} == neighbours
        for name, base, length, total, comparison, old in claims:
            right = right and (int(base), int(length)) == (distance, lengths.get((place, name)))
            right = right and int(base) + int(length) == int(total)
            right = right and (waiting.get(name) == int(old) if old else name not in waiting)
            right = right and (comparison != "no better than" or int(total) >= int(old))
            right = right and (comparison != "better than" or int(total) < int(old))
            if comparison != "no better than":
                waiting[name] = int(total)
        stated = {name: int(value) for name, value in re.findall(rf"{NAME} (\d+)", re.split("[Oo]pen: ", rest)[1])}
        if not right or stated != waiting:
            return index
    raise AssertionError("the target is never reached")


def check_reach(t: Trajectory) -> int:
    told, asked = t.problem.split(": ", 1)[1].rsplit(". ", 1)
    links = set(re.findall(rf"{NAME}(?: -> |-){NAME}", told))
    links |= {(b, a) for a, b in links} if "->" not in told else set()
    start, target = re.findall(rf"from {NAME} to {NAME}", asked)[0]
    closure = {start}
    while grown := {b for a, b in links if a in closure} - closure:
        closure |= grown
    assert ("yes" if target in closure else "no") == t.gold_answer
    reached, left = [start], set()
    for index, text in enumerate(map(unnumbered, t.texts)):
        if text.startswith("So"):
            says = "no way" not in text
            assert (t.final_answer == "yes") == says
            assert says == (target in reached) or t.meta["error"] == "verdict"
            return -1 if says == (target in closure) else index
        claim, stated = text.split(". Reached so far: ")
        place, *new = names(claim.replace("New from ", "").replace("Nothing new from ", ""))
        assert place in reached
        assert place not in left
        left.add(place)
        reached += new
        if set(new) != {b for a, b in links if a == place} - set(reached[: -len(new) or None]) or names(stated) != reached:
            return index
    raise AssertionError("no answer")


def check_order(t: Trajectory) -> int:
    told = t.problem.split(": ", 1)[1].split(". ")[0]
    needs = {}
    for clause in told.split("; "):
        task, *before = names(clause)
        needs[task] = set(before)
    done: list[str] = []
    *steps, last = map(unnumbered, t.texts)
    for index, text in enumerate(steps):
        free, take = text.removesuffix(".").split(". Take ")
        expected = sorted(task for task in needs if task not in done and needs[task] <= set(done))
        if names(free)[1:] != expected or take != expected[0]:
            return index
        done.append(take)
    assert ", ".join(done) == t.gold_answer
    assert t.final_answer == last.removesuffix(".").removeprefix("The order is ")
    return -1 if t.final_answer == t.gold_answer else len(steps)


def check_cycle(t: Trajectory) -> int:
    arrows = set(re.findall(rf"{NAME} -> {NAME}", t.problem))
    closure = set(arrows)
    while grown := {(a, d) for a, b in closure for c, d in arrows if b == c} - closure:
        closure |= grown
    assert ("yes" if any(a == b for a, b in closure) else "no") == t.gold_answer
    left = {name for arrow in arrows for name in arrow}
    for index, text in enumerate(map(unnumbered, t.texts)):
        if "cycle" in text:
            bound = {b for a, b in arrows if a in left and b in left}
            true = names(text)[1:] == sorted(left) and left == bound if left else text.startswith("Everything")
            says = "a cycle" in text
            assert (t.final_answer == "yes") == says
            return -1 if true and says == bool(left) else index
        gone = names(text.split("Take ")[1])[0]
        left.discard(gone)
        stated = names(text.split("Left: ")[1]) if "Left: " in text else []
        if any(b == gone and a in left for a, b in arrows) or stated != sorted(left):
            return index
    raise AssertionError("no answer")


CHECKS = {"shortest": check_shortest, "reach": check_reach, "order": check_order, "cycle": check_cycle}


def test_every_label_is_confirmed_by_working_it_out_again() -> None:
    forms = dict.fromkeys(CHECKS, 0)
    for t in trajectories_of("graphs"):
        assert CHECKS[t.meta["form"]](t) == t.label, (t.problem, t.texts)
        forms[t.meta["form"]] += 1
    assert min(forms.values()) > len(trajectories_of("graphs")) / 10
