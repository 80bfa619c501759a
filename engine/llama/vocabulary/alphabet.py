"""The characters that a vocabulary can represent. llama.cpp ends the process at others if bytes have no tokens."""

import re
from collections.abc import Mapping
from typing import Self

import llama_cpp

from engine.errors import RequestError
from engine.llama.vocabulary.attributes import PARSED, USER_DEFINED

_SPACE = "\u2581"
"""A space, as SentencePiece writes it."""
_ASCII = 128
_BYTES = 256


class Alphabet:
    """The characters of a vocabulary of SentencePiece that was made without `byte_fallback`."""

    def __init__(self, tokens: Mapping[str, int]) -> None:
        """Take the texts of all tokens, each with its attributes."""
        self._tokens = tokens.keys()
        self._names = {
            special: _names(tokens, PARSED | USER_DEFINED if special else USER_DEFINED) for special in (False, True)
        }

    @classmethod
    def of(cls, vocab: int) -> Self | None:
        """Return the alphabet of a vocabulary of llama.cpp; None if it can represent any text."""
        if llama_cpp.llama_vocab_type(vocab) != llama_cpp.LLAMA_VOCAB_TYPE_SPM:
            return None
        size = llama_cpp.llama_vocab_n_tokens(vocab)
        attributes = [llama_cpp.llama_vocab_get_attr(vocab, token) for token in range(size)]
        if sum(bool(its & llama_cpp.LLAMA_TOKEN_ATTR_BYTE) for its in attributes) >= _BYTES:
            return None
        texts = (llama_cpp.llama_vocab_get_text(vocab, token).decode(errors="replace") for token in range(size))
        return cls(dict(zip(texts, attributes, strict=True)))

    def check(self, text: str, *, special: bool) -> None:
        """Check that a text can be tokenised.

        Args:
            text: the text.
            special: whether the names of control tokens in it become these tokens.

        Raises:
            RequestError: it has a character without a token.
        """
        self._check(text, special, None)

    def check_breaker(self, text: str) -> None:
        """Check that a sequence breaker of DRY can be used.

        llama.cpp tokenises the rest of it behind each token that ends with its beginning.

        Raises:
            RequestError: the rest may have a character without a token.
        """
        for start in range(1, len(text)):
            self._check(text[start:], False, "dry_sequence_breakers")

    def _check(self, text: str, special: bool, param: str | None) -> None:
        if rest := self._names[special].sub("", text):
            characters = dict.fromkeys(_SPACE + rest.replace(" ", _SPACE))
            unknown = next((character for character in characters if not self._has(character)), None)
            if unknown is not None:
                message = f"the vocabulary of this model has no token for the character {unknown!r}"
                raise RequestError(message, param=param, code="unsupported")

    def _has(self, character: str) -> bool:
        return character in self._tokens or all(map(self._has_byte, character.encode()))

    def _has_byte(self, byte: int) -> bool:
        return f"<0x{byte:02X}>" in self._tokens or (byte < _ASCII and chr(byte) in self._tokens)


def _names(tokens: Mapping[str, int], attributes: int) -> re.Pattern[str]:
    """Return the pattern of the names that llama.cpp cuts out of a text first, the longest first."""
    names = sorted((text for text, its in tokens.items() if its & attributes), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, names)))
