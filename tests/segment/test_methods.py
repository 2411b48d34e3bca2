"""Solutions in other people's shapes are split where a reader would split them, and never within code, formulas or tables."""

from __future__ import annotations

import re
from random import Random
from typing import get_args

import pytest

from critic_prm.data.segment.methods import LONGEST, METHODS, SHORTEST, segment, units
from critic_prm.data.segment.rows import PLACES, Segment
from tests.effort import times_as_long

GSM8K = (
    "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\nNatalia sold 48+24 = <<48+24=72>>72 clips altogether in April and May.\n"
)
MATH = r"""For the piecewise function to be continuous, the cases must "meet" at $2$ and $-2$. For example, $ax+3$ and $x-5$
must be equal when $x=2$. This implies $a(2)+3=2-5$, which we solve to get $2a=-6 \Rightarrow a=-3$. Similarly, we have
\[
  2(-2) - b = (-2) - 5,

  -4 - b = -7.
\]
Hence $b = 3$. So $a+b=-3+3=\boxed{0}$."""
R1 = """<think>
Okay, so I need to find 17 * 24. Let me do it in parts. 17 * 20 is 340, and 17 * 4 is 68, so that the sum of both is 408.

Wait, is 17 * 4 really 68? 10 * 4 is 40 and 7 * 4 is 28, and 40 plus 28 is 68. Yes, that part was right after all, good.

Alternatively, 17 * 24 is 17 * 25 minus 17, which is 425 minus 17, and this is 408 again. Both ways agree with each other.
</think>

To multiply 17 by 24, split 24 into 20 and 4.

**Step 1:** 17 × 20 = 340

**Step 2:** 17 × 4 = 68

The answer is \\boxed{408}."""
MARKDOWN = """### Plan

We read the table first:

| item | price |
|------|-------|
| 1. pen | 2.50 |
| - ink | 4.00 |

Then we add the prices in Python:

```python
total = 2.50

total += 4.00  # 1. add
```

The total is 6.50."""
CHINESE = "首先，小明有3个苹果。然后妈妈又给了他5个（一共8个）！所以答案是8。"
AGENT = 'I look it up.\nTool call: search {"q": "a. B. c\\n- d"}'


@pytest.mark.parametrize(
    ("text", "steps", "used"),
    [
        (GSM8K, [0, "Natalia sold 48+24"], "lines"),
        (R1, [0, "Wait, is 17", "Alternatively", "To multiply", "**Step 1", "**Step 2", "The answer"], "thoughts"),
        (R1.partition("</think>")[2], [2, "**Step 1", "**Step 2", "The answer"], "numbered"),
        (MARKDOWN, [0, "Then we add", "The total"], "paragraphs"),
        (CHINESE, [0, "然后", "所以"], "sentences"),
        ("步骤1：计算 3×4。\n步骤2：加上 5。\n步骤3：得到 17。", [0, "步骤2", "步骤3"], "numbered"),
        ("第一步，先算。\n第二步，再加。", [0, "第二步"], "numbered"),
        ("① a\n② b", [0, "②"], "numbered"),
        ("We add.\r\n\r\nWe divide.\r\n\r\nDone: 5.", [0, "We divide", "Done"], "paragraphs"),
        ("We add.\r\nWe divide.\r\nSo it is 5.", [0, "We divide", "So it"], "lines"),
        ("The plan:\n- add\n- divide\n  - by two\n- done\n\nSo it is 5.", [0, "- divide", "- done", "So it"], "numbered"),
        ("1. Add:\n   1. two\n   2. three\n2. Divide.\n3. Done.\n\nIt is 5.", [0, "2. Divide", "3. Done", "It is"], "numbered"),
        ("Step 1: add 2 and 3. Step 2: divide by 5. Step 3: done.", [0, "Step 2", "Step 3"], "numbered"),
        ("He earns $5. So he has 2*3 = 6 Then, e.g. Mr. B. adds 1.5 to it.", [0, "So he", "Then"], "sentences"),
        ("It costs $5. He pays $10. So he gets $5 back.", [0, "He pays", "So he"], "sentences"),
        ("This is a paragraph of prose that\nwas filled up to a width.\nSo it has two\nsentences.", [0, "So it"], "sentences"),
        ("We have\n= 5 + 3\n= 8.\nSo it is 8.", [0, "So it"], "lines"),
        (AGENT, [0, "Tool call"], "lines"),
        ("42", [0], "sentences"),
    ],
    ids=str,
)  # fmt: skip
def test_auto_splits_where_a_reader_would(text: str, steps: list[str | int], used: str) -> None:
    """`steps` are the beginnings of the steps; a number is the place of the first one."""
    parts, how = segment(text)
    first, *others = steps
    places = [first, *(text.index(str(start)) for start in others)]
    assert how == used
    assert [text.index(part) for part in parts] == places
    assert all(part == part.strip() for part in parts)
    assert [re.sub(r"\s", "", part) for part in parts] == [
        re.sub(r"\s", "", text[int(a) : int(b)]) for a, b in zip(places, [*places[1:], len(text)], strict=True)
    ]


def test_a_displayed_formula_belongs_to_its_sentence() -> None:
    parts, how = segment(MATH)
    assert how == "sentences"
    assert parts[-3].startswith("Similarly")
    assert parts[-3].endswith("\\]")
    assert segment("We compute \n\n\\[ 2*3 = 6 \\] \n\n Then we add.")[0] == ["We compute \n\n\\[ 2*3 = 6 \\]", "Then we add."]
    assert segment("We have\n\n$$x = 1,$$\n\nwhere x is big.\n\nDone.")[0] == [
        "We have\n\n$$x = 1,$$\n\nwhere x is big.",
        "Done.",
    ]


BLOCKS = (
    "```python\na = 1\n\nb = 2\n- c\n1. d\n```",
    "~~~\nOne. Two.\n\nThree.\n~~~",
    "\\[ a = 1. \n\n B = 2. \\]",
    "$$\na = 1\n\nb = 2\n$$",
    "\\begin{align*}\na &= 1. \\\\\n\nB &= 2.\n\\end{align*}",
    "| a | b |\n|---|---|\n| One. Two. | - c |",
    "<tool_call>\n{}\n\n1. a\n</tool_call>",
)


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("method", [*METHODS, "auto"])
@pytest.mark.parametrize("gap", ["\n", "\n\n"])
def test_no_method_cuts_what_belongs_together(block: str, method: str, gap: str) -> None:
    text = gap.join(["First we look at it.", "It is this:", block, "So we are done.", "Wait, we are not."])
    assert any(block in part for part in segment(text, method)[0])
    assert any(block in text[start:end] for start, end in units(text))


@pytest.mark.parametrize(
    "text",
    ["", "  \n ", "<think>", "</think>", "<think></think>", "$$", "```", "\\[", "1.", "- \n- ", "</think>a", "a<think>b"],
)
@pytest.mark.parametrize("method", [*METHODS, "auto", "none"])
def test_texts_with_little_in_them(text: str, method: str) -> None:
    parts, _ = segment(text, method)
    assert "".join("".join(parts).split()) == "".join(text.split())


def test_thoughts_have_a_shortest_and_a_longest_length() -> None:
    trace = "<think>" + " ".join(f"Wait, I add {n}. The sum is {n} now, says the book." for n in range(400)) + "</think>"
    *parts, _last = segment(trace)[0]
    assert len(parts) > 50
    assert all(SHORTEST <= len(part) <= LONGEST + 10 for part in parts)
    flat = "\n\n".join("We go on and on, and nothing changes here. " * 5 for _ in range(100))
    assert all(SHORTEST <= len(part) <= LONGEST for part in segment(flat, "thoughts")[0])


def test_a_trace_without_tags_and_a_thought_that_never_ends() -> None:
    thoughts = [
        f"{turn} let me compute number {n}. " + "It is a long sum of many terms. " * 8 for n, turn in enumerate(["Wait,"] * 6)
    ]
    assert segment("\n\n".join(thoughts))[1] == "thoughts"
    assert segment("<think>\n" + "\n\n".join(thoughts))[0][0].startswith("<think>")
    parts, _ = segment("I think so. " * 3 + "</think>It is 5.\n\nDone.")
    assert parts[-2:] == ["It is 5.", "Done."]


HOSTILE = (
    *(
        "a",
        "\n",
        " ",
        ".",
        "#",
        "*",
        "- \n",
        "1. ",
        "\n1. ",
        "$",
        "$a ",
        "`",
        "```",
        "\n```",
        "\\[",
        "\\( ",
        "\\begin{align}",
        "<a ",
    ),
    *("<think>", "|\n", "\n|-|", "Wait. ", "Step 1: ", "。", "a:\n\n", "\r\n", "\n  ", ". A", "\n\n", "x So "),
)


@pytest.mark.parametrize("unit", HOSTILE, ids=repr)
def test_hostile_text_takes_linear_time(unit: str) -> None:
    """Eight times the text takes about eight times as long; with quadratic time it would be 64 times."""
    short, long = unit * (2_000 // len(unit)), unit * (16_000 // len(unit))
    assert times_as_long(lambda: segment(long), lambda: segment(short), enough=24) <= 40


def test_every_method_is_an_option_and_has_a_description() -> None:
    assert {*METHODS, "auto", "none", "llm"} == set(get_args(Segment))
    assert set(PLACES) == {*METHODS, "llm"}


MARKS = [
    "\\",
    "$",
    "$$",
    "\\[",
    "\\]",
    "\\(",
    "\\)",
    "`",
    "```",
    "~~~",
    "|",
    "|---|",
    "<think>",
    "</think>",
    "</thinking>",
    "<table>",
    "</table>",
    "<a>",
    "<",
    "\\begin{align}",
    "\\end{align}",
    "-",
    "*",
    "**",
    "#",
    "1.",
    "2)",
    "0.",
    "Step",
    "1:",
    "(1)",
    "第1步",
    "①",
    ":",
    ".",
    "!",
    "。",
    '"',
    ")",
    "=",
    "Wait,",
    "Hmm",
    "ok.",
    "a",
    "B",
    "word.",
    "3.14",
    "Tool",
    "call:",
]


def test_no_text_is_lost_or_invented() -> None:
    """For any mixture of marks, the steps are the text without the white space between them."""
    random = Random(15)
    tokens = [*MARKS, *MARKS, " ", " ", "\n", "\n\n", "\r\n", "\t", "\x85", "\u2028"]
    for _ in range(150):
        text = "".join(random.choices(tokens, k=random.choice((1, 2, 5, 20, 60))))
        for method in ("auto", *METHODS):
            steps, _ = segment(text, method)
            assert "".join("".join(steps).split()) == "".join(text.split()), (method, text)
            assert all(step.strip() for step in steps), (method, text)
    assert segment(" \n", "thoughts")[0] == []
