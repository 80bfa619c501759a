"""The rows of one call to `llama_decode`, in arrays that Python owns and llama.cpp reads."""

import ctypes

import llama_cpp
import numpy as np

_INT32_POINTER = ctypes.POINTER(ctypes.c_int32)


class Batch:
    """A fixed number of rows, filled chunk by chunk without a Python loop over tokens."""

    c: llama_cpp.llama_batch
    """The C struct for `llama_decode`. Valid as long as this object."""

    def __init__(self, capacity: int, vocabulary: int) -> None:
        """Allocate the arrays.

        Args:
            capacity: the maximum number of rows.
            vocabulary: the number of token ids.
        """
        self._vocabulary = vocabulary
        self._tokens = np.zeros(capacity, np.int32)
        self._positions = np.zeros(capacity, np.int32)
        self._seq_ids = np.zeros(capacity, np.int32)
        self._outputs = np.zeros(capacity, np.int8)
        self._seq_id_counts = np.ones(capacity, np.int32)
        self._seq_id_pointers = self._seq_ids.ctypes.data + self._seq_ids.itemsize * np.arange(capacity, dtype=np.uintp)
        self._every_position = np.arange(capacity, dtype=np.int32)
        self.c = llama_cpp.llama_batch(
            n_tokens=0,
            token=self._tokens.ctypes.data_as(_INT32_POINTER),
            pos=self._positions.ctypes.data_as(_INT32_POINTER),
            n_seq_id=self._seq_id_counts.ctypes.data_as(_INT32_POINTER),
            seq_id=self._seq_id_pointers.ctypes.data_as(ctypes.POINTER(_INT32_POINTER)),
            logits=self._outputs.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
        )

    def clear(self) -> None:
        """Remove all rows."""
        self.c.n_tokens = 0

    def add(self, tokens: list[int], *, seq_id: int, start: int, output: bool) -> int:
        """Append tokens of one sequence and return the row of the last one.

        Args:
            tokens: the tokens.
            seq_id: the sequence's slot.
            start: position of the first token.
            output: whether the last row gets an output.

        Raises:
            ValueError: there are no tokens, too many rows, or an id outside the vocabulary, which would end the
                process.
        """
        if not tokens:
            raise ValueError("a chunk without tokens")
        rows = self._take_rows(tokens)
        np.add(self._every_position[: len(tokens)], start, out=self._positions[rows])
        self._seq_ids[rows] = seq_id
        self._outputs[rows] = 0
        self._outputs[rows.stop - 1] = output
        return rows.stop - 1

    def add_rows(self, tokens: list[int], seq_ids: list[int], positions: list[int], outputs: list[bool]) -> None:
        """Append one row of each of several sequences.

        Raises:
            ValueError: there are too many rows, or an id is outside the vocabulary.
        """
        rows = self._take_rows(tokens)
        self._positions[rows] = positions
        self._seq_ids[rows] = seq_ids
        self._outputs[rows] = outputs

    def sort(self) -> None:
        """Put the rows in the order of their slots, and those of a slot in the order in which they were added."""
        rows = slice(self.c.n_tokens)
        order = self._seq_ids[rows].argsort(kind="stable")
        for column in (self._tokens, self._positions, self._seq_ids, self._outputs):
            column[rows] = column[rows][order]

    def ask(self, rows: range) -> None:
        """Request an output for rows that were added before."""
        self._outputs[rows.start : rows.stop] = 1

    def _take_rows(self, tokens: list[int]) -> "slice[int, int, None]":
        """Append rows with these tokens, and return which ones they are."""
        begin = self.c.n_tokens
        end = begin + len(tokens)
        if end > len(self._tokens):
            raise ValueError(f"{end} rows in a batch of {len(self._tokens)}")
        if min(tokens) < 0 or max(tokens) >= self._vocabulary:
            raise ValueError("a token id outside the vocabulary")
        rows = slice(begin, end)
        self._tokens[rows] = tokens
        self.c.n_tokens = end
        return rows
