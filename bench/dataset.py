"""Measure the speed of dataset commands and the accuracy of decontamination: python bench/dataset.py [ROWS] [DATA_DIR]

Creates ROWS (100,000) label rows of synthetic problems, five solutions each, with critiques, one in twenty a near
copy of another, and runs filter, dedupe, decontaminate and build on them, each in a separate process. Prints CPU and elapsed
seconds, rows per second, and the peak memory of the process. With DATA_DIR (SOURCE.jsonl files with `problem`),
plants 200 copies and paraphrases of the processbench problems for each of 10 seeds, and counts false alarms on others.
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_WORDS = """
apple bridge candle desk engine farmer garden harbour island jacket kettle lantern market needle orchard pencil quarry ribbon
sailor table uncle valley wagon yard zebra baker carpet doctor eagle forest
buys sells loses finds paints carries counts weighs sorts trades hides lends folds breaks mends washes
Tom Ann Raj Mei Sam Zoe Ola Kim Leo Eva Ian Uma
"""
_EACH = _WORDS.split()
NOUNS, VERBS, NAMES = _EACH[:30], _EACH[30:46], _EACH[46:]
_PLACES = "in the morning, at the fair, by the river, on the hill, near the church, after lunch, before dawn, all week"
PLACES = _PLACES.split(", ")


def problem_text(rng: random.Random) -> str:
    clauses = (
        f"{rng.choice(NAMES)} {rng.choice(VERBS)} {rng.randrange(2, 400)} {rng.choice(NOUNS)}s {rng.choice(PLACES)}"
        f" and then {rng.choice(VERBS)} {rng.randrange(2, 90)} of the {rng.choice(NOUNS)}s"
        for _ in range(4)
    )
    return ". ".join(clauses) + f". How many {rng.choice(NOUNS)}s are there {rng.choice(PLACES)}?"


def step_text(rng: random.Random) -> str:
    a, b = rng.randrange(2, 900), rng.randrange(2, 900)
    body = " ".join(rng.choice(NOUNS + VERBS) for _ in range(18))
    return f"From the {rng.choice(NOUNS)}s we take {a} and {b}, so that {a} + {b} = {a + b}, and {body} {rng.choice(PLACES)}."


def made(rows: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    rng = random.Random(seed)
    text = ""
    earlier: tuple[list[str], int] | None = None
    for number in range(rows):
        if number % 5 == 0:
            text = problem_text(rng)
            earlier = None
        size = rng.randint(3, 8)
        steps = [step_text(rng) for _ in range(size)]
        first = rng.choice([-1, -1, rng.randrange(size)])
        if earlier and number % 20 == 1:
            steps, first = [*earlier[0]], earlier[1]
            steps[-1] += " indeed"
            size = len(steps)
        earlier = steps, first
        last = size if first < 0 else first + 1
        values = [1.0] * last if first < 0 else [1.0] * first + [0.0]
        critiques = [
            f"The sum of the {rng.choice(NOUNS)}s was done again and comes to {rng.randrange(999)}." for _ in range(last)
        ]
        if number % 10 == 3:
            critiques[-1] = ""
        verdicts = [
            {"step": k, "verdict": "correct" if values[k] else "incorrect", "critique": critiques[k]} for k in range(last)
        ]
        yield {
            "id": f"r{number}",
            "problem": text,
            "steps": steps,
            "p_correct": values + [None] * (size - last),
            "p_from": "votes",
            "votes": [[int(v), 1] for v in values] + [[0, 0]] * (size - last),
            "first_error": first,
            "status": "ok",
            "judgements": [{"sample": 0, "status": "ok", "first_error": first, "keys": [], "verdicts": verdicts}],
            "critic": {"model": "made up"},
        }


def steps_of(folder: Path) -> list[tuple[str, list[str]]]:
    at = {name: str(folder / f"{name}.jsonl") for name in ("rows", "filtered", "once", "clean", "bench")}
    return [
        (
            "filter",
            ["filter", at["rows"], "-o", at["filtered"], "--ok", "--complete", "--critiques", "all", "--max-steps", "30"],
        ),
        ("dedupe", ["dedupe", at["filtered"], "-o", at["once"]]),
        ("decontaminate", ["decontaminate", at["once"], "--against", at["bench"], "-o", at["clean"]]),
        ("build (split)", ["build", at["clean"], "-o", str(folder / "set")]),
    ]


def measure(rows: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (folder / "rows.jsonl").open("w") as file:
            file.writelines(json.dumps(row) + "\n" for row in made(rows))
        rng = random.Random(99)
        with (folder / "bench.jsonl").open("w") as file:
            file.writelines(json.dumps({"problem": problem_text(rng)}) + "\n" for _ in range(2000))
        size = (folder / "rows.jsonl").stat().st_size / 1e6
        print(f"{rows:,} rows, {size:,.0f} MB")
        print(f"{'step':16} {'CPU s':>7} {'clock s':>8} {'rows/s':>9} {'MB':>6}  what it says")
        total = Counter[str]()
        for step, words in steps_of(folder):
            code = (
                "import resource, sys; from critic_prm.cli import main\n"
                "try: main(sys.argv[1:])\n"
                "except SystemExit as end:\n"
                "    if end.code: raise\n"
                "print('peak', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
            )
            start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run([sys.executable, "-c", code, "dataset", *words], capture_output=True, text=True, check=True)
            clock, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            *said, peak = done.stderr.strip().split("\n")
            total["cpu"] += round(1000 * cpu)
            total["clock"] += round(1000 * clock)
            memory = int(peak.split()[1]) / 1024
            print(f"{step:16} {cpu:7.1f} {clock:8.1f} {rows / cpu:9,.0f} {memory:6,.0f}  {said[0].split(' to ')[0]}")
        print(f"{'all':16} {total['cpu'] / 1000:7.1f} {total['clock'] / 1000:8.1f}")


def planted(folder: Path) -> None:
    from critic_prm.data.hashing import problem_key
    from critic_prm.datasets.similarity import Benchmark

    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "dataset"))
    from test_decontaminate import copied, renamed  # type: ignore[import-not-found]  # the tests' own way to rewrite a problem

    sources: dict[bool, dict[str, str]] = {True: {}, False: {}}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            text = json.loads(line)["problem"]
            sources[path.name.startswith("processbench")][problem_key(text)] = text
    problems = list(sources[True].values())
    others = [text for key, text in sources[False].items() if key not in sources[True]]
    index = Benchmark(problems)
    found = Counter[str]()
    for seed in range(10):
        rng = random.Random(seed)
        for number, problem in enumerate(rng.sample(problems, 200)):
            kind = "copies" if number % 2 else "paraphrases"
            found[kind] += 1
            found[f"{kind} found"] += index.match((copied if number % 2 else renamed)(problem, rng)) is not None
    for kind in ("copies", "paraphrases"):
        print(f"{kind}: {found[f'{kind} found']:,} of {found[kind]:,} found")
    start = time.process_time()
    signs = Counter(match.sign if (match := index.match(text)) else "none" for text in others)
    each = 1e6 * (time.process_time() - start) / len(others)
    print(f"{len(others):,} other problems against {len(problems):,}, {each:.0f} us each: {dict(signs.most_common())}")


if __name__ == "__main__":
    measure(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
    if len(sys.argv) > 2:
        planted(Path(sys.argv[2]))
