"""The Critic: anything that turns a trajectory into verdicts. Labelling, evaluation, search and rewards know nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from critic_prm import registry
from critic_prm.data.judgement import Judgement
from critic_prm.data.trajectory import Trajectory
from critic_prm.data.trust import Origin, exists
from critic_prm.errors import UsageError
from critic_prm.providers.models import Prices
from critic_prm.providers.provider import Sampling

Kind = Literal["verifier", "file", "rollout", "local", "judge"]
class Critic(Protocol):
    """Turns trajectories into judgements.

    `batch` is how many trajectories it likes at once: 1 for a critic that waits for a network, hundreds for one that computes.
    `repeats` says whether asking again can give another answer; where it cannot, one sample is all there is.
    `card` is written into label files: who judged, and how (provider, model, style, fingerprint, sampling).
    """

    @property
    def batch(self) -> int: ...

    @property
    def repeats(self) -> bool: ...

    @property
    def card(self) -> Mapping[str, Any]: ...

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        """One judgement per trajectory, in order. A failure is a judgement with its status; only what must stop the whole run
        is raised (ConfigError, BudgetError)."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where the work goes with --engine ray. `address` is a running cluster's, None for the one in RAY_ADDRESS or else a Ray of
    its own on this machine. `workers` is how many there are, `gpus` what each asks for (None: what its model asks for)."""

    workers: int = 2
    address: str | None = None
    gpus: float | None = None


@dataclass(frozen=True, slots=True)
class Judging:
    """How an LLM is asked: all that its name does not say. Other critics have no use for it.

    `db` is the cache; `offline` answers from it alone. `connections` is the most requests in flight, `rpm` and `tpm` are
    limits per minute, None for none. `retries` bounds the repeats of a failed request, `reasks` those of an answer that is
    cut, refused or empty; a request without an answer after `timeout` seconds, or with a body of more than `max_reply_bytes`
    when decoded, has failed. When a run is stopped, what is out has `grace` seconds to come in. `prices` come before those of
    the model table. Image files below `image_root` are sent, too,
    not only those below the input's folder.

    A reply without a verdict that can be read is followed up to `follow_ups` times by a question that says what was wrong, one
    that stays cut is forced to its verdicts if `force`, and one that is read is gone over again for `think_rounds` rounds.
    `schema` asks for structured outputs in the styles that have a schema. With `cluster`, its workers send the requests;
    critics that compute are spread over it, too. `trust` are files that may name code and paths outside their folder: cascades
    and mixtures (see `critic_prm.data.trust`).
    """

    style: str = "stepwise"
    sampling: Sampling = Sampling()
    db: Path = Path("critic-prm.db")
    base_url: str | None = None
    offline: bool = False
    reference: bool = False
    image_root: Path | None = None
    connections: int = 64
    rpm: float | None = None
    tpm: float | None = None
    retries: int = 6
    reasks: int = 1
    follow_ups: int = 1
    force: bool = True
    think_rounds: int = 0
    schema: bool = True
    timeout: float = 600.0
    grace: float = 10.0
    max_reply_bytes: int = 16_000_000
    salt: str = ""
    durable: bool = False
    budget_usd: float | None = None
    max_requests: int | None = None
    prices: Prices | None = None
    cluster: Cluster | None = None
    trust: tuple[str | Path, ...] = ()


def kind_of(name: str) -> Kind | None:
    """What `open_critic` takes a name for; None for one that it refuses."""
    if exists(Path(name) / "verifier.json"):
        return "verifier"
    if name.endswith(".toml"):
        return "file"
    if name.startswith("rollout:"):
        return "rollout"
    if name in local_critics():
        return "local"
    return "judge" if "/" in name and not (exists(Path(name)) and Path(name).is_dir()) else None


def local_critics() -> list[str]:
    """The critics that ask nobody and are opened by their name alone."""
    return registry.names("critic")


def critic_in_file(name: object, origin: Origin) -> str:
    """The name of a critic that a file names, as `open_critic` may be given it: a path beside the file where there is one, else
    as it is. Raises InputError for a name that the file may not use (see `Origin`)."""
    text = str(name)
    if exists(origin.folder / text):
        return str(origin.path("a critic", name))
    if origin.trusted:
        return text
    kind = kind_of(text)
    if kind in ("local", None):  # what is no critic at all is for open_critic to say
        return text
    if kind == "rollout":
        return "rollout:" + origin.provider("a critic", text.removeprefix("rollout:"))
    if kind == "judge":
        return origin.provider("a critic", name)
    what = f"{', '.join(local_critics())}, provider/MODEL, or a verifier or .toml in its own folder"
    raise origin.refusal("a critic", name, what)


def open_critic(name: str, judging: Judging | None = None) -> Critic:
    """Open "rules", the folder of a verifier, a judge as "provider/model", Monte Carlo as "rollout:provider/model", or a
    cascade or mixture of such critics, written down in a file with the suffix .toml.

    Raises UsageError for a name that is none of these, ConfigError for a missing key, InputError for a damaged verifier.
    """
    kind = kind_of(name)
    if (name == "rules" or kind == "verifier") and judging is not None and judging.cluster is not None:
        from critic_prm.critics.remote import connect as connect_cluster

        return connect_cluster(name, judging.cluster)
    if kind == "verifier":
        from distill.verifier import load_verifier

        verifier: Critic = load_verifier(name)
        return verifier
    if kind == "file":
        return open_file(name, judging or Judging())
    if kind == "rollout":
        from critic_prm.critics.rollout import connect as connect_rollout

        return connect_rollout(name.removeprefix("rollout:"), judging or Judging())
    if kind == "local":
        critic: Critic = registry.load("critic", name).connect()
        return critic
    if kind is None:
        what = "is a folder without verifier.json" if Path(name).is_dir() else "is no critic"
        raise UsageError(
            f"{name!r} {what}; a critic is {', '.join(local_critics())}, a verifier's folder, a judge such as openai/MODEL,"
            " rollout:openai/MODEL, or a .toml with a cascade or mixture of them"
        )
    from critic_prm.critics.llm import connect

    return connect(name, judging or Judging())
