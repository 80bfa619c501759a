"""Admission of embedding requests: texts and pairs by their length, and the task of the model."""

from dataclasses import replace

import pytest

from engine.core.embedding.step import EmbeddingLimits
from engine.errors import RequestError
from engine.request import EmbeddingInput, EmbeddingRequest, Ranking
from engine.testing.fake_model import FakeModel
from engine.worker.embedding_admission import admit_embedding
from tests.engine.driver import at_once

LONGEST = 64
LIMITS = EmbeddingLimits(rows=LONGEST, cells=LONGEST, smallest=LONGEST, texts=1, longest=LONGEST, splits=True)


class CountingModel(FakeModel):
    """A model that counts the bytes it tokenises, and those of the longest text."""

    seen = longest = 0

    def tokenize(self, text: str, *, special: bool = True, begin: bool = True) -> list[int]:
        self._count(len(text.encode()))
        return super().tokenize(text, special=special, begin=begin)

    def tokenize_pair(self, query: str, document: str) -> list[int]:
        self._count(len(query.encode()) + len(document.encode()))
        return super().tokenize_pair(query, document)

    def _count(self, size: int) -> None:
        self.seen += size
        self.longest = max(self.longest, size)


class EnclosingModel(FakeModel):
    """A model that encloses each text in tokens of its own."""

    def __init__(self, begin: list[int], end: list[int]) -> None:
        super().__init__()
        self.begin, self.end = begin, end

    def tokenize(self, text: str, *, special: bool = True, begin: bool = True) -> list[int]:
        tokens = super().tokenize(text, special=special)
        return [*self.begin, *tokens, *self.end] if begin else tokens


def admitted(
    model: FakeModel, one: EmbeddingInput, ranking: Ranking | None = None, *, truncation: int | None = None
) -> list[int]:
    """Return the tokens of an input."""
    request = EmbeddingRequest(id="x", inputs=(one,), ranking=ranking, truncation=truncation)
    [text] = at_once(admit_embedding(1, request, model, LIMITS)).waiting
    return text.tokens


def test_a_document_beside_a_long_query_is_cut_in_a_few_steps() -> None:
    model = CountingModel(ranks=True)
    pair = admitted(model, "y" * 1000, Ranking(query="x" * (LONGEST - 4)), truncation=-1)
    assert len(pair) == LONGEST
    assert model.seen <= 20 * LONGEST


def test_an_input_that_cannot_fit_is_tokenised_only_at_its_beginning() -> None:
    model = CountingModel()
    with pytest.raises(RequestError, match=f"at least {LONGEST + 1} tokens") as raised:
        admitted(model, "x" * 10**6)
    assert (raised.value.param, raised.value.code) == ("input", "context_length_exceeded")
    assert model.seen == 8 * LONGEST


@pytest.mark.parametrize(
    ("query", "document", "truncation", "param"),
    [
        ("x" * 10**6, "y", None, "query"),
        ("x", "y" * 10**6, None, "documents"),
        ("x" * 10**6, "y" * 10**6, -1, "query"),
        ("x" * LONGEST, "y", None, "documents"),
        ("x" * LONGEST, "y", -1, "query"),
    ],
)
def test_a_pair_that_cannot_fit_is_refused_by_its_beginning(
    query: str, document: str, truncation: int | None, param: str
) -> None:
    model = CountingModel(ranks=True)
    with pytest.raises(RequestError, match=f"at most {LONGEST} tokens") as raised:
        admitted(model, document, Ranking(query=query), truncation=truncation)
    assert (raised.value.param, raised.value.code) == (param, "context_length_exceeded")
    assert model.seen <= 2 * 16 * LONGEST


def test_a_document_is_cut_if_the_request_asks_for_it() -> None:
    model = CountingModel(ranks=True)
    cut = admitted(model, "y" * 10**6, Ranking(query="q"), truncation=-1)
    assert LONGEST // 2 < len(cut) <= LONGEST
    assert cut == FakeModel().tokenize_pair("q", "y" * 1000)[: len(cut)]
    assert model.seen <= 4 * 16 * LONGEST


def test_a_text_is_cut_if_the_request_asks_for_it() -> None:
    model = CountingModel()
    assert admitted(model, "x" * 10**6, truncation=-1) == [*b"x" * LONGEST]
    assert admitted(model, "short", truncation=-1) == [*b"short"]
    assert model.seen <= 2 * 16 * LONGEST


@pytest.mark.parametrize("one", ["x" * 5, "x" * 6, "x" * 7, "x" * 10**6])
def test_a_text_is_cut_at_the_tokens_that_the_request_sets(one: str) -> None:
    assert admitted(FakeModel(), one, truncation=6) == [*one[:6].encode()]


@pytest.mark.parametrize("text", ["a" * 50 + "é" * 100, "é" * 25 + "a" * 100])
def test_a_text_is_cut_at_these_tokens_wherever_its_characters_have_many(text: str) -> None:
    assert admitted(FakeModel(), text, truncation=60) == [*text.encode()[:60]]


def test_a_text_is_cut_within_a_character() -> None:
    assert admitted(FakeModel(), "é", truncation=1) == [*"é".encode()[:1]]


@pytest.mark.parametrize(("begin", "end"), [([1], [2]), ([1], []), ([], [2]), ([1], [1])])
def test_a_text_that_is_cut_keeps_the_tokens_that_the_model_adds(begin: list[int], end: list[int]) -> None:
    model = EnclosingModel(begin, end)
    first = b"abcdefgh"[: 5 - len(begin) - len(end)]
    assert admitted(model, "abcdefgh", truncation=5) == [*begin, *first, *end]
    assert admitted(model, "abc", truncation=5) == [*begin, *b"abc", *end]


def test_a_text_is_not_cut_at_fewer_tokens_than_the_model_adds() -> None:
    with pytest.raises(RequestError, match="adds 2 tokens") as raised:
        admitted(EnclosingModel([1], [2]), "a", truncation=1)
    assert (raised.value.param, raised.value.code) == ("truncate_prompt_tokens", "invalid_value")


def test_token_ids_are_cut_as_texts_are() -> None:
    assert admitted(FakeModel(), (1, 2, 3), truncation=2) == [1, 2]
    assert admitted(FakeModel(), (1,) * (LONGEST + 1), truncation=-1) == [1] * LONGEST


def test_a_query_counts_for_the_tokens_at_which_a_document_is_cut() -> None:
    whole = FakeModel().tokenize_pair("query", "y" * 1000)
    assert admitted(FakeModel(ranks=True), "y" * 1000, Ranking(query="query"), truncation=20) == whole[:20]
    with pytest.raises(RequestError) as raised:
        admitted(FakeModel(ranks=True), "y", Ranking(query="x" * 20), truncation=20)
    assert (raised.value.param, raised.value.code) == ("query", "context_length_exceeded")


@pytest.mark.parametrize("truncation", [0, LONGEST + 1])
def test_an_input_is_cut_at_no_more_tokens_than_the_model_takes(truncation: int) -> None:
    with pytest.raises(RequestError, match=f"at 1 to {LONGEST} tokens") as raised:
        admitted(FakeModel(), "x", truncation=truncation)
    assert (raised.value.param, raised.value.code) == ("truncate_prompt_tokens", "invalid_value")


@pytest.mark.parametrize("document", ["y" * 9, "y" * 10, "y" * 11, "y" * 10**6])
def test_a_document_has_at_most_the_tokens_that_the_request_allows(document: str) -> None:
    tokens = admitted(FakeModel(ranks=True), document, Ranking(query="q", document_tokens=10))
    assert tokens == FakeModel().tokenize_pair("q", document[:10])


@pytest.mark.parametrize("ranking", [None, Ranking(query="q"), Ranking(query="q", document_tokens=10**9)])
def test_a_text_that_is_cut_is_not_tokenised_far_beyond_its_cut(ranking: Ranking | None) -> None:
    model = CountingModel(ranks=ranking is not None)
    assert LONGEST // 2 < len(admitted(model, "x" * 10**6, ranking, truncation=-1)) <= LONGEST
    assert model.longest <= 10 * LONGEST


@pytest.mark.parametrize(
    ("model", "one", "ranking"),
    [(FakeModel(ranks=True), "a", None), (FakeModel(ranks=True), (1,), None), (FakeModel(), "a", Ranking(query="b"))],
)
def test_a_model_gets_inputs_of_its_task_only(model: FakeModel, one: EmbeddingInput, ranking: Ranking | None) -> None:
    with pytest.raises(RequestError) as raised:
        admitted(model, one, ranking)
    assert (raised.value.param, raised.value.code) == ("model", "unsupported_model")


class PairsModel(FakeModel):
    """A model that makes the same tokens of every query and document."""

    def __init__(self, tokens: list[int]) -> None:
        super().__init__(ranks=True)
        self.pair = tokens

    def tokenize_pair(self, query: str, document: str) -> list[int]:  # noqa: ARG002
        return self.pair


@pytest.mark.parametrize(("tokens", "code"), [([], "empty_input"), ([1, -1], "token_out_of_range")])
@pytest.mark.parametrize("truncation", [None, 5])
def test_a_pair_without_tokens_or_with_unknown_ones_is_refused(
    tokens: list[int], code: str, truncation: int | None
) -> None:
    with pytest.raises(RequestError) as refused:
        admitted(PairsModel(tokens), "", Ranking(query=""), truncation=truncation)
    assert (refused.value.code, refused.value.param) == (code, "documents")


def test_a_model_without_embeddings_refuses_texts() -> None:
    model = FakeModel()
    model.info = replace(model.info, embeds=False)
    with pytest.raises(RequestError, match="cannot compute embeddings") as raised:
        admitted(model, "a")
    assert (raised.value.param, raised.value.code) == ("model", "unsupported_model")
