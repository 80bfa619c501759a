"""The training script in miniature: it learns, resumes, and exports a file with the same results in llama.cpp."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training needs the `train` extra")

from engine.embedded.training import batches, train  # noqa: E402
from engine.embedded.training.check import agreement  # noqa: E402
from engine.embedded.training.corpus.draw import Draw  # noqa: E402
from engine.embedded.training.corpus.example import Completion, Conversation  # noqa: E402
from engine.embedded.training.corpus.example import exchange as exchanged  # noqa: E402
from engine.embedded.training.export import export  # noqa: E402
from engine.embedded.training.llama_cpp_reader import Reader  # noqa: E402
from engine.embedded.training.network import Network, Shape  # noqa: E402
from engine.embedded.training.tokenizer import Tokenizer  # noqa: E402

RECIPE = train.Recipe(
    steps=6, first_lessons=3, last_lessons=2, polish=2, tokens_per_step=600, warm_up=2, checkpoint_every=3
)
WORDS = Tokenizer([(b"t", b"h"), (b"th", b"e"), (b"a", b"s")])
SHAPE = Shape(len(WORDS), width=32, layers=2, heads=2, feed_forward=64)

torch.set_num_threads(1)


def fresh_network() -> Network:
    torch.manual_seed(1)
    return Network(SHAPE)


def test_only_answers_and_their_ends_are_learned() -> None:
    one = batches.encode(Completion("1+1=", "2"), WORDS)
    assert WORDS.decode(token for token, learned in zip(one.ids, one.learned, strict=True) if learned) == (
        b"2<|endoftext|>"
    )
    talk = Conversation((*exchanged("Hi", "Hello!"), *exchanged("Bye", "Goodbye!")))
    two = batches.encode(talk, WORDS)
    assert WORDS.decode(token for token, learned in zip(two.ids, two.learned, strict=True) if learned) == (
        b"Hello!<|im_end|>Goodbye!<|im_end|>"
    )


def test_positions_rise_and_stay_within_the_context() -> None:
    draw = Draw(1, held_out=False)
    ids = WORDS.encode("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello!<|im_end|>\n")
    many = [batches.positions(ids, WORDS, 2_048, draw, 0.5) for _ in range(200)]
    assert all(later > earlier for one in many for earlier, later in pairwise(one))
    assert all(one[-1] < 2_048 for one in many)
    assert max(one[-1] for one in many) > 1_500
    assert list(range(len(ids))) in many


def test_the_loss_falls_and_a_resumed_run_ends_where_a_whole_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fresh_network()
    judged = train.lesson(99, WORDS, RECIPE, SHAPE.context)
    before = sum(train.loss(whole, batch).item() for batch in judged)
    train.train(whole, WORDS, RECIPE, tmp_path / "whole.pt")
    assert sum(train.loss(whole, batch).item() for batch in judged) < before

    def interrupted(step: int, *others: Any) -> list[batches.Batch]:
        if step == 4:
            raise KeyboardInterrupt
        return lesson(step, *others)

    lesson = train.lesson
    monkeypatch.setattr(train, "lesson", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train.train(fresh_network(), WORDS, RECIPE, tmp_path / "halved.pt")
    monkeypatch.setattr(train, "lesson", lesson)
    resumed = fresh_network()
    train.train(resumed, WORDS, RECIPE, tmp_path / "halved.pt")
    for ours, theirs in zip(whole.parameters(), resumed.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_llama_cpp_computes_the_same_logits_as_the_network(tmp_path: Path) -> None:
    network, file = fresh_network(), tmp_path / "small.gguf"
    export(network, WORDS, file)
    texts = list(train.texts(Draw(1, held_out=False), 20))
    found = agreement(network, WORDS, Reader(file, every_logit=True), texts)
    assert found.tokens > 100
    assert found.largest < 0.01
