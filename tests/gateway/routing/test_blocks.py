import pytest

from gateway.routing.blocks import BLOCK_BYTES, MOST_BLOCKS, PromptScope, text_blocks, token_blocks

SCOPE = PromptScope("m")


def test_a_block_names_all_before_it() -> None:
    one = text_blocks("a" * BLOCK_BYTES + "b" * BLOCK_BYTES + "rest", SCOPE)
    other = text_blocks("c" * BLOCK_BYTES + "b" * BLOCK_BYTES, SCOPE)
    assert len(one) == len(other) == 2
    assert not set(one) & set(other)


def test_a_longer_prompt_begins_with_the_hashes_of_a_shorter_one() -> None:
    text = "".join(map(str, range(1000)))
    assert text_blocks(text, SCOPE)[:3] == text_blocks(text[: 3 * BLOCK_BYTES + 5], SCOPE)


def test_blocks_are_cut_by_bytes() -> None:
    assert len(text_blocks("é" * BLOCK_BYTES, SCOPE)) == 2
    assert len(text_blocks("\ud800" * BLOCK_BYTES, SCOPE)) == 3


@pytest.mark.parametrize(
    "scope",
    [PromptScope("n"), PromptScope("m", "key"), PromptScope("m", "", ((0, 1.0),)), PromptScope("", "m")],
    ids=["model", "partition", "adapters", "other field"],
)
def test_scopes_share_no_hash(scope: PromptScope) -> None:
    text = "x" * 10 * BLOCK_BYTES
    assert not set(text_blocks(text, SCOPE)) & set(text_blocks(text, scope))
    assert not set(token_blocks(range(1000), SCOPE)) & set(token_blocks(range(1000), scope))


def test_a_secret_changes_every_hash() -> None:
    text = "x" * 10 * BLOCK_BYTES
    assert not set(text_blocks(text, SCOPE)) & set(text_blocks(text, SCOPE, b"secret"))


def test_tokens_are_not_text() -> None:
    tokens = [0x61616161] * BLOCK_BYTES
    assert not set(token_blocks(tokens, SCOPE)) & set(text_blocks("a" * 4 * BLOCK_BYTES, SCOPE))
    assert token_blocks(tokens, SCOPE)[:1] == token_blocks(tokens[: BLOCK_BYTES // 4], SCOPE)
    assert len(token_blocks([-1] * BLOCK_BYTES, SCOPE)) == 4


def test_the_number_of_hashes_is_bounded() -> None:
    assert len(text_blocks("x" * BLOCK_BYTES * (MOST_BLOCKS + 5), SCOPE)) == MOST_BLOCKS
    assert len(token_blocks([7] * BLOCK_BYTES * MOST_BLOCKS, SCOPE)) == MOST_BLOCKS


def test_hashes_do_not_change_between_versions() -> None:
    """Routers and replicas of a rolling update must agree."""
    blocks = text_blocks("x" * BLOCK_BYTES, PromptScope("m", "p", ((1, 0.5),)), b"secret")
    assert [f"{block:016x}" for block in blocks] == ["b0d08334522256fb"]
