"""The exported file in llama.cpp: its logits, and greedy answers for the evaluation."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from engine.embedded.training.template import Message, Tool, render

LONGEST = 1_000


class Reader:
    """A GGUF file in llama.cpp on one thread. Decodes greedily, at most `LONGEST` tokens, one sequence at a time."""

    def __init__(self, file: Path, *, every_logit: bool = False) -> None:
        self._llama = llama_cpp.Llama(
            str(file), n_ctx=0, n_threads=1, n_threads_batch=1, logits_all=every_logit, verbose=False
        )
        self._vocabulary = llama_cpp.llama_model_get_vocab(self._llama.model)

    def tokens(self, text: str, *, begin: bool = False) -> list[int]:
        """Return llama.cpp's ids for `text`. Parses special tokens; `begin` adds the BOS token."""
        return self._llama.tokenize(text.encode(), add_bos=begin, special=True)

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Return the logits [tokens, vocabulary] after each token. Requires `every_logit`."""
        self._llama.n_tokens = 0
        self._llama.eval(tokens)
        return self._llama.scores[: len(tokens)].copy()

    def complete(self, prompt: str) -> str:
        """Return the completion of a bare prompt, up to the end token."""
        new = list(self._answer(self.tokens(prompt, begin=True)))
        return self._llama.detokenize(new).decode(errors="replace")

    def chat(self, messages: Sequence[Message], tools: Sequence[Tool]) -> str:
        """Return the assistant's next message as generated text, tool calls included."""
        return self.complete(render(messages, tools, ask=True))

    def _answer(self, prompt: list[int]) -> Iterator[int]:
        room = min(LONGEST, self._llama.n_ctx() - len(prompt))
        for token, _ in zip(self._llama.generate(prompt, temp=0.0, repeat_penalty=1.0), range(room), strict=False):
            if llama_cpp.llama_vocab_is_eog(self._vocabulary, token):
                return
            yield token
