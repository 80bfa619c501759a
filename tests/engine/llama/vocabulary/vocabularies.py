"""Vocabularies without a model: files of llama.cpp that only tokenise, in the ways of several families."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import gguf
import llama_cpp

from engine.llama.vocabulary.tokenizer import Tokenizer

CONTROL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|user|>", "<|endoftext|>"]
"""Control tokens of every vocabulary here. The first two begin and end a sequence."""
TURNS = CONTROL[2:5]
"""The control tokens of turns."""
UNKNOWN = "<unk>"
MARKS = ["<|channel|>", "<tool_call>", "\n\n"]
"""User-defined tokens of every vocabulary here. Only the first looks like a control token."""

_SPACE = "\u2581"  # how SentencePiece writes a space
_LETTERS = [chr(code) for code in range(ord("!"), 127)]
_PAIRS = [first + second for first in "abcdefghijklmnopqrstuvwxyz_" for second in "aeioumt"] + ["<|", "|>"]
_RENAMED = "\u2402{}\u2403"


@contextmanager
def opened(path: Path) -> Iterator[Tokenizer]:
    """Load the vocabulary of a file for the time of a context."""
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    llama_cpp.llama_backend_init()
    handle = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    assert handle, f"{path} cannot be loaded"
    tokenizer = Tokenizer(llama_cpp.llama_model_get_vocab(handle))
    yield tokenizer
    tokenizer.close()
    llama_cpp.llama_model_free(handle)


def renamed(name: str) -> str:
    """Return the name of a control token in a vocabulary with `rename`."""
    return _RENAMED.format(name.strip("<|/>"))


def write_vocabulary(
    path: Path,
    kind: str,
    name: str = "test",
    *,
    rename: bool = False,
    pairs: Sequence[str] = (),
    marks: Sequence[str] = (),
    pre: str = "gpt-2",
    byte_fallback: bool = True,
    suppressed: Sequence[int] = (),
) -> Path:
    """Write a vocabulary.

    Args:
        path: the file.
        kind: `spm` (SentencePiece with a space before each text), `bpe` (bytes, merged in pairs) or `rwkv` (the longest
            tokens, without some bytes, and without an unknown token).
        name: the model's name, from which llama.cpp derives attributes of its tokens.
        rename: give the tokens of turns, and the mark that looks like one, other names, as `renamed` returns them.
        pairs: further tokens of two characters.
        marks: further user-defined tokens.
        pre: the way in which `bpe` splits texts into words.
        byte_fallback: whether `spm` has tokens of single bytes.
        suppressed: ids that the file excludes from generated texts.
    """
    tokens = _special_tokens(marks, rename=rename)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name(name)
    if kind == "spm" and byte_fallback:
        tokens += [(f"<0x{byte:02X}>", gguf.TokenType.BYTE) for byte in range(256)]
    match kind:
        case "bpe":
            _bpe(writer, tokens, pre)
        case "rwkv":
            _rwkv(writer, tokens)
        case _:
            _spm(writer, tokens, [*_PAIRS, *pairs])
    if kind != "rwkv":
        writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    if suppressed:
        writer.add_array("tokenizer.ggml.suppress_tokens", suppressed)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def _special_tokens(marks: Sequence[str], *, rename: bool) -> list[tuple[str, gguf.TokenType]]:
    kinds = gguf.TokenType
    special = [(UNKNOWN, kinds.UNKNOWN), *((one, kinds.CONTROL) for one in CONTROL)]
    special += [(one, kinds.USER_DEFINED) for one in (*MARKS, *marks)]
    parsed = {*TURNS, MARKS[0]}
    return [(renamed(one) if rename and one in parsed else one, kind) for one, kind in special]


def _spm(writer: gguf.GGUFWriter, tokens: list[tuple[str, gguf.TokenType]], pairs: Sequence[str]) -> None:
    kinds = gguf.TokenType
    tokens += [(piece, kinds.NORMAL) for piece in [_SPACE, *_LETTERS, *pairs]]
    tokens += [(_SPACE + piece, kinds.NORMAL) for piece in [*_LETTERS, *pairs]]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text for text, _ in tokens])
    writer.add_token_scores([-float(at) for at in range(len(tokens))])
    writer.add_token_types([int(kind) for _, kind in tokens])
    writer.add_add_bos_token(True)


def _bpe(writer: gguf.GGUFWriter, tokens: list[tuple[str, gguf.TokenType]], pre: str) -> None:
    # GPT-2 writes the bytes that are not printable as characters from U+0100 on.
    printable = [*range(ord("!"), 127), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    tokens += [(chr(byte), gguf.TokenType.NORMAL) for byte in printable]
    tokens += [(chr(0x100 + at), gguf.TokenType.NORMAL) for at in range(len(others))]
    tokens += [(pair, gguf.TokenType.NORMAL) for pair in _PAIRS]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([text for text, _ in tokens])
    writer.add_token_types([int(kind) for _, kind in tokens])
    writer.add_token_merges([" ".join(pair) for pair in _PAIRS])
    writer.add_add_bos_token(False)


def _rwkv(writer: gguf.GGUFWriter, tokens: list[tuple[str, gguf.TokenType]]) -> None:
    unescaped = [letter for letter in ("\n", *_LETTERS) if letter != "\\"]
    tokens += [(letter, gguf.TokenType.NORMAL) for letter in unescaped]
    writer.add_tokenizer_model("rwkv")
    writer.add_token_list([text for text, _ in tokens])
    writer.add_token_types([int(kind) for _, kind in tokens])
