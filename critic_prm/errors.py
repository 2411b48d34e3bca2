"""The exception hierarchy, with the exit code of each class.

CriticPrmError                 1  base class
├── InputError                 1  a row or file that cannot be read; names the file, the line and the fix
├── UsageError                 2  an option, name or value that does not exist
├── ConfigError                4  a missing key, a refused key, a missing extra
├── BudgetError                5  stopped by budget, request limit or quota; running again resumes
├── Pending                    5  batch results are still missing; running again collects them
├── Interrupted              130  stopped by the user; running again resumes
└── ProviderError                 one failed request, with the failure class that decides what happens next
"""

from __future__ import annotations

from typing import Literal

Failure = Literal["throttle", "transient", "row", "run", "quota"]
"""Class of a failed request: "throttle": wait and reduce concurrency; "transient": retry; "row": only this row fails;
"run": all requests of the run would fail (key, model); "quota": the account has no money or quota left."""

Cause = Literal["", "unresolved", "refused"]
"""Why there was no connection: the host's name has no address, or nothing accepts connections there; "" for anything else."""


class CriticPrmError(Exception):
    """Base class. The message can be shown to the user as it is."""

    exit_code = 1


class InputError(CriticPrmError):
    """Input that cannot be read. `where` is `file:line` or the closest available location; `fix` says how to fix it."""

    def __init__(self, where: str, problem: str, fix: str = "") -> None:
        self.where, self.problem, self.fix = where, problem, fix
        super().__init__(f"{where}: {problem}" + (f"; {fix}" if fix else ""))


class UsageError(CriticPrmError):
    """An option, name or value that does not exist or is not valid here."""

    exit_code = 2


class ConfigError(CriticPrmError):
    """The environment is not set up: no key, a refused key, an unknown model, an extra that is not installed."""

    exit_code = 4


class BudgetError(CriticPrmError):
    """Stopped by a budget, a request limit or an exhausted quota. All paid replies are kept; running again resumes."""

    exit_code = 5


class Pending(CriticPrmError):
    """Batches are still running at a provider. This is not a failure; running again collects the results."""

    exit_code = 5


class Interrupted(CriticPrmError):
    """Stopped by the user (SIGINT, SIGTERM, SIGHUP). All paid replies are kept; running again resumes."""

    exit_code = 130

    def __init__(self) -> None:
        super().__init__("interrupted; run the same command again to resume, nothing is paid twice")


class ProviderError(CriticPrmError):
    """One failed request. `failure` says what that means for the row and the run (see `Failure`).

    `retry_after` is in seconds, None if the server gave none. `status` is the HTTP status, None if there is none. `detail` is
    the server's message, stored with the attempt; it never contains the prompt or a key. `cause` says why there was no
    connection.
    """

    def __init__(
        self,
        message: str,
        failure: Failure,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        detail: str = "",
        cause: Cause = "",
    ) -> None:
        self.failure, self.status, self.retry_after, self.detail, self.cause = failure, status, retry_after, detail, cause
        super().__init__(message)
