"""Which file is the cache: the same one for every command and folder, private, and named once per run."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from critic_prm.cli import main
from critic_prm.engine.cache import Cache
from critic_prm.engine.options import JudgeOptions
from critic_prm.engine.place import NAME, cache_path, shown
from tests.command import invoke

REPLY = "Step 1: yes.\nThe step is \\boxed{correct}"


@pytest.fixture
def label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run `label` in a folder and return what it prints to stderr."""
    source, replies = tmp_path / "in.jsonl", tmp_path / "replies.jsonl"
    source.write_bytes(orjson.dumps({"id": "a", "problem": "1 + 1?", "steps": ["2"]}))
    replies.write_bytes(orjson.dumps({"text": REPLY}))

    def run(folder: str, *words: str) -> str:
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / folder)
        done = invoke("label", source, "-o", "out.jsonl", "--judge", f"scripted/{replies}", *words)
        assert done.exit_code == 0, done.output
        return done.stderr

    return run


def test_the_first_of_four_places_is_taken(tmp_path: Path, user_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cache_path() == user_data / "critic-prm" / NAME
    Path(NAME).touch()
    assert cache_path() == Path(NAME)
    monkeypatch.setenv("CRITIC_PRM_DB", "~/elsewhere.db")
    assert cache_path() == Path.home() / "elsewhere.db"
    assert cache_path("given.db") == JudgeOptions(db=Path("given.db")).cache == Path("given.db")
    assert JudgeOptions().cache == Path.home() / "elsewhere.db"


def test_a_user_without_a_home_folder_has_a_cache_in_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as for a user id without an entry in passwd
    assert cache_path() == Path(NAME)
    assert shown(Path("/data/x.db")) == "/data/x.db"


def test_the_same_question_is_bought_once_whatever_the_folder(label: Callable[..., str], user_data: Path) -> None:
    place = user_data / "critic-prm" / NAME
    first, second = label("one"), label("two")
    assert f"cache: {place} (new; --db names another)\n" in first
    assert "0 cached, 1 paid" in first
    assert f"cache: {place}\n" in second
    assert "1 cached, 0 paid" in second
    assert not Path(NAME).exists()
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (place.parent, place)]
    assert modes == [0o700, 0o600]


def test_an_existing_cache_in_the_folder_is_used(label: Callable[..., str], tmp_path: Path, user_data: Path) -> None:
    label("one", "--db", NAME)
    assert "1 cached, 0 paid" in label("one")
    assert not user_data.exists()


def test_commands_for_a_cache_read_the_same_file(label: Callable[..., str]) -> None:
    label("one")
    assert "1" in invoke("cache", "stats").output
    assert orjson.loads(invoke("cache", "export").stdout)["text"] == REPLY
    assert "0 changed" in invoke("labels", "reread", "out.jsonl", "-o", "again.jsonl").stderr


def test_a_command_does_not_write_its_output_over_the_users_cache(label: Callable[..., str], user_data: Path) -> None:
    label("one")
    with pytest.raises(SystemExit) as ended:
        main(["label", "../in.jsonl", "-o", str(user_data / "critic-prm" / NAME)])
    assert ended.value.code == 2


def test_a_data_folder_that_cannot_be_written_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    with pytest.raises(Exception, match=r"cannot be created: .*; choose another place with --db or CRITIC_PRM_DB"):
        Cache(cache_path())


def test_recorded_replies_without_their_cache_leave_no_file(
    tmp_path: Path, user_data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.jsonl").write_bytes(orjson.dumps({"id": "a", "problem": "1 + 1?", "steps": ["2"]}))
    with pytest.raises(SystemExit) as ended:
        main(["label", "in.jsonl", "-o", "out.jsonl", "--judge", "recorded/example-judge"])
    assert ended.value.code == 1
    assert "recorded/example-judge answers from one only; name it with --db" in capsys.readouterr().err
    assert [*os.listdir(), user_data.exists()] == ["in.jsonl", False]
