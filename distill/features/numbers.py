"""Trace the origin of a step's numbers: the problem, earlier steps, one operation on known numbers, or unknown."""

from __future__ import annotations

from math import log10

from distill.features.text import Scan

CONSTANTS = (1.0, 2.0, 100.0)
KNOWN = 24
"""Maximum number of known numbers that take part in derivations; new ones replace the oldest, the first of the problem last."""
PROTECTED = 12
"""Numbers of the problem that no later number replaces."""


def _key(value: float) -> int:
    """Return the key of a number; numbers that agree to four decimals are equal."""
    return int(value * 1e4 + 0.5)


class Numbers:
    """Tracks the numbers of one solution."""

    NAMES = (
        "numbers", "numbers_distinct", "from_problem", "from_previous", "from_earlier", "new", "new_share", "derived",
        "derived_share", "nowhere", "nowhere_share", "largest", "growth", "decimals", "long_decimals", "breaks_integers",
        "result_seen", "result_derived", "result_nowhere", "result_in_problem", "result_decimal", "result_size", "problem_used",
        "first_used", "previous_result_used", "small_share", "problem_numbers", "known_numbers", "nowhere_before",
        "derived_before", "nowhere_rate_before",
    )  # fmt: skip

    def __init__(self, problem: Scan) -> None:
        values = [v for _, v in problem.numbers]
        self.given = {_key(v) for v in values}
        self.integers = all(v.is_integer() for v in values)
        self.pool: list[float] = [*CONSTANTS]
        self.known = {_key(v) for v in CONSTANTS}
        self.derivable: set[int] = set()
        self.earlier: set[int] = set()
        self.previous: set[int] = set()
        self.used: set[int] = set()
        self.result: int | None = None
        self.nowhere = self.derived = self.seen = 0
        self.limit = len(CONSTANTS) + KNOWN
        for value in values[:KNOWN]:
            self._know(value, _key(value))
        self.protected = min(len(self.pool), len(CONSTANTS) + PROTECTED)
        self.top = max(values, default=1.0)

    def _know(self, value: float, key: int) -> None:
        """Add a number, and the results of one operation on it and each other known number."""
        if key in self.known:
            return
        self.known.add(key)
        if len(self.pool) >= self.limit:
            self.known.discard(_key(self.pool.pop(self.protected)))
        add, scaled = self.derivable.add, value * 1e4
        for other in self.pool:
            # The same as _key, inlined: this is the innermost loop of all features.
            product = scaled * other + 0.5
            add(int(scaled + other * 1e4 + 0.5))
            add(int(abs(scaled - other * 1e4) + 0.5))
            add(int(product))
            add(int(product / 100 + 0.5))
            if other:
                add(int(scaled / other + 0.5))
            if value:
                add(int(1e4 * other / value + 0.5))
        add(int(scaled * value + 0.5))
        self.pool.append(value)

    def step(self, scan: Scan) -> tuple[float, ...]:
        values = [_key(v) for _, v in scan.numbers]
        n = len(values)
        distinct = set(values)
        largest = max((v for _, v in scan.numbers), default=0.0)
        problem = previous = earlier = new = derived = nowhere = decimals = long = small = breaks = 0
        last = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        before, here = self.earlier, set[int]()
        for (token, value), key in zip(scan.numbers, values, strict=True):
            is_given, is_earlier, is_repeat = key in self.given, key in before, key in here
            problem += is_given
            previous += key in self.previous
            earlier += is_earlier
            small += value <= 10
            whole = value.is_integer()
            if not whole:
                decimals += 1
                long += len(token) - token.find(".") > 3
                breaks += self.integers
            is_derived = False
            if not (is_given or is_earlier or is_repeat):
                new += 1
                is_derived = key in self.derivable
                derived += is_derived
                nowhere += not is_derived
            here.add(key)
            if n <= KNOWN:
                self._know(value, key)
            last = (
                float(is_earlier), float(is_derived), float(not (is_given or is_earlier or is_repeat or is_derived)),
                float(is_given), float(not whole), log10(1 + abs(value)),
            )  # fmt: skip
        fresh = (distinct & self.given) - self.used
        self.used |= fresh
        share = 1.0 / n if n else 0.0
        total = len(self.given) or 1
        row = (
            n, len(distinct), problem * share, previous * share, earlier * share, new, new * share, derived, derived * share,
            nowhere, nowhere * share, log10(1 + largest), log10((1 + largest) / (1 + self.top)), decimals, long, breaks,
            *last, len(self.used) / total, len(fresh) / total,
            float(self.result in distinct) if self.result is not None else -1.0, small * share, len(self.given),
            len(self.pool), self.nowhere, self.derived, self.nowhere / (self.seen or 1),
        )  # fmt: skip
        self.nowhere += nowhere
        self.derived += derived
        self.seen += n
        self.earlier |= distinct
        self.previous = distinct
        self.top = max(self.top, largest)
        if values:
            self.result = values[-1]
        return row
