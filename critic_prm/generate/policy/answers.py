"""Extract the final answer of a solution and compare it with the gold answer.

Plain normalization rules run first; math-verify decides what they cannot.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from importlib.util import find_spec

from critic_prm.registry import install

TIME_LIMIT = 10.0
"""Seconds allowed per comparison in the worker. A worker that exceeds the limit is killed and replaced."""
MOST_BOXES = 20
LONGEST = 2000
"""Maximum length of an answer in characters. Longer text is not treated as a final answer."""

_STATED = re.compile(
    r"(?:final answer|answer|result)\**[ \t]*(?:is|:|=)[ \t:]*\**[ \t]*(?P<said>[^\n]+)|^[ \t]*####[ \t]*(?P<marked>[^\n]+)",
    re.IGNORECASE | re.MULTILINE,
)


def final_answer(text: str) -> str | None:
    """Return the final answer that a solution states, or None.

    The last \\boxed{...} wins, then what follows the last "####" or "the answer is". Numbers that merely occur in the last
    sentence do not count: guessing would mark wrong solutions as correct.
    """
    if (boxed := _last_box(text)) is not None:
        return boxed
    found = list(_STATED.finditer(text))
    if not found:
        return None
    said = found[-1].group("said") or found[-1].group("marked")
    return _trimmed(said) or None


def plainly_same(answer: str, gold: str) -> bool | None:
    """Compare two answers by plain rules.

    Returns True when they normalize to the same text or number, False when both are plain numbers and differ, and None when the
    rules cannot decide.
    """
    left, right = _normal(answer), _normal(gold)
    if not left or not right:
        return False
    if left == right:
        return True
    one, two = _numbers(left), _numbers(right)
    if one and two:
        return not one.isdisjoint(two)
    return None


@dataclass
class Grader:
    """Compare answers with the gold answer, each pair only once.

    `counts` records how pairs were compared ("plain", "math-verify", "timed out", "failed", "not told apart"); `note` is a
    warning for the user, or "".

    math-verify runs in a separate process because arbitrary model output can cost it unbounded time and memory. If a comparison
    times out or math-verify is not installed, answers that the plain rules cannot decide count as different.
    """

    limit: float = TIME_LIMIT
    counts: Counter[str] = field(default_factory=Counter)
    _known: dict[tuple[str, str], bool] = field(default_factory=dict)
    _worker: asyncio.subprocess.Process | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def note(self) -> str:
        """A warning if math-verify was needed but is not installed, else ""."""
        if available() or not self.counts["not told apart"]:
            return ""
        return (
            "math-verify is not installed: answers are compared after normalising alone, so equal answers written differently"
            f" count as different ({install('math')})"
        )

    async def same(self, answer: str | None, gold: str) -> bool:
        """Return whether `answer` equals the gold answer. A missing answer does not."""
        if answer is None or len(answer) > LONGEST:
            return False
        pair = (answer, gold)
        if pair not in self._known:
            self._known[pair] = await self._compare(answer, gold)
        return self._known[pair]

    async def close(self) -> None:
        """Stop the worker process."""
        async with self._turn:
            await self._end()

    async def _compare(self, answer: str, gold: str) -> bool:
        plain = plainly_same(answer, gold)
        if plain is not None:
            self.counts["plain"] += 1
            return plain
        if not available():
            self.counts["not told apart"] += 1
            return False
        async with self._turn:
            try:
                async with asyncio.timeout(self.limit):
                    verdict = await self._ask(answer, gold)
            except (TimeoutError, OSError, ValueError) as error:
                self.counts["timed out" if isinstance(error, TimeoutError) else "failed"] += 1
                await self._end()
                return False
            except BaseException:  # cancelled: the next comparison would read this one's verdict
                await self._end()
                raise
        self.counts["math-verify"] += 1
        return verdict

    async def _ask(self, answer: str, gold: str) -> bool:
        """Send one comparison to the worker. Raises OSError or ValueError when the worker has died."""
        if self._worker is None:
            self._worker = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "critic_prm.generate.policy.answers",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        assert self._worker.stdin is not None
        assert self._worker.stdout is not None
        self._worker.stdin.write(json.dumps([answer, gold]).encode() + b"\n")
        await self._worker.stdin.drain()
        return bool(json.loads(await self._worker.stdout.readline()))

    async def _end(self) -> None:
        worker, self._worker = self._worker, None
        if worker is None:
            return
        if worker.returncode is None:
            worker.kill()
        await worker.communicate()


def available() -> bool:
    """Return whether math-verify is installed."""
    return find_spec("math_verify") is not None


def _last_box(text: str) -> str | None:
    """Return the content of the last \\boxed or \\fbox with balanced braces."""
    # A looping model may open thousands of boxes without closing any; each would be scanned to the end of the text.
    for match in reversed(list(re.finditer(r"\\(?:boxed|fbox)[ \t]*\{", text))[-MOST_BOXES:]):
        depth = 1
        for place in range(match.end(), len(text)):
            depth += {"{": 1, "}": -1}.get(text[place], 0)
            if depth == 0:
                return text[match.end() : place].strip() or None
    return None


def _trimmed(said: str) -> str:
    """Strip the surrounding sentence from an answer: following sentences, emphasis marks and the final period."""
    said = re.split(r"\.[ \t]+(?=[A-Z])", said.strip())[0]
    return said.strip().strip("*").rstrip(".").strip().strip("*").strip()


_TEXT = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox|operatorname)[ \t]*\{([^{}]*)\}")
_DROPPED = re.compile(r"\\left|\\right|\\[,;:!> ]|\\\$|\$|\\displaystyle|\\qquad|\\quad|\^\{?\\circ\}?|\\degree|°|~")
_FRACTION = re.compile(r"\\[dtc]?frac[ \t]*\{([^{}]+)\}[ \t]*\{([^{}]+)\}")
_SHORT_FRACTION = re.compile(r"\\[dtc]?frac[ \t]*(\d)[ \t]*(\d)")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_UNITS = re.compile(
    r"(?<=\d)(?:[a-z]*(?:dollars?|cents?|degrees?|percent|meters?|metres?|feet|inches|miles?|hours?|minutes?|seconds?|days?"
    r"|weeks?|months?|years?|people|students?|units?)|cm|mm|km|kg|m|g)(?:\^\{?[23]\}?)?$"
)
_NAMED = re.compile(r"^[a-z](?:\([a-z]\))?=(?=[^=]+$)")


def _normal(answer: str) -> str:
    """Normalize typography: dollar signs, \\text, spaces, thousands separators, \\dfrac, units after a number, "x = 5"."""
    text = answer.strip().strip("*").strip()
    text = _TEXT.sub(r"\1", text)
    text = _DROPPED.sub("", text).replace("−", "-").replace("\\{", "{").replace("\\}", "}").replace("\\%", "%")
    text = _SHORT_FRACTION.sub(r"\\frac{\1}{\2}", text)
    text = _FRACTION.sub(r"(\1)/(\2)", text)
    if not re.search(r"[(\[{]", text):  # in a tuple or set the comma separates two numbers
        text = _THOUSANDS.sub("", text)
    text = re.sub(r"\s+", "", text).lower().rstrip(".,;")
    text = _NAMED.sub("", text)
    text = _UNITS.sub("", text)
    if re.fullmatch(r"\([a-z]\)", text):  # a multiple-choice letter
        text = text[1]
    return text


_NUMBER = re.compile(r"([+-]?)\(?([+-]?(?:\d+(?:\.\d*)?|\.\d+))\)?(?:/\(?([+-]?\d+(?:\.\d+)?)\)?)?(%?)")


def _numbers(text: str) -> set[Fraction]:
    """Return the possible values of a plain number; a percentage has two. Empty for any other text."""
    match = _NUMBER.fullmatch(text)
    if match is None or len(text) > 60:
        return set()
    sign, above, below, percent = match.groups()
    try:
        value = Fraction(above) / Fraction(below or 1) * (-1 if sign == "-" else 1)
    except ZeroDivisionError:
        return set()
    return {value, value / 100} if percent else {value}


def main() -> None:
    """Answer comparisons from stdin until it closes."""
    from importlib import import_module

    math_verify = import_module("math_verify")
    parse, verify = math_verify.parse, math_verify.verify

    for line in sys.stdin:
        answer, gold = json.loads(line)
        try:
            # math-verify's own timeouts are off: the parent enforces the time limit without relying on signals.
            pair = [parse(_mathematics(text), parsing_timeout=None) for text in (gold, answer)]
            same = all(pair) and bool(verify(*pair, timeout_seconds=None))
        except Exception:  # model output is arbitrary: an answer that cannot be compared counts as wrong
            same = False
        print(json.dumps(same), flush=True)


def _mathematics(text: str) -> str:
    """Wrap a bare answer in dollar signs; math-verify reads LaTeX only inside them."""
    return text if "$" in text or "\\boxed" in text else f"${text}$"


if __name__ == "__main__":
    main()
