"""Token-level sequences: what stands where, what is dropped, and that batches and packing change nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from critic_prm.errors import UsageError
from distill.layouts import Encoder, make_encoder
from distill.settings import LayoutName
from distill.training.batches import collate, micro, pack, plan
from tests.distill.tiny import tiny_tokenizer

STEPS = ["1 + 2 = 3\n", "", "so the answer is 3"]


def encoder(layout: LayoutName = "default", length: int = 512, chat: bool = False) -> Encoder:
    return make_encoder(tiny_tokenizer(), layout, length, chat_template=chat)


def tokens(text: str) -> list[int]:
    return list(tiny_tokenizer()(text, add_special_tokens=False)["input_ids"])


def test_a_step_is_its_own_tokens_and_its_separator_s() -> None:
    found = encoder().encode("Add.", STEPS)
    expected = tokens("Add.\n\n")
    ends = []
    for step in STEPS:
        expected += tokens(step) + tokens("\n\n")
        ends.append(len(expected) - 1)
    assert found.ids.tolist() == expected
    assert found.ends.tolist() == ends
    # Joined text would have merged the step's own line end with the separator's.
    assert found.ids.tolist() != tokens("Add.\n\n" + "".join(step + "\n\n" for step in STEPS))


def test_trl_s_layout_has_nothing_between_problem_and_steps_and_scores_on_the_line_end() -> None:
    found = encoder("trl").encode("Add.", STEPS)
    assert found.ids.tolist() == tokens("Add.") + [t for step in STEPS for t in tokens(step) + tokens("\n")]
    assert set(found.ids[found.ends].tolist()) == set(tokens("\n"))


def test_qwen_s_layout_is_its_chat_with_a_tag_after_each_step() -> None:
    found = encoder("qwen").encode("Add.", ["1 + 2 = 3", "3"])
    text = (
        "<|im_start|>system\nPlease reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n"
        "<|im_start|>user\nAdd.<|im_end|>\n<|im_start|>assistant\n1 + 2 = 3<extra_0>3<extra_0>"
    )
    assert found.ids.tolist() == tokens(text)
    assert found.ids[found.ends].tolist() == tokens("<extra_0>") * 2


def test_math_shepherd_scores_before_the_line_end() -> None:
    found = encoder("math-shepherd").encode("Add.", ["a", "b"])
    assert found.ids.tolist() == tokens("Add. ") + tokens("a") + tokens(" ки") + tokens("\n") + tokens("b") + tokens(" ки")
    assert found.ends.tolist() == [len(tokens("Add. ") + tokens("a") + tokens(" ки")) - 1, len(found.ids) - 1]


def test_a_chat_template_holds_the_problem() -> None:
    found = encoder(chat=True).encode("Add.", ["a"])
    head = "<|im_start|>user\nAdd.<|im_end|>\n<|im_start|>assistant\n"
    assert found.ids.tolist() == tokens(head) + tokens("a") + tokens("\n\n")
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(UsageError, match="no chat template"):
        make_encoder(tokenizer, "default", 512, chat_template=True)


def test_an_encoder_begins_and_ends_as_it_was_pretrained() -> None:
    tokenizer = tiny_tokenizer(encoder=True)
    found = make_encoder(tokenizer, "default", 512, causal=False).encode("Add.", ["a"])
    assert found.ids[0] == tokenizer.cls_token_id
    assert found.ids[-1] == tokenizer.sep_token_id
    assert found.ends.tolist() == [len(found.ids) - 2]


@pytest.mark.parametrize("room", range(5, 40))
def test_what_does_not_fit_is_dropped_in_whole_steps(room: int) -> None:
    steps = ["one", "two", "three" * 3, "4"]
    whole = encoder().encode("Add.", steps)
    found = encoder(length=room).encode("Add.", steps)
    assert len(found.ends) + found.dropped == len(steps)
    assert len(found.ids) <= max(room, len(tokens("Add.\n\n")))
    assert found.ids.tolist() == whole.ids[: len(found.ids)].tolist()
    assert found.ends.tolist() == [end for end in whole.ends.tolist() if end < room]
    assert not len(found.ends) or found.ends[-1] == len(found.ids) - 1


def test_many_at_once_are_the_same_as_one_by_one() -> None:
    items = [("Add.", STEPS), ("", ["x"]), ("No steps", [])]
    for one, (problem, steps) in zip(encoder().encode_many(items), items, strict=True):
        assert one.ids.tolist() == encoder().encode(problem, steps).ids.tolist()


def test_an_epoch_is_every_row_once_in_steps_of_like_size() -> None:
    lengths = np.random.default_rng(0).integers(10, 500, 700)
    steps = plan(lengths, 4096, np.random.default_rng(1))
    assert sorted(np.concatenate(steps).tolist()) == list(range(700))
    sizes = np.array([lengths[rows].sum() for rows in steps])
    assert sizes.max() <= 4096 + lengths.max()
    assert sizes.min() > 2048
    again = plan(lengths, 4096, np.random.default_rng(1))
    assert all((a == b).all() for a, b in zip(steps, again, strict=True))
    waste = [lengths[part].max() * len(part) / lengths[part].sum() for rows in steps for part in micro(rows, lengths, 2048)]
    assert np.mean(waste) < 1.1


def test_a_row_longer_than_a_step_is_a_step_of_its_own() -> None:
    steps = plan(np.array([10, 9000, 20]), 100, np.random.default_rng(0))
    assert sorted(np.concatenate(steps).tolist()) == [0, 1, 2]
    assert [len(part) for part in micro(np.arange(3), np.array([10, 9000, 20]), 100)] == [1, 2]


def test_packing_takes_the_padding_out_and_nothing_else(tmp_path: Path) -> None:
    encoded = encoder().encode_many([("Add.", STEPS), ("", ["x"])])
    batch = collate(encoded, 7, causal=True)
    rows = pack(batch)
    assert rows.ids[0].tolist() == [*encoded[0].ids, *encoded[1].ids]
    assert rows.positions[0].tolist() == [*range(len(encoded[0].ids)), *range(len(encoded[1].ids))]
    assert rows.ids[0][rows.at].tolist() == batch.ids.flatten()[batch.at].tolist()
    assert rows.spans == ((0, len(encoded[0].ids)), (len(encoded[0].ids), batch.tokens))
