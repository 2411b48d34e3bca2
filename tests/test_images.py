"""Images in trajectories: a file of data cannot make the judge read other files of this machine."""

from __future__ import annotations

import base64
import os
import pickle
import socket
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from critic_prm.critics.llm import with_provider
from critic_prm.data.formats.convert import read_trajectories
from critic_prm.data.judgement import combine
from critic_prm.data.label_rows import label_row, labelled_from_json
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.engine.options import JudgeOptions
from critic_prm.label.estimate import estimate
from critic_prm.label.run import Samples, label
from critic_prm.providers import images
from critic_prm.providers.images import ImageError, ImageName, data_url
from critic_prm.providers.openai import OpenAIProvider
from critic_prm.providers.provider import Request, Wire
from critic_prm.providers.scripted import ScriptedProvider

STARTS = {
    "png": (b"\x89PNG\r\n\x1a\n", "image/png"),
    "jpg": (b"\xff\xd8\xff\xe0", "image/jpeg"),
    "jpeg": (b"\xff\xd8\xff\xe1", "image/jpeg"),
    "gif": (b"GIF89a", "image/gif"),
    "webp": (b"RIFF\x10\x00\x00\x00WEBP", "image/webp"),
}
PNG = STARTS["png"][0] + b"picture"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the data, which is not the current one; beside it what must not be read."""
    (tmp_path / "data" / "sub").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "private.key").write_text("-----BEGIN PRIVATE KEY-----")
    (tmp_path / "elsewhere" / "a.png").write_bytes(PNG)
    (tmp_path / "data" / "a.png").write_bytes(PNG)
    (tmp_path / "data" / "sub" / "b.png").write_bytes(PNG)
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "data"


def named(folder: Path, name: str) -> ImageName:
    return ImageName(name, f"{folder}/in.jsonl:7")


@pytest.mark.parametrize("ending", STARTS)
def test_a_file_is_sent_under_the_type_it_begins_as(ending: str, folder: Path) -> None:
    """For a file with the right name the URL, and with it the cache key, is what it always was."""
    start, kind = STARTS[ending]
    content = start + b"rest"
    for name in (f"right.{ending}", "wrong.txt"):
        (folder / name).write_bytes(content)
        for image in (named(folder, str(folder / name)), str(folder / name)):
            assert data_url(image) == f"data:{kind};base64,{base64.b64encode(content).decode()}"


@pytest.mark.parametrize("url", ["data:image/png;base64,AA==", "https://example.org/a.png", "HTTPS://example.org/a.png"])
def test_urls_are_passed_on_and_never_fetched(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", None)
    assert data_url(named(folder, url)) == url


@pytest.mark.parametrize("name", ["a.png", "sub/b.png", "sub/../a.png", "./a.png", "{folder}/a.png", "inner.png"])
def test_files_below_the_folder_of_the_data_are_read(name: str, folder: Path) -> None:
    (folder / "inner.png").symlink_to("sub/b.png")
    os.remove("a.png")
    assert data_url(named(folder, name.format(folder=folder))).startswith("data:image/png;base64,")


def fifo(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


def sparse(path: Path, size: int) -> None:
    path.write_bytes(PNG)
    os.truncate(path, size)


MADE: list[tuple[str, Callable[[Path], object], str]] = [
    ("fifo.png", fifo, "not a regular file"),
    ("socket.png", unix_socket, "cannot be read|not a regular file"),
    ("folder.png", Path.mkdir, "Is a directory"),
    ("device.png", lambda p: p.symlink_to("/dev/zero"), "outside the folder"),
    ("linked.png", lambda p: p.symlink_to("../private.key"), "outside the folder"),
    ("linked-image.png", lambda p: p.symlink_to("../elsewhere/a.png"), "outside the folder"),
    ("loop.png", lambda p: p.symlink_to(p.name), "cannot be read"),
    ("dangling.png", lambda p: p.symlink_to("nothing"), "cannot be read"),
    ("key.png", lambda p: p.write_text("-----BEGIN PRIVATE KEY-----"), "does not begin as an image"),
    ("empty.png", lambda p: p.touch(), "does not begin as an image"),
    ("vector.svg", lambda p: p.write_text("<svg/>"), "does not begin as an image"),
    ("wave.webp", lambda p: p.write_bytes(b"RIFF\x10\x00\x00\x00WAVE"), "does not begin as an image"),
    ("large.png", lambda p: sparse(p, 20_000_001), "has 20,000,001 bytes"),
    ("endless.png", lambda p: sparse(p, 1 << 40), "bytes"),
]


@pytest.mark.parametrize(("name", "make", "said"), MADE, ids=[name for name, _, _ in MADE])
def test_other_files_are_not_read(name: str, make: Callable[[Path], object], said: str, folder: Path) -> None:
    make(folder / name)
    with pytest.raises(ImageError, match=said) as caught:
        data_url(named(folder, name))
    where, text = f"{folder}/in.jsonl:7: ", str(caught.value)
    assert text.startswith(where)
    assert repr(name) in text
    assert "\n" not in text
    assert "PRIVATE" not in text


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("/etc/passwd", "outside the folder"),
        ("/dev/zero", "outside the folder"),
        ("/dev/stdin", "outside the folder|cannot be read"),
        ("/proc/self/environ", "outside the folder"),
        ("../private.key", "outside the folder"),
        ("{folder}/../elsewhere/a.png", "outside the folder"),
        ("a.png", "outside the folder"),
        ("{folder}x/a.png", "cannot be read"),
        ("none.png", "cannot be read: No such file"),
        ("~/a.png", "cannot be read: No such file"),
        ("$HOME/a.png", "cannot be read: No such file"),
        ("file:///etc/passwd", "cannot be read: No such file"),
        ("http://169.254.169.254/latest", "has an http address"),
        ("HTTP://example.org/a.png", "has an http address"),
        ("ftp://example.org/a.png", "cannot be read"),
        ("", "outside the folder"),
        ("a\0.png", "cannot be read"),
        ("\udc80.png", "cannot be read"),
        ("x" * 100_000, "cannot be read"),
    ],
)
def test_names_that_lead_elsewhere(name: str, said: str, folder: Path) -> None:
    Path(f"{folder}x").mkdir()
    with pytest.raises(ImageError, match=said) as caught:
        data_url(named(folder, name.format(folder=folder)))
    assert len(str(caught.value)) < 600
    assert "\n" not in str(caught.value)


def test_of_a_large_file_nothing_is_read_and_of_another_its_beginning(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MOST_BYTES", 1000)
    (folder / "most.png").write_bytes(PNG.ljust(1000))
    assert len(data_url(named(folder, "most.png"))) > 1000
    (folder / "more.png").write_bytes(PNG.ljust(1001))
    with pytest.raises(ImageError, match="1,001 bytes"):
        data_url(named(folder, "more.png"))


def test_a_folder_named_by_the_user_is_read_from_too(folder: Path) -> None:
    image = named(folder, "../elsewhere/a.png")
    with pytest.raises(ImageError, match=r"name its folder with --image-root"):
        data_url(image)
    assert data_url(image, folder.parent / "elsewhere").startswith("data:image/png")
    with pytest.raises(ImageError, match="does not begin as an image"):
        data_url(named(folder, "../private.key"), folder.parent)


def test_data_from_stdin_reads_below_the_current_folder(folder: Path) -> None:
    assert data_url(ImageName("a.png", "stdin:3")).startswith("data:image/png")
    with pytest.raises(ImageError, match="outside"):
        data_url(ImageName(str(folder / "a.png"), "stdin:3"))


def test_what_a_python_caller_names_is_the_callers_own(folder: Path) -> None:
    link = folder / "link.png"
    link.symlink_to("../elsewhere/a.png")
    assert data_url(str(folder.parent / "elsewhere" / "a.png")) == data_url(str(link))
    with pytest.raises(ImageError, match="not a regular file"):
        data_url("/dev/zero")


ROWS = {
    "native": {"problem": "p", "steps": ["s"], "images": ["../private.key"]},
    "chat": {
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "p"}, {"type": "image_url", "image_url": {"url": "../private.key"}}],
            },
            {"role": "assistant", "content": "s"},
        ]
    },
}


@pytest.mark.parametrize("format", ROWS)
def test_every_format_marks_its_images_as_data(format: str, folder: Path) -> None:
    path = folder / "in.jsonl"
    path.write_bytes(orjson.dumps(ROWS[format]))
    (found,) = read_trajectories(path)
    for same in (found, replace(found, label=0), deepcopy(found), pickle.loads(pickle.dumps(found))):
        with pytest.raises(ImageError, match=r"in\.jsonl:1: the image '\.\./private\.key' is outside"):
            data_url(same.images[0])
    assert orjson.loads(orjson.dumps(found.images)) == ["../private.key"]


def test_the_images_of_a_label_file_are_data_too(folder: Path) -> None:
    row = label_row(Trajectory("t", "p", (Step("s"),), images=("/etc/passwd",)), combine([], 1), {})
    found = labelled_from_json(row, f"{folder}/labels.jsonl:1")
    with pytest.raises(ImageError, match="outside"):
        data_url(found.trajectory.images[0])


@pytest.mark.parametrize("style", ["stepwise", "yes-no"])
async def test_an_image_that_cannot_be_sent_costs_its_own_row_and_nothing_of_it_leaves(style: str, folder: Path) -> None:
    """`"images": ["/path/private.key"]` in a data set was sent to the judge as base64, with the status ok."""
    rows = [
        {"id": "fine", "problem": "p", "steps": ["s"], "images": [f"{folder}/a.png"]},
        {"id": "bad", "problem": "q", "steps": ["s", "t"], "images": ["../private.key"]},
        {"id": "plain", "problem": "r", "steps": ["s"]},
    ]
    source = folder / "in.jsonl"
    source.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    text = "The step is \\boxed{correct}" if style == "stepwise" else "Is the step correct? Yes"
    provider = Watched([{"text": text}])
    critic = with_provider(provider, JudgeOptions(style=style, db=folder / "x.db", follow_ups=0))
    assert estimate(critic, read_trajectories(source), Samples(1, 1)).rows == 3
    found = {t.id: done async for t, done in label(read_trajectories(source), critic)}
    await critic.close()
    assert {name: done.status for name, done in found.items()} == {"fine": "ok", "bad": "provider_error", "plain": "ok"}
    (note,) = found["bad"].judgements[0].notes
    assert note == (
        f"{source}:2: the image '../private.key' is outside the folder of the input;"
        " move it below the folder of the input, or name its folder with --image-root"
    )
    assert len(provider.asked) == 2
    sent = orjson.dumps(provider.asked).decode()
    assert "PRIVATE" not in sent
    assert base64.b64encode(PNG).decode() in sent


class Watched(ScriptedProvider):
    """Sends what OpenAI's provider would send."""

    def wire(self, request: Request) -> Wire:
        return OpenAIProvider("m", None, "k").wire(request)
