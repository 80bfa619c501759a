"""Conversion of examples to tensors: token ids, loss mask, and positions over the whole context."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from engine.embedded.training.corpus.draw import Draw
from engine.embedded.training.corpus.example import Completion, Conversation, Example
from engine.embedded.training.template import render
from engine.embedded.training.tokenizer import BEGIN, END_OF_TEXT, TURN_END, TURN_START, Tokenizer

WITHOUT_BEGIN = 0.1


@dataclass(frozen=True)
class Encoded:
    """Tokens of one example and its loss mask."""

    ids: list[int]
    """Token ids."""
    learned: list[bool]
    """True for each token of an answer."""


@dataclass(frozen=True)
class Batch:
    """Examples of similar length as tensors [examples, time]."""

    tokens: Tensor
    """Token ids, padded with 0."""
    positions: Tensor
    """Position of each token."""
    learned: Tensor
    """Loss mask: True for each token of an answer."""


def encode(example: Example, tokenizer: Tokenizer) -> Encoded:
    """Return the token ids of an example and its loss mask, which includes the end tokens of answers."""
    match example:
        case Completion(prompt, answer):
            asked, answered = tokenizer.encode(prompt), [*tokenizer.encode(answer), tokenizer.id(END_OF_TEXT)]
            return Encoded(asked + answered, [False] * len(asked) + [True] * len(answered))
        case Conversation(messages, tools):
            ids = tokenizer.encode(render(messages, tools, ask=False))
            return Encoded(ids, list(_answers(ids, tokenizer)))


def _answers(ids: list[int], tokenizer: Tokenizer) -> Iterator[bool]:
    """Yield for each id True if it is between the start and the end of an assistant's turn."""
    opening, end = tokenizer.encode(f"{TURN_START}assistant\n"), tokenizer.id(TURN_END)
    inside = False
    for index, token in enumerate(ids):
        yield inside
        if token == end:
            inside = False
        elif ids[index - len(opening) + 1 : index + 1] == opening:
            inside = True


def positions(ids: list[int], tokenizer: Tokenizer, context: int, draw: Draw, stretched: float) -> list[int]:
    """Return the position of each token. A share of `stretched` of all examples gets random gaps before its turns.

    Thus a short example trains distances up to the whole context (PoSE: Zhu et al., arXiv 2309.10400).
    """
    steps = [0] + [1] * (len(ids) - 1)
    if draw.chance(stretched):
        start = tokenizer.id(TURN_START)
        spare = int((context - len(ids)) * draw.random.random())
        for index in draw.random.sample(range(len(ids)), k=len(ids)):
            if ids[index] == start and spare > 0:
                gap = draw.number(0, spare)
                steps[index] += gap
                spare -= gap
    return list(accumulate(steps))


def batches(
    source: Iterator[Example], draw: Draw, size: int, cells: int, tokenizer: Tokenizer, context: int, stretched: float
) -> list[Batch]:
    """Return the batches of one training step: about `size` tokens in tensors of at most `cells` elements."""
    chosen = _chosen(source, draw, size, tokenizer, context)
    chosen.sort(key=lambda one: len(one.ids))
    groups: list[list[Encoded]] = [[]]
    for one in chosen:
        group = groups[-1]
        if group and (len(one.ids) > 1.25 * len(group[0].ids) + 4 or (len(group) + 1) * len(one.ids) > cells):
            groups.append([])
        groups[-1].append(one)
    return [_stacked(group, tokenizer, context, draw, stretched) for group in groups]


def _chosen(source: Iterator[Example], draw: Draw, size: int, tokenizer: Tokenizer, context: int) -> list[Encoded]:
    """Return examples that fit into the context and have about `size` tokens in total; nearly all start with BOS."""
    begin = tokenizer.id(BEGIN)
    chosen: list[Encoded] = []
    while size > 0:
        one = encode(next(source), tokenizer)
        if not draw.chance(WITHOUT_BEGIN):
            one = Encoded([begin, *one.ids], [False, *one.learned])
        if len(one.ids) <= context:
            chosen.append(one)
            size -= len(one.ids)
    return chosen


def _stacked(group: list[Encoded], tokenizer: Tokenizer, context: int, draw: Draw, stretched: float) -> Batch:
    longest = max(len(one.ids) for one in group)

    def padded(rows: list[list[int]]) -> Tensor:
        return torch.tensor([row + [0] * (longest - len(row)) for row in rows])

    return Batch(
        padded([one.ids for one in group]),
        padded([positions(one.ids, tokenizer, context, draw, stretched) for one in group]),
        padded([[int(learned) for learned in one.learned] for one in group]).bool(),
    )
