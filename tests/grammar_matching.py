"""llguidance over a small vocabulary, where markers are tokens or plain text."""

from collections.abc import Sequence

from llguidance import LLMatcher, LLTokenizer
from llguidance._tokenizer import TokenizerWrapper

from engine import Grammar
from engine.sampling.grammar import to_lark


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
