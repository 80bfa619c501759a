"""Blocks of a response, made of smaller pieces."""

from collections.abc import Iterator

from gateway.middleware.streams.blocks import BLOCK, blocks


def test_each_piece_is_in_one_block() -> None:
    almost, rest, whole, last = b"x" * (BLOCK - 1), b"y", b"z" * BLOCK, b"last"
    assert list(blocks([almost, rest, whole, last])) == [almost + rest, whole, last]
    assert list(blocks([whole, b"", b""])) == [whole, b""]


def test_no_piece_is_taken_before_its_block() -> None:
    taken = []

    def pieces() -> Iterator[bytes]:
        for number in range(3):
            taken.append(number)
            yield b"x" * BLOCK

    next(blocks(pieces()))
    assert taken == [0]
