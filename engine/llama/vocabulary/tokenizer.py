"""A model's vocabulary: conversion between text and token ids, and its special tokens."""

import ctypes
import re
from functools import cached_property, partial
from itertools import pairwise

import llama_cpp

from engine.errors import RequestError
from engine.llama.vocabulary.alphabet import Alphabet
from engine.llama.vocabulary.attributes import PARSED, USER_DEFINED
from engine.llama.vocabulary.name_cuts import NameCuts
from engine.prompt import PromptText
from engine.sampling.grammar import Vocabulary
from engine.sampling.native_calls import on_deep_stack

_PIECE_BYTES = 64
_SPECIAL: int = llama_cpp.LLAMA_TOKEN_ATTR_CONTROL | USER_DEFINED
_FILL_NAMES = ("prefix", "suffix", "middle", "repository", "file")
_SPACES = " \t\n\v\f\r"
"""The characters that llama.cpp strips beside a token with such an attribute."""

_BARS = re.compile(r"<[|\uff5c]|.*[|\uff5c]>$", re.DOTALL)
"""Names by which llama.cpp's converter recognises control tokens.

It makes some of them user-defined, so that they are shown: those of the turns of gpt-oss and the calls of Gemma 4.
"""

_SHALLOW = 2**12
"""Characters that llama.cpp may tokenise on the stack of any thread."""
_STACK_UNIT, _CHARACTERS_PER_UNIT = 2**21, 2**12
"""Bytes of stack for so many characters. Where llama.cpp splits texts with `std::regex`, as for models of DeepSeek,
Mistral and GPT-OSS, it recurses for each character of a long word: up to 336 bytes deeper."""


class Tokenizer:
    """The vocabulary of a loaded model. Any thread may call its methods until `close`."""

    size: int
    """Number of token ids."""
    bos: str
    """Text of the beginning-of-sequence token; empty without one."""
    eos: str
    """Text of the end-of-sequence token; empty without one."""
    end_tokens: frozenset[int]
    """The ids that end a generation."""
    suppressed_tokens: frozenset[int]
    """The ids that the model's file excludes from generated texts, such as those without weights."""
    infills: bool
    """True if there are tokens for fill-in-the-middle prompts."""
    fill_tokens: dict[str, int]
    """Ids of the tokens of fill-in-the-middle prompts, by `_FILL_NAMES`."""
    special_tokens: dict[str, int]
    """Ids of the control tokens and of the marks that the model's makers defined, by name."""
    control_names: tuple[str, ...]
    """Names that become tokens only if they are parsed."""

    def __init__(self, vocab: int) -> None:
        """Read a vocabulary of llama.cpp. It must outlive this object, or `close` must be called first."""
        self._vocab: int | None = vocab
        self.size = llama_cpp.llama_vocab_n_tokens(vocab)
        self._pieces: dict[bool, list[bytes | None]] = {special: [None] * self.size for special in (False, True)}
        self._adds_bos = bool(llama_cpp.llama_vocab_get_add_bos(vocab))
        self._bos: int = llama_cpp.llama_vocab_bos(vocab)
        self.bos = self._name(self._bos)
        self.eos = self._name(llama_cpp.llama_vocab_eos(vocab))
        is_end = llama_cpp.llama_vocab_is_eog
        self.end_tokens = frozenset(token for token in range(self.size) if is_end(vocab, token))
        self.suppressed_tokens = frozenset(_suppressed_tokens(vocab))
        gap = (llama_cpp.llama_vocab_fim_pre, llama_cpp.llama_vocab_fim_suf, llama_cpp.llama_vocab_fim_mid)
        self._gap: list[int] = [token(vocab) for token in gap]
        finders = zip(_FILL_NAMES, (*gap, llama_cpp.llama_vocab_fim_rep, llama_cpp.llama_vocab_fim_sep), strict=True)
        self.fill_tokens = {name: token for name, find in finders if (token := int(find(vocab))) >= 0}
        self.infills = min(self._gap) >= 0
        self._attributes: list[int] = [llama_cpp.llama_vocab_get_attr(vocab, token) for token in range(self.size)]
        self.special_tokens = {self._name(token): token for token in self._having(_SPECIAL)}
        marks = [name for name in map(self._name, self._having(USER_DEFINED)) if _BARS.match(name)]
        self._mark = re.compile(f"(?={'|'.join(map(re.escape, marks))})") if marks else None
        self._cuts = NameCuts({self._text(token): self._attributes[token] for token in self._having(_SPECIAL | PARSED)})
        self._alphabet = Alphabet.of(vocab)
        names = dict.fromkeys([*map(self._name, self._having(PARSED)), *marks])
        self.control_names = tuple(name for name in names if name.strip())

    def grammar_vocabulary(self) -> Vocabulary:
        """Return the tokens for grammars. A model family's own marks (`<think>`) are control tokens. May take long."""
        steers = list(map(self._steers, range(self.size)))
        tokens = [self.piece(token, special=special) for token, special in enumerate(steers)]
        control = [token for token, special in enumerate(steers) if special]
        return Vocabulary(tokens, control, self.end_tokens, partial(self.tokenize, special=False, begin=False))

    def close(self) -> None:
        """Drop the reference to the C vocabulary. Repeatable."""
        self._vocab = None

    @property
    def vocab(self) -> int:
        """The C vocabulary.

        Raises:
            ValueError: the model is closed.
        """
        if not self._vocab:
            raise ValueError("the model is closed")
        return self._vocab

    def tokenize(self, text: str, *, special: bool, begin: bool) -> list[int]:
        """Return the token ids of a text. May take long.

        Args:
            text: the text.
            special: whether the names of control tokens in it become these tokens.
            begin: whether the model's beginning-of-sequence token is added, unless the text begins with its name.

        Raises:
            RequestError: the model has no token for a character.
        """
        if special:
            tokens = self._tokens(self._without_bos(text) if begin else text, special=True)
        else:
            tokens = self._plain(text)
        return self._enclosed(tokens, begin=begin)

    def tokenize_parts(self, prompt: PromptText, *, begin: bool) -> list[int]:
        """Return the token ids of a text with plain parts. May take long.

        llama.cpp cuts a text beside each control token, too. So the tokens are those of a model that does not know the
        names in the plain parts.

        Args:
            prompt: the text. Names of control tokens become these tokens, except where it is plain.
            begin: as in `tokenize`.

        Raises:
            RequestError: as in `tokenize`.
        """
        (head, _), *parts = prompt.parts()
        tokens = self._tokens(self._without_bos(head) if begin else head, special=True)
        for (plain, _), (following, _) in zip(parts[::2], parts[1::2], strict=True):
            after = self._tokens(following, special=True)
            tokens += [*self._plain(self._stripped(plain, tokens[-1:], after[:1])), *after]
        return self._enclosed(tokens, begin=begin)

    def _stripped(self, text: str, before: list[int], after: list[int]) -> str:
        """Return a text without the spaces that llama.cpp strips beside some control tokens."""
        if any(self._attributes[token] & llama_cpp.LLAMA_TOKEN_ATTR_RSTRIP for token in before):
            text = text.lstrip(_SPACES)
        if any(self._attributes[token] & llama_cpp.LLAMA_TOKEN_ATTR_LSTRIP for token in after):
            text = text.rstrip(_SPACES)
        return text

    def _plain(self, text: str) -> list[int]:
        """Return the tokens of a text in which no name of a control token is parsed.

        llama.cpp parses names of user-defined tokens in every text, so those that look like control tokens are cut
        after a character. It may also merge characters to a control token, if two pieces form its name.
        """
        cuts = [match.start() + 1 for match in self._mark.finditer(text)] if self._mark else []
        parts = (text[start:end] for start, end in pairwise([0, *cuts, len(text)]))
        return [token for part in parts for one in self._tokens(part, special=False) for token in self._spelled(one)]

    def _spelled(self, token: int) -> list[int]:
        """Return a token, or the tokens of the bytes of its name if it is a control token."""
        if not self._attributes[token] & llama_cpp.LLAMA_TOKEN_ATTR_CONTROL:
            return [token]
        return [self._bytes[byte] for byte in self.piece(token, special=True) if byte in self._bytes]

    @cached_property
    def _bytes(self) -> dict[int, int]:
        """The tokens of single bytes."""
        pieces = ((self.piece(token, special=False), token) for token in range(self.size))
        return {piece[0]: token for piece, token in pieces if len(piece) == 1}

    def _enclosed(self, tokens: list[int], *, begin: bool) -> list[int]:
        """Return tokens of a text between those that the model adds to every text."""
        added = self._tokens_at_once("", special=False, begin=True) if begin else []
        before = 1 if self._adds_bos else 0
        return [*added[:before], *tokens, *added[before:]]

    def _without_bos(self, text: str) -> str:
        return text.removeprefix(self.bos) if self._adds_bos else text

    def _tokens(self, text: str, *, special: bool) -> list[int]:
        if self._alphabet:
            self._alphabet.check(text, special=special)
        parts = self._cuts.parts(text, special=special)
        return [token for part in parts for token in self._tokens_at_once(part, special=special)]

    def _tokens_at_once(self, text: str, *, special: bool, begin: bool = False) -> list[int]:
        if len(text) <= _SHALLOW:
            return self._tokens_here(text, special=special, begin=begin)
        work = partial(self._tokens_here, text, special=special, begin=begin)
        return on_deep_stack(work, _STACK_UNIT * (len(text) // _CHARACTERS_PER_UNIT + 1))

    def _tokens_here(self, text: str, *, special: bool, begin: bool) -> list[int]:
        data = text.encode()
        count = len(data) + 16  # hardly ever more, so that a slow text is tokenised only once
        while True:
            buffer = (llama_cpp.llama_token * count)()
            given = llama_cpp.llama_tokenize(self.vocab, data, len(data), buffer, count, begin, special)
            if given >= 0:
                return self._known(buffer[:given])
            count = -given

    def _known(self, tokens: list[int]) -> list[int]:
        """Return tokens, if all have ids. A vocabulary without an unknown token gives -1 where a text has no token.

        Raises:
            RequestError: a part of the text has no token.
        """
        if tokens and not 0 <= min(tokens) <= max(tokens) < self.size:
            message = "the vocabulary of this model has no token for a part of the text"
            raise RequestError(message, code="unsupported")
        return tokens

    def infill(self, prefix: str, suffix: str) -> list[int]:
        """Return the token ids of a fill-in-the-middle prompt: prefix, suffix, and the mark of the middle.

        Names of control tokens in the texts are plain text.

        Raises:
            RequestError: the model has no tokens for it, or none for a character.
        """
        if not self.infills:
            raise RequestError("this model cannot fill in: it has no tokens for it", param="suffix", code="unsupported")
        before, after, middle = self._gap
        beginning = [self._bos] if self._adds_bos else []
        texts = [self.tokenize(text, special=False, begin=False) for text in (prefix, suffix)]
        return [*beginning, before, *texts[0], after, *texts[1], middle]

    def check_breaker(self, text: str) -> None:
        """Check that llama.cpp can search the vocabulary for a sequence breaker of DRY.

        Raises:
            RequestError: the model has no token for a character of it.
        """
        if self._alphabet:
            self._alphabet.check_breaker(text)

    def piece(self, token: int, *, special: bool) -> bytes:
        """Return the bytes of a token, which may be a part of a character.

        A control token returns its name if `special`, else no bytes.

        Raises:
            ValueError: the id is out of range.
        """
        if not 0 <= token < self.size:  # llama.cpp would end the process
            raise ValueError(f"token id {token} is out of range: this model has ids 0 to {self.size - 1}")
        piece = self._pieces[special][token]
        if piece is None:
            piece = self._pieces[special][token] = self._read_piece(token, special=special)
        return piece

    def _steers(self, token: int) -> bool:
        attributes = self._attributes[token]
        if attributes & USER_DEFINED:
            piece = self.piece(token, special=True)
            return piece.startswith(b"<") and piece.endswith(b">")
        return bool(attributes & llama_cpp.LLAMA_TOKEN_ATTR_CONTROL)

    def _having(self, attributes: int) -> list[int]:
        return [token for token, its in enumerate(self._attributes) if its & attributes]

    def _text(self, token: int) -> str:
        """Return the text of a token as the vocabulary has it."""
        text: bytes = llama_cpp.llama_vocab_get_text(self.vocab, token)
        return text.decode(errors="replace")

    def _name(self, token: int) -> str:
        return self.piece(token, special=True).decode(errors="replace") if token >= 0 else ""

    def _read_piece(self, token: int, *, special: bool) -> bytes:
        size = _PIECE_BYTES
        while True:
            buffer = ctypes.create_string_buffer(size)
            given = llama_cpp.llama_token_to_piece(self.vocab, token, buffer, size, 0, special)
            if given >= 0:
                return buffer.raw[:given]
            size = -given


def _suppressed_tokens(vocab: int) -> list[int]:
    count = ctypes.c_int32()
    tokens = llama_cpp.llama_vocab_get_suppress_tokens(vocab, ctypes.byref(count))
    return tokens[: count.value] if tokens else []
