"""Names, items and step-numbering styles shared by all families."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

NAMES = (
    "Ada", "Aiko", "Amara", "Anton", "Ayumi", "Bela", "Bruno", "Carla", "Chidi", "Clara", "Dana", "Deniz", "Diego", "Edda",
    "Elif", "Emeka", "Enzo", "Esra", "Fatima", "Felix", "Finn", "Gabriela", "Greta", "Hana", "Hugo", "Ida", "Ilse", "Imani",
    "Ines", "Ivan", "Jamal", "Jana", "Jonas", "Kaito", "Karim", "Kofi", "Lars", "Layla", "Leo", "Lina", "Luca", "Maja",
    "Malik", "Mara", "Mateo", "Mei", "Mila", "Milo", "Nadia", "Nico", "Noor", "Nora", "Olga", "Omar", "Oskar", "Paula",
    "Priya", "Rafael", "Ravi", "Rosa", "Samir", "Sana", "Selma", "Sofia", "Tariq", "Theo", "Tomas", "Uma", "Viktor", "Wanda",
    "Yara", "Yusuf", "Zoe",
)  # fmt: skip

ITEMS = (
    "stamps", "marbles", "cards", "beads", "shells", "stickers", "coins", "books", "pencils", "buttons", "postcards",
    "badges", "crayons", "erasers", "magnets", "keyrings", "photos", "puzzles", "comics", "pebbles", "figurines", "tokens",
    "ribbons", "candles", "posters", "notebooks", "balloons", "acorns", "walnuts", "apples", "plums", "pears", "cookies",
    "muffins", "candies", "chestnuts", "feathers", "bracelets", "bookmarks",
)  # fmt: skip

PLACES = (
    ("warehouse", "boxes of tiles"), ("library", "books"), ("bakery", "rolls"), ("garden centre", "seedlings"),
    ("toy shop", "kites"), ("school", "chairs"), ("farm", "crates of apples"), ("hotel", "towels"), ("hospital", "masks"),
    ("brewery", "bottles"), ("nursery", "saplings"), ("bookshop", "calendars"), ("market stall", "melons"),
    ("factory", "bolts"), ("museum shop", "postcards"), ("stadium", "seat cushions"), ("theatre", "programmes"),
    ("bike shop", "inner tubes"), ("canteen", "trays"), ("post office", "parcels"), ("vineyard", "barrels"),
    ("pharmacy", "bandages"), ("print shop", "leaflets"), ("depot", "pallets"), ("laboratory", "test tubes"),
)  # fmt: skip

NUMBERING = ("", "", "Step {}: ", "{}. ", "({}) ", "**Step {}.** ")


def numbered(texts: Sequence[str], style: str) -> tuple[str, ...]:
    """Number the steps from 1 in the given style."""
    return tuple(style.format(number) + text for number, text in enumerate(texts, 1))


def listed(words: Sequence[str], last: str = "and") -> str:
    """Join words as in a sentence: a, b and c."""
    return f"{', '.join(words[:-1])} {last} {words[-1]}" if len(words) > 1 else words[0]


def some(rng: Random, words: Sequence[str], count: int) -> list[str]:
    """Draw `count` different items."""
    return rng.sample(words, count)


def sentence(text: str) -> str:
    """Capitalize the first letter."""
    return text[:1].upper() + text[1:]


def article(word: str) -> str:
    """Return the word with its indefinite article."""
    return ("an " if word[0] in "aeiou" else "a ") + word
