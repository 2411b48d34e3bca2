"""Plug-ins of other packages, found by entry points, and options that plug-ins declare."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from critic_prm import option, registry
from critic_prm.errors import UsageError

GROUPS = {"provider": "providers", "format": "formats", "student": "students", "critic": "critics", "loss": "losses"}
SOURCE = '''
"""A plug-in."""
from __future__ import annotations
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal
from critic_prm.option import Option

@dataclass(frozen=True)
class Options:
    """Options of a plug-in."""
    length: Annotated[int, Option(min=1, max=9)] = 3
    """How long."""
    mode: Literal["fast", "slow"] = "fast"
    """How fast."""
    share: float | None = None
    """Which share."""
    strict: bool = False
    names: tuple[str, ...] = ()
    engine: Annotated[dict[str, Any], Option(envvar="TOY_ENGINE")] = field(default_factory=dict)
    """Arguments of the engine as JSON."""
    folder: Path = Path("x")
'''


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A distribution on sys.path that registers `toy_thing` as every kind in GROUPS."""
    info = tmp_path / "toy_thing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-thing\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("".join(f"[critic_prm.{group}]\ntoy = toy_thing\n" for group in GROUPS.values()))
    (tmp_path / "toy_thing.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    forget()
    yield tmp_path
    sys.modules.pop("toy_thing", None)
    forget()


def forget() -> None:
    for cached in (registry.load, registry._installed, registry._entry_points):
        cached.cache_clear()


def test_plugins_of_other_packages_are_found_by_their_entry_points(installed: Path) -> None:
    for kind in GROUPS:
        assert "toy" in registry.names(kind)
        assert registry.load(kind, "toy").__name__ == "toy_thing"
    with pytest.raises(UsageError, match=r"there is no provider 'other'; available: .*toy"):
        registry.load("provider", "other")


def test_a_packaged_plugin_is_not_replaced(installed: Path) -> None:
    info = installed / "toy_thing-1.0.dist-info"
    (info / "entry_points.txt").write_text("[critic_prm.providers]\nopenai = toy_thing\n")
    forget()
    assert registry.load("provider", "openai").__name__ == "critic_prm.providers.openai"


@pytest.fixture
def plugin(installed: Path) -> Any:
    return registry.load("provider", "toy")


def test_options_are_parsed_by_the_types_of_their_fields(plugin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["length=5", "mode=slow", "share=0.5", "strict=true", "names=a, b", 'engine={"a": [1]}', "folder=y/z"]
    assert option.parse_options(plugin, given, "provider toy") == plugin.Options(
        5, "slow", 0.5, True, ("a", "b"), {"a": [1]}, Path("y/z")
    )
    assert option.parse_options(plugin, [], "provider toy") == plugin.Options()
    assert option.parse_options(plugin, ["share=none"], "provider toy").share is None
    monkeypatch.setenv("TOY_ENGINE", '{"b": 2}')
    assert option.parse_options(plugin, [], "provider toy").engine == {"b": 2}
    assert option.parse_options(sys, [], "provider sys") is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("lenght=5", "has no option 'lenght=5'; its options: length=..., mode=..., share=..."),
        ("length", "has no option 'length'"),
        ("length=ten", "option length is 'ten'; it must be int"),
        ("length=10", "option length is 10; it must be at least 1 and at most 9"),
        ("mode=medium", "option mode is 'medium'; it must be fast or slow"),
        ("strict=1", "option strict is '1'; it must be bool"),
        ("engine=[]", "option engine is '\\[\\]'; it must be dict"),
        ("engine={", "option engine is '{'; it must be dict"),
    ],
)
def test_an_option_that_does_not_fit_is_rejected(plugin: Any, text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=f"^provider toy:? {problem}"):
        option.parse_options(plugin, [text], "provider toy")
    with pytest.raises(UsageError, match="its options: none"):
        option.parse_options(sys, ["a=b"], "provider sys")


def test_options_describe_themselves(plugin: Any) -> None:
    described = dict(option.options_help(plugin))
    assert described["length=3"] == "How long."
    assert described["share="] == "Which share."
    assert option.options_help(sys) == []
