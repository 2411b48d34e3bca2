"""Join the steps of solutions with separators drawn at random, split them again, and compare the boundaries.

    python -m bench.segments --data DIR [--only REGEX] [--half develop] [-n 400] [--seed 0]

DIR holds `<source>.jsonl` files with a list of steps per row, in any format that is read. Solutions are drawn at random from
all files that match, from one half of them: patterns were chosen on the half "develop", figures are reported on "report". Own
marks of the steps ("Step 1:", "1.") are removed first. Every solution is joined with every separator; how numbers and bullets
look, and the gap after each, are drawn. In a second pass, a block of code, a displayed formula or a table follows one step of
each. A step of several lines has marks of its own that cannot be told from separators, so figures are also shown for solutions
without such steps. Exit code 1 if one of those is below `BARS`, or a cut is inside of code, a displayed formula or a table.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from zlib import crc32

from critic_prm.data.formats.convert import Options, read_trajectories
from critic_prm.data.segment.methods import segment
from critic_prm.data.trajectory import split_steps

SEPARATORS = ("newline", "blank line", "space", "numbering", "bullets")
BARS = {name: 0.75 if name == "space" else 0.95 for name in SEPARATORS}
NUMBERS = ("{}. ", "{}) ", "({}) ", "Step {}: ", "**Step {}:** ", "### Step {}\n")
BULLETS = ("- ", "* ", "• ")
BLOCKS = (
    "```python\ntotal = 1\n\n# Then add. So it grows.\ntotal += 2\n- 1. 2\n```",
    "\\[ a = 1.\n\nB = 2. \\]",
    "$$\nx = 1\n\ny = 2\n$$",
    "\\begin{align*}\n1. &= 2 \\\\\n\n- 3 &= 4. Then\n\\end{align*}",
    "| a | b |\n|---|---|\n| One. Two. | - three |",
)
_OWN_MARK = re.compile(r"\s*\**(?:Step \d+[:.]|\d+[.)])\**\s*")
_FORMULA = re.compile(r"\\\[.*?\\\]|\$\$.*?\$\$|\\begin\{(align|equation|array|cases|pmatrix)\*?\}.*?\\end\{\1\*?\}", re.DOTALL)


@dataclass
class Tally:
    """Boundaries that are right, made and wanted, and cuts inside of blocks."""

    right: int = 0
    made: int = 0
    wanted: int = 0
    inside: int = 0
    blocks: int = 0

    @property
    def precision(self) -> float:
        return self.right / max(self.made, 1)

    @property
    def recall(self) -> float:
        return self.right / max(self.wanted, 1)


def solutions(folder: Path, only: str, half: str) -> list[list[str]]:
    """The steps of all solutions of one half that have two or more, without their own marks."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        if not re.search(only, path.stem):
            continue
        for trajectory in read_trajectories(path, options=Options(segment="none")):
            steps = [text for text in (_OWN_MARK.sub("", step, count=1).strip() for step in trajectory.texts) if text]
            if len(steps) > 1 and crc32(f"{path.stem}/{trajectory.id}".encode()) % 2 == (half == "report"):
                found.append(steps)
    return found


def joined(steps: Sequence[str], separator: str, random: Random) -> tuple[str, list[int]]:
    """The text, and where each step begins, its mark included."""
    gap = {"newline": "\n", "blank line": "\n\n", "space": " "}.get(separator) or random.choice(("\n", "\n\n"))
    mark = {"numbering": random.choice(NUMBERS), "bullets": random.choice(BULLETS)}.get(separator, "")
    text, starts = "", []
    for number, step in enumerate(steps, 1):
        text += gap if text else ""
        starts.append(len(text))
        text += mark.format(number) + step
    return text, starts


def places(text: str, steps: Sequence[str]) -> list[int]:
    """Where the steps of a text begin."""
    found, place = [], 0
    for step in steps:
        place = text.index(step, place)
        found.append(place)
        place += len(step)
    return found


def compare(text: str, starts: Sequence[int], tally: Tally, split: Callable[[str], Sequence[str]]) -> None:
    """Count the boundaries that `split` makes, without the beginning of the text."""
    made, wanted = set(places(text, split(text))) - {0}, set(starts) - {0}
    tally.right += len(made & wanted)
    tally.made += len(made)
    tally.wanted += len(wanted)


def blocks_cut(text: str, blocks: Iterator[re.Match[str]] | list[re.Match[str]], tally: Tally) -> None:
    """Count the blocks, and the cuts inside of them."""
    made = places(text, segment(text)[0])
    for block in blocks:
        tally.blocks += 1
        tally.inside += any(block.start() < place < block.end() for place in made)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument("--only", default="", metavar="REGEX", help="names of the sources to draw from")
    parser.add_argument("--half", choices=("develop", "report"), default="report")
    parser.add_argument("-n", type=int, default=400, help="number of solutions")
    parser.add_argument("--separators", nargs="+", choices=SEPARATORS, default=SEPARATORS)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    random = Random(args.seed)
    drawn = solutions(args.data, args.only, args.half)
    drawn = random.sample(drawn, min(args.n, len(drawn)))
    one_line = [steps for steps in drawn if not any("\n" in step for step in steps)]
    print(f"{len(drawn)} solutions, {sum(map(len, drawn))} steps; every step of {len(one_line)} solutions is one line")
    all_blocks = all_inside = 0
    print("| separator | precision | recall | precision, steps of one line | recall | before: precision | recall |")
    print("|---|---|---|---|---|---|---|")
    good = True
    for separator in args.separators:
        every, lines, before, cut = Tally(), Tally(), Tally(), Tally()
        for steps in drawn:
            text, starts = joined(steps, separator, random)
            compare(text, starts, every, lambda text: segment(text)[0])
            compare(text, starts, before, split_steps)
            if "\n" not in "".join(steps):
                compare(text, starts, lines, lambda text: segment(text)[0])
            blocks_cut(text, _FORMULA.finditer(text), cut)
            block, at = random.choice(BLOCKS), random.randrange(len(steps))
            gap = random.choice(("\n", "\n\n"))
            text, _ = joined(
                [*steps[:at], steps[at] + gap + block + ("\n" if separator == "space" else ""), *steps[at + 1 :]],
                separator,
                random,
            )
            blocks_cut(text, [*re.finditer(re.escape(block), text)], cut)
        figures = [value for tally in (every, lines, before) for value in (tally.precision, tally.recall)]
        print(f"| {separator} | " + " | ".join(f"{value:.3f}" for value in figures) + " |")
        good &= min(figures[2:4]) >= BARS[separator] and not cut.inside
        all_blocks, all_inside = all_blocks + cut.blocks, all_inside + cut.inside
    print(f"{all_inside} of {all_blocks} blocks of code, displayed formulas and tables are cut")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
