"""A model's vocabulary: conversion between text and token ids, and its special tokens."""

import ctypes

import llama_cpp

from engine.errors import RequestError

_PIECE_BYTES = 64
_SPECIAL: int = llama_cpp.LLAMA_TOKEN_ATTR_CONTROL | llama_cpp.LLAMA_TOKEN_ATTR_USER_DEFINED


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
    infills: bool
    """True if there are tokens for fill-in-the-middle prompts."""
    special_tokens: dict[str, int]
    """Ids of the control tokens and of the marks that the model's makers defined, by name."""

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
        gap = (llama_cpp.llama_vocab_fim_pre, llama_cpp.llama_vocab_fim_suf, llama_cpp.llama_vocab_fim_mid)
        self._gap: list[int] = [token(vocab) for token in gap]
        self.infills = min(self._gap) >= 0
        attributes = llama_cpp.llama_vocab_get_attr
        special = [token for token in range(self.size) if attributes(vocab, token) & _SPECIAL]
        self.special_tokens = {self._name(token): token for token in special}

    @property
    def control_tokens(self) -> set[int]:
        """The ids that have no text, and a model family's own marks (`<think>`). Looks at every id."""
        return {token for token in range(self.size) if self._steers(token)}

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
        """
        if begin and special and self._adds_bos and self.bos:
            text = text.removeprefix(self.bos)
        data = text.encode()
        count = len(data) // 2 + 16
        while True:
            buffer = (llama_cpp.llama_token * count)()
            given = llama_cpp.llama_tokenize(self.vocab, data, len(data), buffer, count, begin, special)
            if given >= 0:
                return buffer[:given]
            count = -given

    def infill(self, prefix: str, suffix: str) -> list[int]:
        """Return the token ids of a fill-in-the-middle prompt: prefix, suffix, and the mark of the middle.

        Names of control tokens in the texts are plain text.

        Raises:
            RequestError: the model has no tokens for it.
        """
        if not self.infills:
            raise RequestError("this model cannot fill in: it has no tokens for it", param="suffix", code="unsupported")
        before, after, middle = self._gap
        beginning = [self._bos] if self._adds_bos else []
        texts = [self.tokenize(text, special=False, begin=False) for text in (prefix, suffix)]
        return [*beginning, before, *texts[0], after, *texts[1], middle]

    def piece(self, token: int, *, special: bool) -> bytes:
        """Return the bytes of a token, which may be a part of a character.

        A control token returns its name if `special`, else no bytes.

        Raises:
            ValueError: the id is out of range.
        """
        self.check(token)
        piece = self._pieces[special][token]
        if piece is None:
            piece = self._pieces[special][token] = self._read_piece(token, special=special)
        return piece

    def check(self, token: int) -> None:
        """Check a token id, because llama.cpp would end the process.

        Raises:
            ValueError: the id is out of range.
        """
        if not 0 <= token < self.size:
            raise ValueError(f"token id {token} is out of range: this model has ids 0 to {self.size - 1}")

    def _steers(self, token: int) -> bool:
        attributes = llama_cpp.llama_vocab_get_attr(self.vocab, token)
        if attributes & llama_cpp.LLAMA_TOKEN_ATTR_USER_DEFINED:
            piece = self.piece(token, special=True)
            return piece.startswith(b"<") and piece.endswith(b">")
        return bool(attributes & llama_cpp.LLAMA_TOKEN_ATTR_CONTROL)

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
