"""Parts of a mixture weigh, gate and stop at their floor; what no part judges is judged by none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from critic_prm.critics.combined import COMBINATIONS, Mixture, MixturePart
from critic_prm.critics.open import open_critic
from critic_prm.data.critic import Critic
from critic_prm.data.judgement import Judgement, Status, Verdict
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.errors import UsageError


@dataclass
class Fake(Critic):
    """Gives each step the probability it is told to; None leaves the step out, "neutral" has no opinion."""

    p: Sequence[float | str | None]
    status: Status = "ok"
    batch: int = 10
    stochastic: bool = False
    causal: bool = True

    @property
    def card(self) -> Mapping[str, Any]:
        return {"provider": "fake"}

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        verdicts = []
        for step, p in enumerate(self.p):
            if p == "neutral":
                verdicts.append(Verdict(step, "neutral"))
            elif isinstance(p, float):
                verdicts.append(Verdict(step, "correct" if p >= 0.5 else "incorrect", f"says {p}", p))
        return [Judgement(self.status, tuple(verdicts) if self.status == "ok" else ()) for _ in trajectories]


T = Trajectory("t", "a sum", (Step("compute 2 + 2"), Step("so it is 4")))


async def ask(*parts: MixturePart, how: str = "mean", trajectory: Trajectory = T) -> Judgement:
    (found,) = await Mixture(parts, how).judge([trajectory])
    return found


async def probabilities(*parts: MixturePart, how: str = "mean") -> list[float | None]:
    return [verdict.p_correct for verdict in (await ask(*parts, how=how)).verdicts]


async def test_weights() -> None:
    parts = (MixturePart("a", Fake((0.9, 0.2)), weight=3), MixturePart("b", Fake((0.5, 0.6)), weight=1))
    assert await probabilities(*parts) == [pytest.approx(0.8), pytest.approx(0.3)]
    assert await probabilities(*parts, how="min") == [0.5, 0.2]
    assert await probabilities(*parts, how="max") == [0.9, 0.6]
    assert (await probabilities(*parts, how="geometric_mean"))[0] == pytest.approx((0.9**3 * 0.5) ** 0.25)
    assert (await probabilities(*parts, how="product"))[0] == pytest.approx(0.9**3 * 0.5)
    assert (await probabilities(MixturePart("a", Fake((0.0, 0.2))), how="geometric_mean"))[0] == 0.0


async def test_a_gate_shuts_whatever_the_others_say() -> None:
    others = MixturePart("b", Fake((1.0, 1.0)), weight=9)
    assert await probabilities(MixturePart("a", Fake((0.1, 0.6)), gate=0.5), others) == [0.1, pytest.approx(0.96)]
    only_gate = MixturePart("a", Fake((0.1, 0.6)), weight=0, gate=0.5)
    assert await probabilities(only_gate, others) == [0.1, 1.0]
    found = await ask(only_gate)
    assert [verdict.value for verdict in found.verdicts] == ["incorrect", "neutral"]


async def test_a_floor_is_the_least_a_part_counts_as() -> None:
    assert await probabilities(MixturePart("a", Fake((0.0, 0.9)), floor=0.4), MixturePart("b", Fake((1.0, 1.0)))) == [
        0.7,
        pytest.approx(0.95),
    ]


async def test_a_part_speaks_where_it_is_to() -> None:
    arithmetic = MixturePart("a", Fake((0.0, 0.0)), steps=r"\d \+ \d")
    assert await probabilities(arithmetic, MixturePart("b", Fake((1.0, 1.0)))) == [0.5, 1.0]
    codes = MixturePart("c", Fake((0.0, 0.0)), problems="def ")
    assert await probabilities(codes, MixturePart("b", Fake((1.0, 1.0)))) == [1.0, 1.0]
    assert (await ask(codes)).first_error is None
    assert (await ask(codes)).notes == ("no part is asked about this problem",)


async def test_what_no_part_judges_is_not_judged() -> None:
    found = await ask(MixturePart("a", Fake((0.9, None))), MixturePart("b", Fake(("neutral", None))))
    assert [verdict.step for verdict in found.verdicts] == [0]
    assert found.first_error is None
    found = await ask(MixturePart("b", Fake(("neutral", "neutral"))))
    assert [verdict.value for verdict in found.verdicts] == ["neutral", "neutral"]
    assert found.first_error == -1


async def test_critiques_of_those_who_agree_are_kept() -> None:
    found = await ask(
        MixturePart("a", Fake((0.1, 0.9))), MixturePart("b", Fake((0.3, 0.9))), MixturePart("c", Fake((0.9, 0.9)))
    )
    assert found.verdicts[0].critique == "a: says 0.1\nb: says 0.3"
    assert found.first_error == 0
    assert [part.judge for part in found.parts] == ["a", "b", "c"]


async def test_a_part_that_fails_is_left_out_unless_it_is_required() -> None:
    failing = Fake((), status="refused")
    found = await ask(MixturePart("a", failing), MixturePart("b", Fake((0.9, 0.9))))
    assert (found.status, found.first_error, found.notes) == ("ok", -1, ("a: refused",))
    assert (await ask(MixturePart("a", failing, required=True), MixturePart("b", Fake((0.9, 0.9))))).status == "refused"
    assert (await ask(MixturePart("a", failing), MixturePart("b", failing))).status == "refused"


def test_parts_that_make_no_sense_are_refused() -> None:
    critic = Fake((1.0,))
    for wrong in ({"weight": -1.0}, {"floor": 2.0}, {"gate": -0.5}, {"weight": 0.0}, {"steps": "("}, {"problems": "["}):
        with pytest.raises(UsageError):
            MixturePart("a", critic, **wrong)


async def test_a_hierarchy_is_opened_from_files(tmp_path: Path) -> None:
    (tmp_path / "inner.toml").write_text('[mixture]\n[[mixture.part]]\nname = "sums"\ncritic = "rules"\n')
    outer = tmp_path / "outer.toml"
    outer.write_text(
        '[mixture]\nhow = "geometric_mean"\nthreshold = 0.6\n[[mixture.part]]\ncritic = "inner.toml"\ngate = 0.5\nfloor = 0.1\n'
        '[[mixture.part]]\ncritic = "rules"\nweight = 2\nsteps = "="\nrequired = true\n'
    )
    critic = open_critic(str(outer))
    (found,) = await critic.judge([Trajectory("t", "p", (Step("2 + 2 = 4"), Step("4 + 4 = 9")))])
    assert found.first_error == 1
    assert critic.card["mixture"] == "geometric_mean"
    assert critic.card["parts"][0]["critic"]["parts"][0]["part"] == "sums"
    await critic.close()


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("[mixture]\npart = []", "no parts"),
        ("[mixture]\nhow = 'median'\n[[mixture.part]]\ncritic = 'rules'", "median"),
        ("[mixture]\n[[mixture.part]]\nweight = 1", "lacks critic"),
        ("[mixture]\n[[mixture.part]]\ncritic = 'rules'\nwait = 1", "has no wait"),
        ("[mixture]\n[[mixture.part]]\ncritic = 'rules'\n[cascade]", "has the tables"),
    ],
)
def test_a_file_that_does_not_fit_says_so(tmp_path: Path, text: str, match: str) -> None:
    path = tmp_path / "mixture.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=match):
        open_critic(str(path))


def test_how_parts_add_up_is_listed() -> None:
    assert set(COMBINATIONS) == {"mean", "geometric_mean", "product", "min", "max"}
