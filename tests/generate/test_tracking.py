"""The tracking family: the events are read from the problem's words and carried out again."""

from __future__ import annotations

import re

from tests.families import trajectories_of, unnumbered

State = list[tuple[str, str]] | list[str]


def swapped(holders: dict[str, str], event: str) -> dict[str, str]:
    """Who holds what after an event."""
    now = dict(holders)
    if event.startswith("All of them"):
        order = re.findall(r"[A-Z]\w+", event.split("in the order ")[1].split(", and ")[0])
        for giver, taker in zip(order, order[1:] + order[:1], strict=True):
            now[taker] = holders[giver]
    else:
        a, b = re.findall(r"[A-Z]\w+", event)
        now[a], now[b] = holders[b], holders[a]
    return now


def changed(words: list[str], event: str) -> list[str]:
    """The list after an event."""
    if found := re.match(r"The words (\w+) and (\w+) change places", event):
        names = {found[1]: found[2], found[2]: found[1]}
        return [names.get(word, word) for word in words]
    if found := re.match(r"The word (\w+) is (added|put|removed)", event):
        word = found[1]
        if found[2] == "removed":
            return [other for other in words if other != word]
        return [*words, word] if found[2] == "added" else [word, *words]
    if "reversed" in event:
        return list(reversed(words))
    return words[1:] + words[:1] if "first" in event else words[-1:] + words[:-1]


def thing(text: str) -> str:
    """What tells it from the others: "a cup of tea" is tea, "a red ball" is red."""
    words = text.split()
    return words[-1] if "of" in words else words[1]


def test_every_label_is_confirmed_by_carrying_the_events_out() -> None:
    seen = set()
    for t in trajectories_of("tracking"):
        begin, *events, ask = re.split(r"(?<=[.]) (?=[A-Z])", t.problem)
        texts = [unnumbered(text) for text in t.texts]
        claims: list[object] = []
        truth: list[object] = []
        if begin.startswith("At first"):
            clauses = re.split(r", | and ", begin.removeprefix("At first ").removesuffix("."))
            holders = {clause.split()[0]: thing(clause.split(" ", 1)[1].removeprefix("has ")) for clause in clauses}
            for event, text in zip(events, texts, strict=False):
                assert event.removesuffix(".") in text
                holders = swapped(holders, event)
                truth.append(holders)
                claims.append(dict(re.findall(r"(\w+): (\w+)", text.replace(event.removesuffix("."), ""))))
            gold = holders[re.findall(r"(?:does|with) (\w+)", ask)[0]]
        else:
            words = begin.removeprefix("A list holds ").removesuffix(".").split(", ")
            for event, text in zip(events, texts, strict=False):
                words = changed(words, event)
                truth.append(words)
                stated = re.split(r"^: |Now the list is |so we have ", text.replace(event.removesuffix("."), ""))[-1]
                claims.append(stated.removesuffix(".").split(", "))
            where = re.findall(r"word is (\w+)", ask)[0]
            gold = words[{"first": 0, "second": 1, "third": 2, "last": -1}[where]]
        assert len(claims) == len(truth) == len(texts) - 1
        assert gold == t.gold_answer
        answered = re.findall(r"(\w+)\.$", texts[-1])[0]
        assert answered == t.final_answer
        wrong = [i for i, (claim, true) in enumerate(zip(claims, truth, strict=True)) if claim != true]
        first = wrong[0] if wrong else -1 if answered == gold else len(texts) - 1
        assert first == t.label, (t.problem, t.texts)
        seen.add(t.meta["form"])
    assert seen == {"swaps", "list"}
