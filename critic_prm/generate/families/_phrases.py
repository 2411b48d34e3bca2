"""English wordings of quantified statements, several per kind, with one drawn per problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from critic_prm.generate.families._propositions import PREDICATES
from critic_prm.generate.families._quantified import ANYONE, Statement

RELATIONS = (
    ("trusts", "does not trust"),
    ("admires", "does not admire"),
    ("helps", "does not help"),
    ("envies", "does not envy"),
    ("teaches", "does not teach"),
    ("writes to", "does not write to"),
    ("has invited", "has not invited"),
    ("looks up to", "does not look up to"),
    ("remembers", "does not remember"),
    ("pays", "does not pay"),
    ("has met", "has not met"),
    ("calls", "does not call"),
    ("avoids", "does not avoid"),
    ("owes money to", "does not owe money to"),
)
"""Relations between two people, each with its negation."""

# {0} {1} {2} are the words, {a} {b} the names. The last word is negated if the statement is, except in the form {1+}.
AFFIRMED: Mapping[str, tuple[str, ...]] = {
    "fact": ("{a} {0}",),
    "rel": ("{a} {0} {b}",),
    "all": ("everyone who {0} {1}", "whoever {0} {1}", "if someone {0}, then that person {1}"),
    "both": ("everyone who {0} and {1} {2}", "whoever {0} and {1} {2}", "if someone {0} and {1}, then that person {2}"),
    "some": ("someone who {0} {1}", "there is someone who {0} and {1}", "at least one person who {0} {1}"),
    "each": ("everyone{who0} {1} at least one person{who2}", "everyone{who0} {1} someone or other{who2}"),
    "one": (
        "there is one and the same person{who2 and} whom everyone{who0} {1}",
        "there is a particular person{who2 and} whom everyone{who0} {1}",
    ),
    "has": ("{a} {0} at least one person{who1}", "{a} {0} someone{who1}"),
    "toward": ("everyone{who0} {1} {a}",),
    "from": ("{a} {1} everyone{who0}",),
    "turn": ("if X {0} Y, then Y {1} X, whoever X and Y are", "if one person {0} a second, then the second {1} the first"),
    "along": ("if X {0} Y, then X {1} Y, whoever X and Y are", "if one person {0} a second, then the first {1} the second"),
    "subject": ("everyone who {0} anyone {1}", "whoever {0} anyone {1}"),
    "object": ("everyone whom anyone {0} {1}", "if X {0} Y, then Y {1}, whoever X and Y are"),
    "chain": (
        "if X {0} Y and Y {1} Z, then X {2} Z, whoever X, Y and Z are",
        "if one person {0} a second and the second {1} a third, then the first {2} the third",
    ),
}
DENIED: Mapping[str, tuple[str, ...]] = {
    "fact": AFFIRMED["fact"],
    "rel": AFFIRMED["rel"],
    "all": ("no one who {0} {1+}", "whoever {0} {1}", "if someone {0}, then that person {1}"),
    "both": ("no one who {0} and {1} {2+}", "whoever {0} and {1} {2}", "if someone {0} and {1}, then that person {2}"),
    "some": AFFIRMED["some"],
}
BINARY = {"rel": (0,), "each": (1,), "one": (1,), "has": (0,), "toward": (1,), "from": (1,), "turn": (0, 1), "along": (0, 1),
          "subject": (0,), "object": (0,), "chain": (0, 1, 2)}  # fmt: skip
"""Positions of relations among the words of a statement, by kind."""


@dataclass(frozen=True, slots=True)
class Phrases:
    """Names of individuals, and the predicate or relation number of each word. `style` selects the wordings."""

    names: Sequence[str]
    predicates: Sequence[int]
    relations: Sequence[int]
    style: Mapping[str, int]

    def text(self, s: Statement) -> str:
        """Return the statement as text, in lower case at the start unless it starts with a name."""
        template = (AFFIRMED if s.true else DENIED)[s.kind][self.style[s.kind]]
        said: dict[str, str] = {}
        for place, word in enumerate(s.words):
            binary = place in BINARY.get(s.kind, ())
            pair = (
                ("", "") if word == ANYONE else RELATIONS[self.relations[word]] if binary else PREDICATES[self.predicates[word]]
            )
            said[f"{{{place}}}"] = pair[not s.true and place == len(s.words) - 1]
            said[f"{{{place}+}}"] = pair[0]
            said[f"{{who{place}}}"] = "" if word == ANYONE else f" who {pair[0]}"
            said[f"{{who{place} and}}"] = "" if word == ANYONE else f" who {pair[0]} and"
        for letter, who in zip("ab", s.who, strict=False):
            said[f"{{{letter}}}"] = self.names[who]
        for blank, filling in said.items():
            template = template.replace(blank, filling)
        return template


def draw_style(rng: Random) -> dict[str, int]:
    """Draw one wording for each kind of statement."""
    return {kind: rng.randrange(len(choices)) for kind, choices in AFFIRMED.items()}
