"""A byte-level BPE tokenizer (Sennrich et al., arXiv 1508.07909) that gives the same tokens as llama.cpp.

All 256 bytes are tokens, so any text round-trips. Merges are learned from the corpus, within the pieces that GPT-2's
pattern cuts; llama.cpp knows that pattern as `gpt-2`. Merges hold printable ASCII only and neither digits nor runs of
blanks. That makes every digit a token, which is what lets a small network add, and it makes the differences between
Python's and llama.cpp's ideas of a Unicode letter harmless: no merge reaches across the places where they could differ.
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
    """Texts to token ids and back. Ids: 256 bytes, then the merges in order, then the special tokens."""

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
        """The id of a special token. Raises KeyError for any other text."""
        return self._special_ids[special]

    def encode(self, text: str) -> list[int]:
        """The ids of `text`; the names of special tokens become those tokens."""
        ids, end = [], 0
        for special in _SPECIAL.finditer(text):
            ids += [*self._plain(text[end : special.start()]), self._special_ids[special.group()]]
            end = special.end()
        return ids + self._plain(text[end:])

    def decode(self, ids: Iterable[int]) -> bytes:
        """The bytes that `ids` stand for; special tokens give their names."""
        known = [*self.pieces, *(special.encode() for special in self.specials)]
        return b"".join(known[index] for index in ids)

    def _plain(self, text: str) -> list[int]:
        return [index for piece in _PIECES.findall(text) for index in self._cached(piece)]

    def _merged(self, piece: str) -> tuple[int, ...]:
        """The ids of one piece: the earliest learned merge is applied first, until none applies."""
        parts = [bytes([value]) for value in piece.encode()]
        while len(parts) > 1:
            best = min(pairwise(parts), key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if best not in self._ranks:
                break
            parts = list(_joined(parts, best))
        return tuple(self._ids[part] for part in parts)

    def lines(self) -> list[str]:
        """The merges, each as two spelled pieces with a blank between: GPT-2's `merges.txt`, and the list in a GGUF."""
        return [" ".join(map(spelled, pair)) for pair in self.merges]

    @classmethod
    def parse(cls, lines: Iterable[str]) -> "Tokenizer":
        """The tokenizer whose `lines` these are."""
        pairs = (line.split(" ") for line in lines)
        return cls([(unspelled(left), unspelled(right)) for left, right in pairs])


def _spellings() -> Iterator[str]:
    """For each byte the character that GPT-2 writes for it: itself, or one from 256 on if it cannot be seen."""
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
    """Bytes as visible characters, one for each byte."""
    return "".join(_SPELLINGS[value] for value in piece)


def unspelled(text: str) -> bytes:
    """The bytes that `text` spells."""
    return bytes(_BYTES[character] for character in text)


def _joined(parts: Sequence[bytes], pair: Pair) -> Iterator[bytes]:
    """`parts` with every occurrence of `pair`, from the left, made one part."""
    index = 0
    while index < len(parts):
        if tuple(parts[index : index + 2]) == pair:
            yield pair[0] + pair[1]
            index += 2
        else:
            yield parts[index]
            index += 1


def train(texts: Iterable[str], merges: int) -> Tokenizer:
    """Learns the `merges` most frequent joins, one after the other, from `texts`. Shows a progress bar."""
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
