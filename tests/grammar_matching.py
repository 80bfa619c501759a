"""llguidance over a small vocabulary, where markers are tokens or plain text."""

import random
from collections.abc import Sequence

from llguidance import LLMatcher, LLTokenizer
from llguidance._tokenizer import TokenizerWrapper

from engine import Grammar
from engine.sampling.grammar import to_lark

_LONGEST = 600
"""Maximum of tokens of a drawn text."""


class _Bytes:
    """A vocabulary of all bytes, an end, and special tokens."""

    bos_token_id = None

    def __init__(self, special: Sequence[str]) -> None:
        self.eos_token_id = 256
        self.special_token_ids = [256, *(257 + at for at in range(len(special)))]
        names = ["<end>", *special]
        self.tokens = [bytes([value]) for value in range(256)] + [b"\xff" + name.encode() for name in names]

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


class Vocabulary:
    """The vocabulary of a model with these special tokens."""

    def __init__(self, special: Sequence[str] = ()) -> None:
        self.special_tokens = {name: 257 + at for at, name in enumerate(special)}
        """The ids of the special tokens by their names."""
        self._tokenizer = LLTokenizer(TokenizerWrapper(_Bytes(special)))

    def allows(self, grammar: Grammar, text: str) -> bool:
        """Return true if a grammar allows `text` as a whole choice."""
        assert self.refusal(grammar) == ""
        matcher = LLMatcher(self._tokenizer, to_lark(grammar))
        tokens = self._tokens(text)
        return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()

    def sample(self, grammar: Grammar, chance: random.Random, ends: Sequence[str]) -> str | None:
        """Return a text that a grammar allows, drawn at random; None if it became too long.

        Args:
            grammar: the grammar.
            chance: the source of chance.
            ends: texts of the family's markup, which are drawn whole, and more often the longer the text is.
        """
        matcher = LLMatcher(self._tokenizer, to_lark(grammar))
        drawn: list[int] = []
        while len(drawn) < _LONGEST and (allowed := self._allowed(matcher)):
            if matcher.is_accepting() and chance.random() < 0.5:
                break
            marker = self._tokens(chance.choice(ends))
            if chance.random() < len(drawn) / _LONGEST + 0.2 and matcher.validate_tokens(marker) == len(marker):
                step = marker
            else:
                step = [chance.choice([token for token in allowed if 32 <= token < 127] or allowed)]
            assert matcher.try_consume_tokens(step) == len(step)
            drawn += step
        return self._text(drawn) if matcher.is_accepting() else None

    def _allowed(self, matcher: LLMatcher) -> list[int]:
        mask = int.from_bytes(matcher.compute_bitmask(), "little")
        return [token for token in (*range(256), *self.special_tokens.values()) if mask >> token & 1]

    def _text(self, tokens: Sequence[int]) -> str:
        names = {token: name.encode() for name, token in self.special_tokens.items()}
        return b"".join(names.get(token) or bytes([token]) for token in tokens).decode()

    def refusal(self, grammar: Grammar) -> str:
        """Return why llguidance refuses a grammar; empty if it does not."""
        words: str = LLMatcher.validate_grammar(to_lark(grammar), self._tokenizer)
        return words

    def _tokens(self, text: str) -> list[int]:
        tokens: list[int] = []
        while text:
            name = next((name for name in self.special_tokens if text.startswith(name)), None)
            tokens += [self.special_tokens[name]] if name else text[0].encode()
            text = text[len(name) if name else 1 :]
        return tokens
