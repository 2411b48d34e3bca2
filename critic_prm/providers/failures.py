"""Classify HTTP errors of model servers by status, code, message and metadata, and advise a fix."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass

from critic_prm.errors import Failure

CREDIT = "the account has no credit; add some and run the same command again: everything paid for is kept"
KEY = "the key was refused; set the provider's environment variable to a valid one"
ACCESS = "this key may not use this model or region"
NAME = "the server has no such model or path; check the name and --base-url"
DAILY = "this limit lasts for hours; run the same command again when it is over: everything paid for is kept"
MODERATED = "the provider's moderation refused this row"
HTTPS = "the server expects https; write https:// in --base-url"


@dataclass(frozen=True, slots=True)
class Heard:
    """An error as the server reported it."""

    status: int
    names: Sequence[str] = ()
    """Error codes and types in lower case."""
    text: str = ""
    keys: Container[str] = ()
    """Names in the error's metadata."""
    closed: bool = False
    """Whether the limit that was hit resets in more than an hour."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table. It matches an error if all fields that are set match; fields left out match anything."""

    failure: Failure
    advice: str = ""
    statuses: Container[int] = range(1000)
    names: frozenset[str] = frozenset()
    words: str = ""
    keys: tuple[str, ...] = ()
    closed: bool = False

    def holds(self, heard: Heard) -> bool:
        """Whether the rule matches an error."""
        return (
            heard.status in self.statuses
            and (not self.names or any(name in self.names for name in heard.names))
            and (not self.words or re.search(self.words, heard.text, re.IGNORECASE) is not None)
            and (not self.keys or any(key in heard.keys for key in self.keys))
            and (heard.closed or not self.closed)
        )


def names(text: str) -> frozenset[str]:
    """Split a list of names at whitespace."""
    return frozenset(text.split())


MONEY = names("""
    insufficient_quota credit_balance_exhausted billing_error
    organization_spend_limit_exceeded project_spend_limit_exceeded organization_usage_limit_exceeded
    contract_spend_limit_reached enforced_spend_limit_reached
""")

RULES: tuple[Rule, ...] = (
    # Billing. A spend limit is a 429 at OpenAI, a 400 at Anthropic and a 403 at OpenRouter.
    Rule("quota", CREDIT, names=MONEY),
    Rule("quota", CREDIT, (400,), words="credit balance is too low to access|reached your specified api usage limits"),
    Rule("quota", CREDIT, (402, 403, 429), words="spend limit|key limit exceeded|credit balance is too low"),
    # Limits that last too long for a run to wait.
    Rule("quota", DAILY, (429,), words=r"per[\s_-]?day|\b[rt]pd\b|\bdaily\b"),
    Rule("quota", DAILY, (429,), closed=True),
    # Errors that affect every request. Gemini and xAI reject a key with a 400.
    Rule("run", KEY, (400, 401, 403), names=names("invalid_api_key api_key_invalid")),
    Rule("run", KEY, (400,), words="api key not valid|incorrect api key provided"),
    Rule("run", HTTPS, (400,), words="plain http request was sent to https port|sent an http request to an https server"),
    Rule("run", NAME, names=names("model_not_found")),
    Rule("run", names=names("unknown_parameter unsupported_parameter unsupported_value")),
    # Errors of one row. OpenRouter's 403 for moderation names the flagged input.
    Rule("row", MODERATED, (403,), keys=("reasons", "flagged_input")),
    Rule("row", names=names("context_length_exceeded content_filter content_policy_violation")),
    # Fallbacks by status alone.
    Rule("run", statuses=range(300, 400)),
    Rule("run", KEY, (401,)),
    Rule("quota", CREDIT, (402,)),
    Rule("run", ACCESS, (403,)),
    Rule("run", NAME, (404,)),
    Rule("transient", statuses=(408, 409)),
    Rule("throttle", statuses=(429, 529)),
    Rule("row", statuses=range(400, 500)),
    Rule("transient"),  # 5xx, and an error in a body that came with 200
)
"""The first rule that matches decides."""


def verdict(heard: Heard) -> Rule:
    """Return the first rule that matches an error."""
    return next(rule for rule in RULES if rule.holds(heard))
