"""The checkpoints of a prompt: at its turns, and at regular places where nothing is known of it."""

import random

import pytest

from engine.prompt import PromptText
from engine.testing.fake_model import FakeModel
from engine.worker.checkpoints import WORTH_A_STEP, find_checkpoints

MODEL = FakeModel(can_trim=False)
TEXT = "".join(random.Random(0).choices("abcdefgh", k=1000))


class Merging(FakeModel):
    """A model with a token for "ab", and one that it puts before each text."""

    def tokenize_parts(self, prompt: PromptText, *, begin: bool = True) -> list[int]:
        tokens = super().tokenize_parts(prompt)
        merged = bytes(tokens).replace(b"ab", b"\xff")
        return [*([0] if begin else []), *merged]


def found(model: FakeModel, *turns: int, text: str = TEXT) -> tuple[int, ...]:
    prompt = PromptText(text, (), turns)
    return find_checkpoints(prompt, model.tokenize_parts(prompt), model)


def test_the_turns_and_the_end_of_a_chat_are_checkpoints() -> None:
    assert found(MODEL, 100, 400, 900) == (100, 400, 900, 1000)


def test_names_that_are_plain_stay_plain_on_both_sides_of_a_turn() -> None:
    text = "x" * 90 + "<end>" + "y" * 200
    prompt = PromptText(text, ((80, 295),), (100, 200))
    assert find_checkpoints(prompt, MODEL.tokenize_parts(prompt), MODEL) == (100, 200, 295)
    special = PromptText(text, ((120, 295),), (100, 200))
    assert find_checkpoints(special, MODEL.tokenize_parts(special), MODEL) == (96, 196, 291)


def test_a_checkpoint_too_near_to_another_one_is_left_out() -> None:
    near = WORTH_A_STEP - 1
    assert found(MODEL, near) == (1000,)
    assert found(MODEL, 100, 100 + near, 100 + 2 * near) == (100, 100 + 2 * near, 1000)
    assert found(MODEL, 990) == (990,), "the next prompt computes ten tokens, and one state less is saved"
    assert found(MODEL, text="short") == ()


@pytest.mark.parametrize("at", [200, 800])
def test_a_turn_within_a_token_counts_only_the_tokens_before_it(at: int) -> None:
    text = f"{'c' * (at - 1)}ab{'d' * (999 - at)}"
    assert found(Merging(can_trim=False), at, text=text) == (at, 1000)
    assert found(Merging(can_trim=False), at - 1, text=text) == (at, 1000), "one token is before all text"


@pytest.mark.parametrize(
    ("size", "places"),
    [
        (60, ()),
        (100, (92, 100 if 100 - 92 >= 16 else 92)),
        (600, (256, 512, 592)),
        (5000, (1024, 2048, 3072, 4096, 4992)),
    ],
)
def test_a_prompt_without_turns_has_a_bounded_number_of_checkpoints(size: int, places: tuple[int, ...]) -> None:
    tokens = [1] * size
    assert find_checkpoints(tuple(tokens), tokens, MODEL) == tuple(dict.fromkeys(places))
