"""Await several requests at once and raise the first error only after all have finished."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

Result = TypeVar("Result")


async def gather_all(requests: Iterable[Awaitable[Result]]) -> list[Result]:
    """Return the results in order. If one fails, wait for the others before raising its error.

    The other requests are paid for, and cancelling them would lose their replies.
    """
    outcomes = await asyncio.gather(*requests, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
