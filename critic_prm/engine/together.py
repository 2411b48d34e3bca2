"""Several requests under way at once -> all of their answers, or the first error once every one of them has come in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

Result = TypeVar("Result")


async def gather_all(requests: Iterable[Awaitable[Result]]) -> list[Result]:
    """The results in order. When one fails, the others are still brought in before its error is raised: they are paid for, and
    what is cancelled on the way is lost."""
    outcomes = await asyncio.gather(*requests, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
