"""Prompts of models that rank: a query and a document."""

import re
from itertools import pairwise

import llama_cpp

from engine.llama.vocabulary.tokenizer import Tokenizer
from engine.prompt import PromptText

_PLACE = re.compile(r"(\{query\}|\{document\})")


class PairPrompt:
    """Joins queries and documents as a model was trained, by the template in its file if it has one.

    A name of a control token in their texts stays text, and so does the name of a place in the template.
    """

    def __init__(self, tokenizer: Tokenizer, template: str | None) -> None:
        """Take a template with the places `{query}` and `{document}`; None puts special tokens beside the texts."""
        self._tokenizer = tokenizer
        self._pieces = _PLACE.split(template) if template is not None else None
        names = sorted(filter(None, tokenizer.special_tokens), key=len, reverse=True)
        self._names = re.compile("|".join(map(re.escape, names)) or r"(?!)")

    def tokenize(self, query: str, document: str) -> list[int]:
        """Return the token ids of a query and a document. May take long."""
        if self._pieces is None:
            return self._joined(query, document)
        return self._tokenizer.tokenize_parts(self._rendered(self._pieces, query, document), begin=False)

    def _rendered(self, pieces: list[str], query: str, document: str) -> PromptText:
        """Return the template with the texts. All between two control tokens of the template itself is plain."""
        texts = {"{query}": query, "{document}": document}
        out, cuts = "", [0]
        for piece in pieces:
            if piece not in texts:
                cuts += [len(out) + at for name in self._names.finditer(piece) for at in name.span()]
            out += texts.get(piece, piece)
        parts = pairwise([*cuts, len(out)])
        return PromptText(out, tuple(part for at, part in enumerate(parts) if at % 2 == 0 and part[0] < part[1]))

    def _joined(self, query: str, document: str) -> list[int]:
        """Return the texts between special tokens, as `format_prompt_rerank` of llama.cpp's server does."""
        vocab = self._tokenizer.vocab
        separator = llama_cpp.llama_vocab_sep(vocab)
        end = llama_cpp.llama_vocab_eos(vocab)
        end = separator if end < 0 else end
        before = [llama_cpp.llama_vocab_bos(vocab)] if llama_cpp.llama_vocab_get_add_bos(vocab) else []
        after = [end] if llama_cpp.llama_vocab_get_add_eos(vocab) else []
        between = [*after, *([separator] if llama_cpp.llama_vocab_get_add_sep(vocab) else [])]
        one, other = (self._tokenizer.tokenize(text, special=False, begin=False) for text in (query, document))
        return [*before, *one, *between, *other, *after]
