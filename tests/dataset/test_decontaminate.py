"""Problems of a benchmark planted among others: copies and paraphrases by renaming are found, other problems are left alone."""

from __future__ import annotations

import difflib
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from critic_prm.data.hashing import problem_key
from critic_prm.data.records.reading import read_records, write_records
from critic_prm.datasets.decontaminate import DecontaminateOptions, decontaminate
from critic_prm.datasets.rows import read_rows
from critic_prm.datasets.similarity import Benchmark
from critic_prm.errors import InputError, UsageError

NAMES = ["Aiko", "Bram", "Chidi", "Dorothea", "Emre", "Fatima", "Goran", "Hye-jin", "Ines", "Jamal", "Kwame", "Lucia"]
NUMERALS = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "twelve", "fifteen", "twenty", "sixty"]


def renamed(problem: str, rng: random.Random) -> str:
    """The same problem with other names, numbers and genders, as one writes it who wants to hide where it is from."""
    starts = {match.start(1) for match in re.finditer(r"(?:^|[.?!:]\s+|\n\s*)([A-Z])", problem)}
    found = {m[0] for m in re.finditer(r"(?<![\\\w])[A-Z][a-z]+(?=\b)", problem) if m.start() not in starts}
    others = rng.sample(NAMES, min(len(found), len(NAMES))) + [f"{rng.choice(NAMES)} {chr(65 + i % 26)}" for i in range(99)]
    fresh = dict(zip(sorted(found), others, strict=False))
    text = re.sub(r"(?<![\\\w])[A-Z][a-z]+\b", lambda m: fresh.get(m[0], m[0]), problem)

    def number(match: re.Match[str]) -> str:
        before, behind = text[: match.start()][-1:], text[match.end() :][:1]
        if rng.random() < 0.2 and before == " " and behind in (" ", ".", ","):
            return rng.choice(NUMERALS)
        return str(rng.randrange(2, 900))

    text = re.sub(r"\d+(?:[.,]\d+)*", number, text)
    if rng.random() < 0.5:
        turn = {"he": "she", "she": "he", "his": "her", "her": "his", "He": "She", "She": "He", "His": "Her", "Her": "His"}
        text = re.sub(r"\b(?:[Hh]e|[Ss]he|[Hh]is|[Hh]er)\b", lambda m: turn[m[0]], text)
    return text


def copied(problem: str, rng: random.Random) -> str:
    """The same problem in another dress: spaces, dollar signs, case, or a question asked around it."""
    dress = rng.randrange(4)
    if dress == 0:
        return "  ".join(problem.split())
    if dress == 1:
        return problem.replace("$", "").replace("\\left", "").replace("\\right", "")
    return problem.upper() if dress == 2 and "\\" not in problem else f"{problem}\n"


def synthetic(count: int, seed: int) -> list[str]:
    """Word problems of made-up kinds, no two of them from one template."""
    rng = random.Random(seed)
    things = ["kites", "jars", "maps", "lamps", "bricks", "shells", "coins", "ropes", "stamps", "plums", "nails", "cards"]
    acts = ["sells", "loses", "paints", "folds", "carries", "buries", "counts", "weighs", "sorts", "trades", "hides", "lends"]
    places = ["market", "harbour", "attic", "library", "valley", "station", "orchard", "museum", "kitchen", "bridge"]
    problems = []
    for _ in range(count):
        who, other = rng.sample(["Tom", "Ann", "Raj", "Mei", "Sam", "Zoe"], 2)
        clauses = [
            f"{rng.choice([who, other])} {rng.choice(acts)} {rng.randrange(3, 90)} {rng.choice(things)}"
            f" at the {rng.choice(places)}"
            for _ in range(rng.randint(3, 5))
        ]
        wish = rng.choice(["still have", "owe", "need", "see"])
        end = f"How many {rng.choice(things)} does {who} {wish} at the {rng.choice(places)}?"
        problems.append(". Then ".join(clauses) + ". " + end)
    return problems


def check_planted(index: Benchmark, benchmark: Sequence[str], others: Sequence[str], seed: int) -> None:
    rng = random.Random(seed)
    missed = []
    for number, problem in enumerate(rng.sample(list(benchmark), 200)):
        planted = (copied if number % 2 else renamed)(problem, rng)
        match = index.match(planted)
        if match is None:
            missed.append(planted)
    assert not missed
    alarms = [(problem, match) for problem in others if (match := index.match(problem))]
    # sources share and derive problems; a false alarm is one on a problem that does not look like its match to difflib either
    texts = list({problem_key(problem): problem for problem in benchmark}.values())
    false = [
        (p, texts[m.number])
        for p, m in alarms
        if difflib.SequenceMatcher(None, p.split(), texts[m.number].split()).ratio() < 0.4
    ]
    assert len(false) / len(others) < 0.01, false[:5]


def test_200_planted_problems_are_found_among_synthetic_ones() -> None:
    problems = synthetic(3000, 7)
    check_planted(Benchmark(problems[:1000]), problems[:1000], problems[1000:], 1)


@pytest.fixture(scope="module")
def real(shared_data: Path) -> tuple[Benchmark, list[str], list[str]]:
    """The index of real benchmarks, their problems, and the problems of other sources."""
    sources: dict[bool, dict[str, str]] = {True: {}, False: {}}
    for path in sorted((shared_data / "open").glob("*.jsonl")):
        for record in read_records(path):
            problem = record.data["problem"]
            sources[path.name.startswith("processbench")][problem_key(problem)] = problem
    others = [problem for key, problem in sources[False].items() if key not in sources[True]]
    benchmark = list(sources[True].values())
    return Benchmark(benchmark), benchmark, others


@pytest.mark.parametrize("seed", range(5))
def test_200_planted_problems_are_found_in_real_benchmarks(real: tuple[Benchmark, list[str], list[str]], seed: int) -> None:
    index, benchmark, others = real
    check_planted(index, benchmark, others if seed == 0 else others[:200], seed)


LONG = (
    "A farmer has a field that is three times as long as it is wide, and a fence of 240 metres goes once around it."
    " He wants to plant a tree every 6 metres along the fence. How many trees does he need?"
)


@pytest.mark.parametrize(
    ("problem", "sign"),
    [
        (LONG, "same text"),
        (LONG.upper(), "same text"),
        (LONG.replace("240", "1,200").replace("three", "5").replace("He", "She"), "renamed"),
        (LONG.replace("240", "90").replace("three", "7").upper(), "renamed"),
        (LONG.replace("plant a tree", "put a lantern").replace("trees", "lanterns"), "near"),
        ("Here is a task from an old book, of which nobody knows the author or the year in which it was set. Solve it"
         " in full, write down every step of the way, and box the answer at the end, with its unit. " + LONG, "contained"),
        (LONG.partition(" He wants")[0] + " What is the area of this field, in square metres, and what would a second fence"
         " cost that divides it into two squares, at two euros a metre, if the gate is left out?", "shared passage"),
        ("A fence goes around a field. How many trees are there?", None),
        ("What is 3 + 4?", None),
        ("?", None),
    ],
)  # fmt: skip
def test_every_sign_has_its_case(problem: str, sign: str | None) -> None:
    match = Benchmark([*synthetic(200, 3), LONG]).match(problem)
    assert (match and match.sign) == sign
    if match:
        assert match.number == 200
        assert 0.5 <= match.similarity <= 1


def test_set_phrases_make_no_contamination() -> None:
    end = " where m and n are relatively prime positive integers. Find m + n."
    problems = [f"{text.removesuffix('?')}, as a fraction m/n{end}" for text in synthetic(400, 11)]
    index = Benchmark(problems[:200])
    assert sum(index.match(problem) is not None for problem in problems[200:]) == 0


def test_problems_of_one_template_are_compared_as_they_are_where_that_is_asked_for() -> None:
    rng = random.Random(1)
    problems = [f"Evaluate: (({rng.randrange(99)} + {rng.randrange(99)}) * {rng.randrange(99)}) =" for _ in range(300)]
    masked = Benchmark(problems[:150])
    assert sum(masked.match(problem) is not None for problem in problems[150:]) == 150
    literal = Benchmark(problems[:150], DecontaminateOptions(literal=True))
    assert sum(literal.match(problem) is not None for problem in problems[150:]) == 0
    assert all(literal.match(problem.upper()) for problem in problems[:150])


def test_an_empty_benchmark_matches_nothing() -> None:
    assert Benchmark([]).match("What is 3 + 4?") is None


def test_what_went_is_listed_with_its_match(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": str(n), "problem": problem, "steps": ["s"], "label": -1} for n, problem in enumerate(synthetic(30, 2))
    ]
    bench = [{"id": "b7", "problem": rows[7]["problem"]}, {"id": "b9", "problem": f"{rows[9]['problem']} "}]
    write_records(tmp_path / "in.jsonl", [*rows, {**rows[7], "id": "again", "steps": ["t"], "label": 0}])
    write_records(tmp_path / "bench.jsonl", bench)
    out, gone = tmp_path / "out.jsonl", tmp_path / "gone.jsonl"
    report = decontaminate(tmp_path / "in.jsonl", [tmp_path / "bench.jsonl"], out, removed=gone)
    assert [row.id for row in read_rows(out)] == [str(n) for n in range(30) if n not in (7, 9)]
    listed = [record.data for record in read_records(gone)]
    assert [(one["id"], one["row"], one["sign"], one["match_id"]) for one in listed] == [
        ("7", 8, "same text", "b7"),
        ("9", 10, "same text", "b9"),
        ("again", 31, "same text", "b7"),
    ]
    assert listed[0]["benchmark"] == "bench.jsonl"
    assert listed[0]["match"] == bench[0]["problem"]
    assert report["problems"] == {"distinct": 30, "removed": 2}
    assert report["left_out"] == {"same text": {"correct": 2, "erroneous": 1}}
    assert report["rows_out"] == 28


def test_a_benchmark_may_be_in_any_format_or_problems_alone(tmp_path: Path) -> None:
    write_records(tmp_path / "in.jsonl", [{"problem": LONG, "steps": ["s"]}])
    for bench in (
        {"question": LONG},
        {"prompt": LONG, "completions": ["s"], "labels": [1]},
        {"question": LONG, "process": "Step 1: s ки", "labels": [1]},
    ):
        write_records(tmp_path / "bench.jsonl", [bench])
        assert decontaminate(tmp_path / "in.jsonl", [tmp_path / "bench.jsonl"], tmp_path / "o.jsonl")["rows_out"] == 0
    write_records(tmp_path / "bench.jsonl", [{"question": LONG}, {"answer": 3}])
    with pytest.raises(InputError, match=r'bench\.jsonl:2: "question" is missing'):
        decontaminate(tmp_path / "in.jsonl", [tmp_path / "bench.jsonl"], tmp_path / "o.jsonl")
    with pytest.raises(UsageError, match="--near is 0; it must be above 0"):
        decontaminate(tmp_path / "in.jsonl", [tmp_path / "bench.jsonl"], tmp_path / "o.jsonl", DecontaminateOptions(near=0))
