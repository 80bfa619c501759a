"""Byte-level BPE tokenizer (Sennrich et al., arXiv 1508.07909) that returns the same tokens as llama.cpp.

All 256 bytes are tokens, so any text round-trips. Merges are learned from the corpus, within the pieces of GPT-2's
pre-tokenizer pattern, which llama.cpp calls `gpt-2`. Merges contain printable ASCII only, no digits and no runs of
blanks. Thus every digit is a token, which enables a small network to add. Also, the different definitions of a Unicode
letter in Python and llama.cpp have no effect: no merge spans a position where they could differ.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from tqdm import tqdm

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
BEGIN = "<|begin|>"
CONTROL = (BEGIN, END_OF_TEXT, TURN_START, TURN_END)
MARKERS = ("<tool_call>", "</tool_call>")

_PIECES = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[^\W\d_]+| ?\d+| ?(?:_|[^\s\w])+|\s+(?!\S)|\s+")
_MERGEABLE = re.compile(rb" ?(?:[A-Za-z]+|[!-/:-@\[-`{-~]+)")
_SPECIAL = re.compile("|".join(map(re.escape, (*CONTROL, *MARKERS))))

Pair = tuple[bytes, bytes]


class Tokenizer:
    """Encoder and decoder of token ids. Order of the ids: 256 bytes, the merges in order, the special tokens."""

    def __init__(self, merges: Sequence[Pair]) -> None:
        self.merges = tuple(merges)
        self.specials = (*CONTROL, *MARKERS)
        self.pieces = [bytes([value]) for value in range(256)] + [left + right for left, right in merges]
        self._ids = {piece: index for index, piece in enumerate(self.pieces)}
        self._ranks = {pair: rank for rank, pair in enumerate(merges)}
        self._special_ids = {text: len(self.pieces) + index for index, text in enumerate(self.specials)}
        self._cached = lru_cache(maxsize=100_000)(self._merged)

    def __len__(self) -> int:
        return len(self.pieces) + len(self.specials)

    def id(self, special: str) -> int:
        """Return the id of a special token.

        Raises:
            KeyError: The text is not a special token.
        """
        return self._special_ids[special]

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`. Parses the names of special tokens as these tokens."""
        ids, end = [], 0
        for special in _SPECIAL.finditer(text):
            ids += [*self._plain(text[end : special.start()]), self._special_ids[special.group()]]
            end = special.end()
        return ids + self._plain(text[end:])

    def decode(self, ids: Iterable[int]) -> bytes:
        """Return the bytes of `ids`; special tokens are rendered by their names."""
        known = [*self.pieces, *(special.encode() for special in self.specials)]
        return b"".join(known[index] for index in ids)

    def _plain(self, text: str) -> list[int]:
        return [index for piece in _PIECES.findall(text) for index in self._cached(piece)]

    def _merged(self, piece: str) -> tuple[int, ...]:
        """Return the ids of one piece. Applies the earliest learned merge first, until no merge applies."""
        parts = [bytes([value]) for value in piece.encode()]
        while len(parts) > 1:
            best = min(pairwise(parts), key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if best not in self._ranks:
                break
            parts = list(_joined(parts, best))
        return tuple(self._ids[part] for part in parts)

    def lines(self) -> list[str]:
        """Return the merges as pairs of spelled pieces with a blank between: the format of `merges.txt` and of GGUF."""
        return [" ".join(map(spelled, pair)) for pair in self.merges]

    @classmethod
    def parse(cls, lines: Iterable[str]) -> "Tokenizer":
        """Return the tokenizer for a result of `lines`."""
        pairs = (line.split(" ") for line in lines)
        return cls([(unspelled(left), unspelled(right)) for left, right in pairs])


def _spellings() -> Iterator[str]:
    """Yield GPT-2's character for each byte: the same character, or one from 256 on if it is not visible."""
    unseen = 256
    for value in range(256):
        if chr(value).isprintable() and chr(value) != " ":
            yield chr(value)
        else:
            yield chr(unseen)
            unseen += 1


_SPELLINGS = tuple(_spellings())
_BYTES = {spelling: value for value, spelling in enumerate(_SPELLINGS)}


def spelled(piece: bytes) -> str:
    """Return bytes as visible characters, one per byte."""
    return "".join(_SPELLINGS[value] for value in piece)


def unspelled(text: str) -> bytes:
    """Return the bytes of a spelled text; the inverse of `spelled`."""
    return bytes(_BYTES[character] for character in text)


def _joined(parts: Sequence[bytes], pair: Pair) -> Iterator[bytes]:
    """Yield `parts` with every occurrence of `pair`, from the left, merged to one part."""
    index = 0
    while index < len(parts):
        if tuple(parts[index : index + 2]) == pair:
            yield pair[0] + pair[1]
            index += 2
        else:
            yield parts[index]
            index += 1


def train(texts: Iterable[str], merges: int) -> Tokenizer:
    """Learn `merges` merges from `texts`, the most frequent pair first. Returns the tokenizer; shows a progress bar."""
    counts = Counter(piece for text in texts for part in _SPECIAL.split(text) for piece in _PIECES.findall(part))
    words = {
        tuple(bytes([value]) for value in piece.encode()): count
        for piece, count in counts.items()
        if _MERGEABLE.fullmatch(piece.encode())
    }
    learned: list[Pair] = []
    for _ in tqdm(range(merges), desc="tokenizer", unit="merge"):
        pairs: Counter[Pair] = Counter()
        for word, count in words.items():
            for pair in pairwise(word):
                pairs[pair] += count
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        learned.append(best)
        words = {tuple(_joined(word, best)) if best[0] in word else word: count for word, count in words.items()}
    return Tokenizer(learned)
