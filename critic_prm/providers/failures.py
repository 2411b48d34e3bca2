"""What an HTTP error of a model server means: one table from status, code, words and metadata to a failure class and advice."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass

from critic_prm.errors import Failure

CREDIT = "the account has no credit; add some and run the same command again: everything paid for is kept"
KEY = "the key was refused; set the provider's environment variable to a valid one"
ACCESS = "this key may not use this model or region"
NAME = "the server knows no such model or path; check the name and --base-url"
DAILY = "this limit lasts for hours; run the same command again when it is over: everything paid for is kept"
MODERATED = "the provider's moderation refused this row"
HTTPS = "the server expects https; write https:// in --base-url"


@dataclass(frozen=True, slots=True)
class Heard:
    """An error as the server told it. `names` are its codes and types in lower case, `keys` the names in its metadata; `closed`
    says that the limit it speaks of opens in more than an hour."""

    status: int
    names: Sequence[str] = ()
    text: str = ""
    keys: Container[str] = ()
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the table. It holds where everything that it names is found; what is left out may be anything."""

    failure: Failure
    advice: str = ""
    statuses: Container[int] = range(1000)
    names: frozenset[str] = frozenset()
    words: str = ""
    keys: tuple[str, ...] = ()
    closed: bool = False

    def holds(self, heard: Heard) -> bool:
        return (
            heard.status in self.statuses
            and (not self.names or any(name in self.names for name in heard.names))
            and (not self.words or re.search(self.words, heard.text, re.IGNORECASE) is not None)
            and (not self.keys or any(key in heard.keys for key in self.keys))
            and (heard.closed or not self.closed)
        )


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


MONEY = names("""
    insufficient_quota credit_balance_exhausted billing_error
    organization_spend_limit_exceeded project_spend_limit_exceeded organization_usage_limit_exceeded
    contract_spend_limit_reached enforced_spend_limit_reached
""")

RULES: tuple[Rule, ...] = (
    # Money. A spend limit comes as a 429 at OpenAI, as a 400 at Anthropic, as a 403 at OpenRouter.
    Rule("quota", CREDIT, names=MONEY),
    Rule("quota", CREDIT, (400,), words="credit balance is too low to access|reached your specified api usage limits"),
    Rule("quota", CREDIT, (402, 403, 429), words="spend limit|key limit exceeded|credit balance is too low"),
    # Limits that no run should wait for.
    Rule("quota", DAILY, (429,), words=r"per[\s_-]?day|\b[rt]pd\b|\bdaily\b"),
    Rule("quota", DAILY, (429,), closed=True),
    # What is wrong with every request. Gemini and xAI refuse a key with a 400.
    Rule("run", KEY, (400, 401, 403), names=names("invalid_api_key api_key_invalid")),
    Rule("run", KEY, (400,), words="api key not valid|incorrect api key provided"),
    Rule("run", HTTPS, (400,), words="plain http request was sent to https port|sent an http request to an https server"),
    Rule("run", NAME, names=names("model_not_found")),
    Rule("run", names=names("unknown_parameter unsupported_parameter unsupported_value")),
    # What is wrong with one row. OpenRouter's 403 for moderation names what was flagged.
    Rule("row", MODERATED, (403,), keys=("reasons", "flagged_input")),
    Rule("row", names=names("context_length_exceeded content_filter content_policy_violation")),
    # The status alone.
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
"""Read from top to bottom: the first rule that holds decides."""


def verdict(heard: Heard) -> Rule:
    """The rule for an error."""
    return next(rule for rule in RULES if rule.holds(heard))
