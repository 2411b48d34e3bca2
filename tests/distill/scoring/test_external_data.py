"""ONNX files whose weights lie in other files."""

from __future__ import annotations

from pathlib import Path

import pytest

from critic_prm.errors import InputError
from distill.scoring.onnx import open_session


@pytest.mark.parametrize("where", ["../secret.bin", "absolute"])
def test_weights_are_not_read_from_outside_the_models_folder(tmp_path: Path, where: str) -> None:
    """The file names where its weights lie. ONNX Runtime refuses what is outside the model's folder: a test of that library."""
    onnx = pytest.importorskip("onnx", reason="an extra: pip install 'critic-prm[onnx]'")
    pytest.importorskip("onnxruntime", reason="an extra: pip install 'critic-prm[onnx]'")
    (tmp_path / "secret.bin").write_bytes(bytes(16))
    folder = tmp_path / "model"
    folder.mkdir()

    def model(location: str) -> Path:
        tensor = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[4])
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", "0"), ("length", "16")):
            tensor.external_data.add(key=key, value=value)
        result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4])
        graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["w"], ["y"])], "g", [], [result], [tensor])
        made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
        (folder / "model.onnx").write_bytes(made.SerializeToString())
        return folder / "model.onnx"

    (folder / "own.bin").write_bytes(bytes(16))
    assert open_session(model("own.bin")).run(None, {})[0].tolist() == [0.0] * 4
    with pytest.raises(InputError, match="External data path"):
        open_session(model(str(tmp_path / "secret.bin") if where == "absolute" else where))
