"""critic-prm explain: show one row of a label file, with the prompt, the reply and how it was read."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from critic_prm.cli.fields import Fields
from critic_prm.engine.options import JudgeOptions

if TYPE_CHECKING:
    from critic_prm.label.explain import Explanation, Part, Turn


def explain(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A label file.")],
    id: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="Id of the row, or its beginning; '#3' is the third row.", show_default=False),
    ] = None,
    row: Annotated[int | None, typer.Option(min=1, help="Number of the row, from 1.")] = None,
    status: Annotated[str | None, typer.Option(help="Show the first row with this status, such as unparseable.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    *,
    options: Annotated[JudgeOptions, Fields(only=("style", "db"))],
) -> None:
    """Explain one row of a label file: prompt, reply, verdicts and where they were read, and why there is no label.

    Reads a label file (FILE) and the cache (--db). Without a row, shows the first one without a usable label. For a style of
    your own, give its file (--style).

    Example: critic-prm explain labels.jsonl --status unparseable
    """
    from critic_prm.data.judgement import STATUSES
    from critic_prm.engine.cache import Cache
    from critic_prm.errors import UsageError
    from critic_prm.label.explain import explain as explain_row
    from critic_prm.label.explain import find_row
    from critic_prm.terminal import safe_text

    if status is not None and status not in STATUSES:
        raise UsageError(f"--status is {status!r}; it must be one of {', '.join(STATUSES)}")
    if id is not None and id.startswith("#") and id[1:].isdecimal():
        row, id = int(id[1:]), None
    number, found = find_row(file, id, row, status)
    place = options.cache
    asked = any(judgement.keys or judgement.parts for judgement in found.label.judgements)
    used = options.db is not None or (asked and place.is_file())
    cache = Cache(place, readonly=True) if used else None
    try:
        told = explain_row(file, number, found, cache, options.style)
    finally:
        if cache is not None:
            cache.close()
    if as_json:
        import orjson

        typer.echo(orjson.dumps(told.to_json(), option=orjson.OPT_INDENT_2))
    else:
        typer.echo(safe_text("\n".join(lines(told))))  # also to a pipe, which may end at a terminal


def lines(told: Explanation) -> Iterator[str]:
    """The explanation as text. Steps are counted from 0, as in label files."""
    yield f"row {told.row} of {told.file}, id {told.id}"
    yield f"status: {told.status}"
    yield f"first error: {shown_error(told.first_error)}"
    yield "critic: " + ", ".join(f"{name} {value}" for name, value in told.critic.items() if not isinstance(value, list | dict))
    yield from ("", "== problem", told.problem, "", "== steps")
    for step, (text, p) in enumerate(zip(told.steps, told.p_correct, strict=True)):
        yield f"{step}  P(correct) {'unknown' if p is None else f'{p:.2f}'}: {text}"
    for part in told.parts:
        yield from _part(part)


def shown_error(first: int | None) -> str:
    """A first error in words."""
    return "unknown" if first is None else "none" if first < 0 else f"step {first}"


def _part(part: Part) -> Iterator[str]:
    yield from ("", f"== {part.name}: {part.status}" + (f" ({', '.join(part.how)})" if part.how else ""))
    if part.reason:
        yield f"reason: {part.reason}"
        yield f"what to do: {part.advice}"
    for note in part.notes:
        if note != part.reason:
            yield f"note: {note}"
    if part.usage.input or part.usage.output:
        cost = "price unknown" if part.cost_usd is None else f"${part.cost_usd:.6f}"
        yield f"cost: {cost} for {part.usage.input:,} tokens in, {part.usage.output:,} out"
    for verdict in part.verdicts:
        p = "" if verdict.p_correct is None else f", P(correct) {verdict.p_correct:.2f}"
        where = "" if verdict.line is None else f', read in line {verdict.line}: "{" ".join((verdict.text or "").split())}"'
        yield f"step {verdict.step}: {verdict.verdict}{p}{where}"
        if verdict.critique:
            yield f"    {verdict.critique}"
    before: list[tuple[str, str]] = []
    for turn in part.turns:
        yield from _turn(turn, before)
        before = list(turn.messages)


def _turn(turn: Turn, before: list[tuple[str, str]]) -> Iterator[str]:
    """The lines of a request and its reply; messages that the request before had, too, are not repeated."""
    rendered = ", rendered now: the request itself is not in the cache" if turn.source == "rendered now" else ""
    yield from ("", f"-- request {turn.key[:12]}{rendered}")
    repeated = next((i for i, (a, b) in enumerate(zip(turn.messages, before, strict=False)) if a != b), len(before))
    if repeated and len(turn.messages) > repeated:
        yield f"[the first {repeated} messages are those of the request before]"
    for role, text in turn.messages[repeated if len(turn.messages) > repeated else 0 :]:
        yield from (f"[{role}]", text)
    if not turn.messages:
        yield "it is not in this cache; name the cache with --db"
    for (failure, detail), same in groupby(turn.attempts, key=lambda one: (one["failure"], one["detail"])):
        times = [str(attempt["created_at"])[:19].replace("T", " ") for attempt in same]
        count = "a failed attempt" if len(times) == 1 else f"{len(times)} failed attempts"
        yield f"-- {count}, {times[0]}: {failure} {detail}".rstrip()
    if turn.reply is not None:
        yield from (f"-- reply, finish reason {turn.finish}", turn.reply)
    elif not turn.attempts and turn.messages:
        yield "-- its reply is not in this cache; name the cache with --db"
