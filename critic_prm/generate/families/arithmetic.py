"""Word problems and expressions solved with written equations; most planted errors make an equation false."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from random import Random

from critic_prm.generate.families._common import Impossible, Run, SimulatedTask, sentence
from critic_prm.generate.families._expressions import draw_expression
from critic_prm.generate.families._stories import (
    Quantity,
    Story,
    Style,
    apply,
    compare,
    draw_style,
    machine,
    misread,
    results,
    savings,
    shop,
    slips,
    stock,
    transposed,
    trip,
)  # fmt: skip
from critic_prm.generate.family import FamilyTask

# The first two write a false equation; the others write true equations that are wrong for the problem.
KINDS = {
    "slip": 74.0,  # 12 * 7 = 86
    "dropped-term": 60.0,  # 12 + 8 + 5 = 20
    "operator": 8.0,  # 45 + 12 = 57 where 12 should be subtracted
    "misread": 6.0,  # 31 for 13
    "carried": 6.0,  # continues with a number other than its own result
    "missing-term": 16.0,  # 12 + 8 = 20, with the 5 forgotten
    "percent": 40.0,  # 5% taken as 0.5, or 20% off 80 as 80 - 20
    "order": 40.0,  # 4 + 5 * 2 evaluated from left to right
    "answer": 4.0,  # reports a number other than its own result
}

STORIES: Mapping[Callable[[Random, int], Story], int] = {
    stock: 6, shop: 3, compare: 3, machine: 1, trip: 1, savings: 2,
}  # fmt: skip


def draw(rng: Random, level: int) -> FamilyTask:
    """Draw an expression with probability 1/6, otherwise a story."""
    if rng.random() < 1 / 6:
        return draw_expression(rng, level)
    while True:
        story = rng.choices(list(STORIES), list(STORIES.values()))[0](rng, level)
        if all(result > 1 for result in results(story.nodes)):  # avoids "1 boxes"; also, an empty stock ends the story
            break
    nodes = list(story.nodes)
    for i in range(1, len(nodes)):  # a product and the sum that uses it may share a step
        if i - 1 in nodes[i].terms and not nodes[i - 1].joined and len(nodes) > 2 and rng.random() < 0.25:
            nodes[i] = replace(nodes[i], joined=True)
    opening = story.opening if rng.random() < 0.25 else None
    closing = rng.choice((story.closing, story.closing, "The answer is @.", "Answer: @."))
    story = replace(story, nodes=tuple(nodes), opening=opening, closing=closing)
    style = draw_style(rng)
    return StoryTask(story.problem, story, style, style.numbering, rng.random() < 0.3)


@dataclass(frozen=True, slots=True)
class Line:
    """One written calculation: its operation and terms, and the result it states."""

    op: str
    terms: tuple[tuple[Fraction, bool], ...]  # each with whether it is an amount of money
    result: Fraction
    form: str  # how a percentage is written


@dataclass(frozen=True)
class StoryTask(SimulatedTask):
    """A story and one way of writing its solution. `closes` says whether the answer has its own step."""

    problem: str
    story: Story
    style: Style
    numbering: str
    closes: bool
    form: str = "story"
    changes_answer = True
    tries = 12

    @cached_property
    def _groups(self) -> tuple[tuple[int, ...], ...]:
        """Return the nodes of each step; opening and closing steps have none."""
        groups: list[tuple[int, ...]] = []
        for index, node in enumerate(self.story.nodes):
            if node.joined:
                groups[-1] += (index,)
            else:
                groups.append((index,))
        return ((),) * bool(self.story.opening) + tuple(groups) + ((),) * self.closes

    def kinds(self, steps: int) -> Sequence[tuple[str, ...]]:
        kinds = [tuple({kind: None for index in group for kind in self._kinds(index)}) for group in self._groups]
        if self.story.opening:
            kinds[0] = ("misread",)
        if self.closes:
            kinds[-1] = ("answer",)
        return kinds

    def _kinds(self, index: int) -> list[str]:
        node = self.story.nodes[index]
        kinds = ["slip"]
        if node.op == "+" and len(node.terms) > 2:
            kinds += ["dropped-term", "missing-term"]
        elif node.op != "%":
            kinds.append("operator")
        if any(isinstance(term, Quantity) and term.value > 2 for term in node.terms):
            kinds.append("misread")
        if any(isinstance(term, int) for term in node.terms):
            kinds.append("carried")
        if (node.op == "%" and self.style.percent == "decimal") or self._after_percent(index):
            kinds.append("percent")
        return kinds

    def _after_percent(self, index: int) -> bool:
        before = self.story.nodes[index - 1] if index else None
        return before is not None and before.op == "%" and index - 1 in self.story.nodes[index].terms

    def solve(self, run: Run) -> str:
        group = self._groups[run.at] if run.at >= 0 else ()
        story, rng = self.story, run.rng
        at = rng.choice([i for i in group if run.kind in self._kinds(i)]) if group else -1
        read: tuple[Quantity, Fraction] | None = None
        reported: Fraction | None = None
        if run.kind == "misread" and not group:
            assert story.opening is not None
            quantity = story.opening[1]
            read = quantity, run.choose(misread(quantity.value, rng))
        elif run.kind and not group:
            *earlier, last = results(story.nodes)
            others = [value for node, value in zip(story.nodes, earlier, strict=False) if node.money == story.nodes[-1].money]
            reported = rng.choice([transposed(last, rng), *others])
        return self._write(run, self._lines(at, run, read), reported, read[1] if read else None)

    def _lines(self, at: int, run: Run, read: tuple[Quantity, Fraction] | None) -> list[Line]:
        """Calculate all nodes, with an error at node `at` or a misread quantity. Raises Impossible for implausible numbers."""
        lines: list[Line] = []
        for index, node in enumerate(self.story.nodes):
            shown = []
            for term in node.terms:
                if isinstance(term, int):
                    shown.append((lines[term].result, self.story.nodes[term].money))
                else:
                    shown.append((read[1] if read and term is read[0] else term.value, term.money))
            line = self._line(node.op, shown)
            if index == at:
                spoilt = self._spoil(index, shown, run)
                if spoilt.result == line.result:
                    raise Impossible
                line = spoilt
            if line.result <= 1 or (line.result.denominator != 1 and not node.money):
                raise Impossible
            lines.append(line)
        return lines

    def _line(self, op: str, shown: list[tuple[Fraction, bool]]) -> Line:
        return Line(op, tuple(shown), apply(op, [value for value, _ in shown]), self.style.percent)

    def _spoil(self, index: int, shown: list[tuple[Fraction, bool]], run: Run) -> Line:
        """Return the line of a node with an error of this kind."""
        node, kind, rng = self.story.nodes[index], run.kind, run.rng
        line = self._line(node.op, shown)
        numbers = [value for value, _ in shown]
        match kind:
            case "slip":
                return replace(line, result=run.choose(slips(node.op, numbers, line.result, rng)))
            case "dropped-term":
                return replace(line, result=line.result - rng.choice(numbers))
            case "missing-term":
                kept = list(shown)
                kept.pop(rng.randrange(len(kept)))
                return self._line("+", kept)
            case "operator":
                if shown[0][1] != shown[1][1] and node.op in "*/":
                    raise Impossible  # dollars and counts are never added, even by mistake
                return self._line({"+": "-", "-": "+", "*": "+", "/": rng.choice("*-")}[node.op], shown)
            case "percent" if node.op == "%":
                scale = 10 if numbers[0] < 10 else Fraction(1, 10)
                return replace(self._line("%", [(numbers[0] * scale, False), shown[1]]), form="decimal")
            case "percent":
                share = self.story.nodes[index - 1].terms[0]
                assert isinstance(share, Quantity)
                return self._line(node.op, [shown[0], (share.value, shown[0][1])])
        place = rng.choice([
            i for i, term in enumerate(node.terms)
            if (isinstance(term, int) if kind == "carried" else isinstance(term, Quantity) and term.value > 2)
        ])  # fmt: skip
        others = [transposed(numbers[place], rng)] if kind == "carried" else misread(numbers[place], rng)
        if kind == "carried":
            earlier = node.terms[place]
            same = shown[place][1]
            assert isinstance(earlier, int)
            nodes = self.story.nodes
            others += [value for n, value in zip(nodes[:earlier], results(nodes), strict=False) if n.money == same]
        shown[place] = (run.choose([value for value in others if value != numbers[place]]), shown[place][1])
        return self._line(node.op, shown)

    def _write(self, run: Run, lines: list[Line], answer: Fraction | None, opening: Fraction | None) -> str:
        """Write the steps and return the answer. `answer` and `opening` replace the final result and the initial quantity."""
        story, style = self.story, self.style
        for group in self._groups:
            parts = [story.nodes[i].say.replace("@", self._equation(lines[i], story.nodes[i].money)) for i in group]
            run.texts.append(" ".join(map(sentence, parts)))
        if story.opening:
            text, quantity = story.opening
            stated = style.number(quantity.value if opening is None else opening, quantity.money)
            run.texts[0] = text.replace("@", style.math(str(stated)))
        reported = style.number(lines[-1].result if answer is None else answer, story.nodes[-1].money)
        if reported is None:
            raise Impossible
        closing = sentence(story.closing.replace("@", style.math(reported)))
        run.texts[-1] = closing if self.closes else f"{run.texts[-1]} {closing}"
        return reported.removeprefix("\\").replace(",", "")

    def _equation(self, line: Line, money: bool) -> str:
        style = self.style
        terms = [style.number(value, is_money) for value, is_money in line.terms]
        result = style.number(line.result, money)
        if result is None or None in terms:
            raise Impossible
        words = [str(term) for term in terms]
        if line.op != "%":
            return style.math(f" {style.sign(line.op)} ".join(words) + f" = {result}")
        percent, of = words
        if line.form == "of":
            return f"${percent}\\% \\text{{ of }} {of} = {result}$" if style.latex else f"{percent}% of {of} = {result}"
        share = f"{float(line.terms[0][0] / 100):.4f}".rstrip("0")
        if line.form == "decimal":
            return style.math(f"{of} {style.times} {share} = {result}")
        return style.math(f"{of} {style.times} {percent} / 100 = {result}")
