"""Every failure a caller may tell apart, each with the exit code the command line gives it.

CriticPrmError                 1  anything that went wrong; the others narrow it
├── InputError                 1  a row or file that cannot be read: names file, line and mend
├── UsageError                 2  an option, name or value that does not exist here
├── ConfigError                4  a missing key, a refused key, a missing extra
├── BudgetError                5  stopped by budget, request limit or quota; running again resumes
├── Pending                    5  what was ordered is not all here yet; running again picks it up
├── Interrupted              130  stopped by the user; running again resumes
└── ProviderError                 one request that failed, with the class that decides what happens next
"""

from __future__ import annotations

from typing import Literal

Failure = Literal["throttle", "transient", "row", "run", "quota"]
"""What a failed request means: wait and shrink; try again; only this row; the whole run (key, model); money is gone."""


class CriticPrmError(Exception):
    """The base of all of them; the message is fit to be shown to a person as it is."""

    exit_code = 1


class InputError(CriticPrmError):
    """Input that cannot be read. `where` is `file:line` or the nearest thing to it."""

    def __init__(self, where: str, problem: str, mend: str = "") -> None:
        self.where, self.problem, self.mend = where, problem, mend
        super().__init__(f"{where}: {problem}" + (f"; {mend}" if mend else ""))


class UsageError(CriticPrmError):
    """An option, name or value that does not exist or does not fit here."""

    exit_code = 2


class ConfigError(CriticPrmError):
    """The surroundings are not ready: no key, a refused key, an unknown model, an extra that is not installed."""

    exit_code = 4


class BudgetError(CriticPrmError):
    """Stopped by a budget, a request limit or an exhausted quota. Everything paid for is kept; running again resumes."""

    exit_code = 5


class Pending(CriticPrmError):
    """Batches are with a provider and not all results are in. Nothing is wrong; running again picks them up."""

    exit_code = 5


class Interrupted(CriticPrmError):
    """Stopped by the user (SIGINT, SIGTERM, SIGHUP). Everything paid for is kept; running again resumes."""

    exit_code = 130

    def __init__(self) -> None:
        super().__init__("interrupted; run the same command again to go on, nothing is paid twice")


class ProviderError(CriticPrmError):
    """One request failed. `failure` says what that means for the row and the run (see `Failure`).

    `retry_after` is in seconds, None when the server did not say. `status` is the HTTP status, None without one.
    `detail` is what the server answered, kept with the attempt; it never holds the prompt or a key.
    """

    def __init__(
        self,
        message: str,
        failure: Failure,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        detail: str = "",
    ) -> None:
        self.failure, self.status, self.retry_after, self.detail = failure, status, retry_after, detail
        super().__init__(message)
