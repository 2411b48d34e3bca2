"""A seed -> a tiny causal model, or verifier, with random weights, a tokenizer and a chat template, as a folder for vLLM.

    python tests/vllm/tiny_model.py FOLDER [--verifier]

Nothing is downloaded: the tokenizer is learned from the texts below, the weights are drawn. Its answers mean nothing; what
counts is that tokens, log-probabilities and grammars are real ones.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
SPECIAL = ("<|begin|>", "<|end|>", "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>")
TEXTS = (
    "You examine solutions. You are given a problem and a solution that someone proposed for it, cut into numbered steps.",
    "Take the steps in order and decide of each whether it is correct or incorrect. What is wanted is the earliest error.",
    "Step 1: The step is \\boxed{correct}\nStep 2: The step is \\boxed{incorrect}",
    "Is the step correct? Yes\nIs the step correct? No\nVerdict: correct\nVerdict: incorrect\nVerdict: neutral",
    '{"steps": [{"step": 1, "critique": "It holds.", "verdict": "correct"}]}',
    "Janet has 12 eggs. She sells 4 of them for $2 each. 12 - 4 = 8. 4 * 2 = 8. So she has 8 eggs and 8 dollars.",
)
WIDE = 8192


def tokenizer() -> Any:
    """A byte-level BPE tokenizer of about 600 tokens: every text has a spelling in it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=640,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(TEXTS * 4, trainer)
    made = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=SPECIAL[0],
        eos_token=SPECIAL[1],
        pad_token=SPECIAL[2],
        additional_special_tokens=list(SPECIAL[3:]),
        model_max_length=WIDE,
    )
    made.chat_template = TEMPLATE
    return made


def config(words: Any, **more: Any) -> Any:
    """The shape of the model: a Llama of two layers, because that keeps the tokenizer saved beside it as it is."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=len(words),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=WIDE,
        initializer_range=0.2,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
        tie_word_embeddings=False,
        **more,
    )


def make_judge(folder: Path, seed: int = 7) -> Path:
    """A causal model that answers chat messages."""
    import torch
    from transformers import LlamaForCausalLM

    torch.manual_seed(seed)
    words = tokenizer()
    LlamaForCausalLM(config(words)).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def make_verifier(folder: Path, seed: int = 8) -> Path:
    """A token classifier with the two classes of a transformer verifier."""
    import torch
    from transformers import LlamaForTokenClassification

    torch.manual_seed(seed)
    words = tokenizer()
    shape = config(words, num_labels=2, id2label={0: "incorrect", 1: "correct"}, label2id={"incorrect": 0, "correct": 1})
    LlamaForTokenClassification(shape).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--verifier", action="store_true")
    given = parser.parse_args()
    print((make_verifier if given.verifier else make_judge)(given.folder))
