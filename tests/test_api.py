"""The names that `import critic_prm` promises are there, and nothing is promised twice."""

from __future__ import annotations

import critic_prm


def test_every_public_name_is_found_where_it_lives() -> None:
    homes = [name for names in critic_prm._MODULES.values() for name in names]
    assert sorted(homes) == sorted(set(homes)) == sorted(critic_prm.__all__)
    for name in critic_prm.__all__:
        assert getattr(critic_prm, name).__module__.startswith("critic_prm.")


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(critic_prm, "no_such_name")
