"""Verifier folders from strangers: each ends in one line, before anything large is read."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from critic_prm.errors import InputError
from distill.store import check_folder
from distill.verifier import fingerprint, load_verifier


@pytest.fixture
def copy(verifier_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(verifier_folder, tmp_path / "copy"))


def sparse(path: Path, size: int) -> None:
    path.touch()
    os.truncate(path, size)


def refused(folder: Path, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        load_verifier(folder)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def replaced(name: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        make(folder / name)

    return change


def header(text: bytes, claimed: int | None = None) -> Callable[[Path], object]:
    return lambda p: p.write_bytes((len(text) if claimed is None else claimed).to_bytes(8, "little") + text)


CASES: list[tuple[str, Callable[[Path], None], str]] = [
    ("info fifo", replaced("verifier.json", os.mkfifo), "not a regular file"),
    ("info zero", replaced("verifier.json", lambda p: p.symlink_to("/dev/zero")), "not a regular file"),
    ("info large", replaced("verifier.json", lambda p: sparse(p, 2 << 30)), "more than 16,777,216 bytes"),
    ("info deep", replaced("verifier.json", lambda p: p.write_text("[" * 100_000)), "broken JSON"),
    ("info binary", replaced("verifier.json", lambda p: p.write_bytes(b"\xff\xfe")), "broken JSON"),
    ("info folder", replaced("verifier.json", Path.mkdir), "not a regular file"),
    ("weights fifo", replaced("linear.safetensors", os.mkfifo), "not a regular file"),
    ("weights zero", replaced("linear.safetensors", lambda p: p.symlink_to("/dev/zero")), "leads out of the folder"),
    ("weights header", replaced("linear.safetensors", header(b"{}", 1 << 60)), "its header claims"),
    ("weights empty", replaced("linear.safetensors", Path.touch), "its header claims"),
    ("weights deep", replaced("linear.safetensors", header(b"[" * 100_000)), "broken JSON"),
    (
        "shape",
        replaced("linear.safetensors", header(b'{"a":{"shape":[-1],"data_offsets":[0,4]}}')),
        "does not fit",
    ),
    (
        "span",
        replaced("linear.safetensors", header(b'{"a":{"shape":[1],"data_offsets":[0,99]}}')),
        "does not fit",
    ),
    ("tokenizer fifo", replaced("tokenizer.json", os.mkfifo), "not a regular file"),
    ("tokenizer large", replaced("tokenizer.json", lambda p: sparse(p, 1 << 40)), "at most 67,108,864"),
    ("tokenizer link", replaced("tokenizer.json", lambda p: p.symlink_to("/etc/passwd")), "leads out of the folder"),
    ("onnx data link", replaced("model.onnx.data", lambda p: p.symlink_to("/etc/passwd")), "leads out of the folder"),
    (
        "adapter",
        replaced("adapter_config.json", lambda p: p.write_text('{"base_model_name_or_path": "../x"}')),
        "another model",
    ),
    ("folder link", replaced("onnx", lambda p: p.symlink_to("/")), "leads out of the folder"),
]


@pytest.mark.parametrize(("change", "said"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_files_that_are_not_what_they_should_be(change: Callable[[Path], None], said: str, copy: Path) -> None:
    """Weights that were a FIFO or a link to /dev/zero were read without end; others ended with a traceback."""
    change(copy)
    refused(copy, said)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"student": ["linear"]}, '"student" is'),
        ({"student": 5}, '"student" is'),
        ({"student": "../linear"}, "does not support"),
        ({"calibration": []}, "not JSON objects"),
        ({"profiles": [1]}, "not JSON objects"),
        ({"profiles": {"a": {"quantiles": 5}}}, "it is damaged"),
        ({"profile": "gone"}, "which it does not have"),
        ({"decision": {"threshold": 0.5, "rule": "magic"}}, "'magic'"),
        ({"decision": {"rule": "first-below"}}, "threshold"),
        ({"calibration": {"method": ["beta"], "parameters": {}}}, "it is damaged"),
        (
            {"calibration": {"method": "temperature", "parameters": {"temperature": [0]}}},
            "damaged",
        ),
        ({"calibration": {"method": "temperature", "parameters": {"temperature": ["nan"]}}}, "not finite"),
        ({"calibration": {"method": "platt", "parameters": {"slope_intercept": ["inf", 0]}}}, "not finite"),
        ({"calibration": {"method": "beta", "parameters": {"abc": [1]}}}, "it is damaged"),
        ({"calibration": {"method": "isotonic", "parameters": {"x": [0, 1], "y": [1]}}}, "it is damaged"),
        ({"decision": {"threshold": True}}, "from 0 to 1"),
    ],
)
def test_settings_of_the_wrong_kind(told: dict[str, Any], said: str, copy: Path) -> None:
    path = copy / "verifier.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | told))
    refused(copy, said)


@pytest.mark.parametrize(
    "change",
    [
        {"bits": 60},
        {"bits": 40},
        {"bits": -5},
        {"bits": "17"},
        {"bits": 16},
        {"char_orders": [10**9]},
        {"word_orders": 3},
        {"x": 1},
    ],
)
def test_settings_that_do_not_fit_the_weights(change: dict[str, Any], copy: Path) -> None:
    """Bits of 60, 40, -5 or "17" ended with a traceback."""
    from safetensors import safe_open
    from safetensors.numpy import save_file

    path = copy / "linear.safetensors"
    with safe_open(path, "numpy") as file:
        meta = json.loads(file.metadata()["linear"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    meta["settings"] |= change
    save_file(arrays, path, {"linear": json.dumps(meta)})
    info = json.loads((copy / "verifier.json").read_text()) | {"fingerprint": fingerprint(copy)}
    (copy / "verifier.json").write_text(json.dumps(info))
    refused(copy, "it is damaged")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, ""),
        ({"hidden_size": 10**9}, "hidden_size is 1000000000, which no tensor has"),
        ({"vocab_size": -8}, "vocab_size is -8"),
        ({"intermediate_size": "16"}, "intermediate_size is '16'"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000, with 2 tensors"),
        ({"num_hidden_layers": -1}, "num_hidden_layers is -1"),
    ],
)
def test_a_config_must_fit_the_shapes_of_the_weights(config: dict[str, Any], said: str, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"a": np.zeros((8, 4)), "b": np.zeros((16, 4))}, tmp_path / "model.safetensors")
    sizes = {"hidden_size": 4, "intermediate_size": 16, "vocab_size": 8, "num_hidden_layers": 1}
    (tmp_path / "config.json").write_text(json.dumps(sizes | config))
    if not said:
        check_folder(tmp_path)
        return
    with pytest.raises(InputError, match=said):
        check_folder(tmp_path)


def test_a_folder_with_pickled_weights_alone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(InputError, match=r"a pickle \(pytorch_model\.bin\), which is never opened"):
        check_folder(tmp_path)
