"""The sampler: the same distribution as llama.cpp's own chain over the whole vocabulary, with less work."""

import contextlib
import ctypes
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import llama_cpp
import numpy as np
import pytest

from engine.request import SAMPLER_ORDER, Sampling
from engine.sampling.candidates import Candidates, DrawError, Logits
from engine.sampling.chain import SamplerChain
from engine.sampling.dry import DryTemplates
from engine.sampling.resources import SamplerResources
from engine.sampling.sampler import SequenceSampler
from engine.sampling.truncation.heads import Heads
from engine.sampling.truncation.shares import Shares
from engine.sampling.truncation.whole import FEW
from tests.c_calls import count_calls
from tests.engine.sampling.draws import next_token
from tests.engine.work import NOISE, Work, work_of

END = (3, 7)
CONTEXT = 4096
SMALL, LARGE = 512, 20_000
PROMPT = [5, 9, 9, 30, 31, 32, 5]
GREEDY = 0.0


def make_logits(vocabulary: int, seed: int) -> Logits:
    """Return a few likely tokens above a long tail, as a language model gives them."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, vocabulary).astype(np.float32)
    logits[rng.integers(0, vocabulary, 30)] += rng.normal(8, 2, 30).astype(np.float32)
    return logits


def make(
    sampling: Sampling,
    seed: int | None = 1,
    vocabulary: int = SMALL,
    prompt: list[int] = PROMPT,
    candidates: Candidates | None = None,
    stop_tokens: tuple[int, ...] = (),
    suppressed: tuple[int, ...] = (),
    keeps: bool = False,
) -> SequenceSampler:
    no_vocabulary = DryTemplates(0, CONTEXT)
    memory = candidates or Candidates(vocabulary)
    resources = SamplerResources(memory, frozenset(END), CONTEXT, no_vocabulary, frozenset(suppressed))
    return SequenceSampler(sampling, seed, resources, prompt=prompt, stop_tokens=stop_tokens, keeps=keeps)


def penalties(sampling: Sampling, vocabulary: int) -> list[Any]:
    window = CONTEXT if sampling.repeat_last_n < 0 else sampling.repeat_last_n
    on_all = llama_cpp.llama_sampler_init_penalties(vocabulary, window, sampling.repeat_penalty, 0.0, 0.0)
    for token in PROMPT:
        llama_cpp.llama_sampler_accept(on_all, token)
    frequency, presence = sampling.frequency_penalty, sampling.presence_penalty
    return [on_all, llama_cpp.llama_sampler_init_penalties(vocabulary, CONTEXT, 1.0, frequency, presence)]


def mirostat(sampling: Sampling, vocabulary: int, seed: int) -> list[Any]:
    """Return llama.cpp's samplers for mirostat, temperature and draw, after the penalties that this project applies."""
    tau, eta = sampling.mirostat_tau, sampling.mirostat_eta
    draw = (
        llama_cpp.llama_sampler_init_mirostat(vocabulary, seed, tau, eta, 100)
        if sampling.mirostat == 1
        else llama_cpp.llama_sampler_init_mirostat_v2(seed, tau, eta)
    )
    return [*penalties(sampling, vocabulary), llama_cpp.llama_sampler_init_temp(sampling.temperature), draw]


def in_order(sampling: Sampling, vocabulary: int, seed: int) -> list[Any]:
    makers: dict[str, Callable[[], list[Any]]] = {
        "penalties": lambda: penalties(sampling, vocabulary),
        "dry": list,
        "top_n_sigma": lambda: [llama_cpp.llama_sampler_init_top_n_sigma(sampling.top_n_sigma)],
        "top_k": lambda: [llama_cpp.llama_sampler_init_top_k(sampling.top_k)],
        "typ_p": lambda: [llama_cpp.llama_sampler_init_typical(sampling.typical_p, 1)],
        "top_p": lambda: [llama_cpp.llama_sampler_init_top_p(sampling.top_p, 1)],
        "min_p": lambda: [llama_cpp.llama_sampler_init_min_p(sampling.min_p, 1)],
        "xtc": lambda: [llama_cpp.llama_sampler_init_xtc(sampling.xtc_probability, sampling.xtc_threshold, 1, seed)],
        "temperature": lambda: [
            llama_cpp.llama_sampler_init_temp_ext(
                sampling.temperature, sampling.dynatemp_range, sampling.dynatemp_exponent
            )
        ],
    }
    names = SAMPLER_ORDER if sampling.samplers is None else sampling.samplers
    return [*(one for name in names for one in makers[name]()), llama_cpp.llama_sampler_init_dist(seed)]


class LlamaChain:
    """llama.cpp's samplers in a row, over every token of the vocabulary: the reference for ours."""

    def __init__(self, sampling: Sampling, seed: int, vocabulary: int) -> None:
        biases = [*sampling.logit_bias, *((token, -math.inf) for token in END if sampling.ignore_eos)]
        array = (llama_cpp.llama_logit_bias * len(biases))(*(llama_cpp.llama_logit_bias(*bias) for bias in biases))
        samplers = mirostat if sampling.mirostat else in_order
        self.chain = SamplerChain(
            [
                llama_cpp.llama_sampler_init_logit_bias(vocabulary, len(biases), array),
                *samplers(sampling, vocabulary, seed),
            ]
        )
        self.rows = (llama_cpp.llama_token_data * vocabulary)()
        self.columns = np.ctypeslib.as_array(self.rows)

    def draw(self, logits: Logits) -> tuple[int, dict[int, float]]:
        """Return the drawn token, and the probability of each candidate."""
        self.columns["id"], self.columns["logit"], self.columns["p"] = np.arange(len(logits)), logits, 0.0
        array = llama_cpp.llama_token_data_array(self.rows, len(logits), -1, False)
        llama_cpp.llama_sampler_apply(self.chain.handle, ctypes.byref(array))
        token = int(array.data[array.selected].id)
        self.chain.accept(token)
        return token, probabilities(array)


def probabilities(array: Any) -> dict[int, float]:
    return {array.data[at].id: array.data[at].p for at in range(array.size) if array.data[at].p > 0}


SHAPES = [
    *[{"temperature": t, "top_k": k} for t, k in itertools.product((0.3, 1.0, 2.0), (1, 40, 400))],
    *[{"top_p": p, "min_p": m} for p, m in itertools.product((0.0, 0.5, 0.95, 1.0), (0.01, 0.3, 1.0))],
    *[{"temperature": 0.7, "top_p": p} for p in (0.0, 0.1, 0.9, 0.999)],
    {"top_k": 40, "top_p": 0.8, "min_p": 0.1, "temperature": 0.5},
    {"repeat_penalty": 1.5, "top_k": 100},
    {"repeat_penalty": 1.3, "repeat_last_n": 3, "min_p": 0.001},
    {"repeat_penalty": 1.3, "repeat_last_n": -1, "top_p": 0.99},
    {"frequency_penalty": 0.7, "presence_penalty": -0.4, "top_k": 100},
    {"repeat_penalty": 0.8, "frequency_penalty": 1.0, "top_p": 0.95, "min_p": 0.01},
    {"logit_bias": ((11, 9.5), (12, -100.0), (11, 1.0)), "top_k": 50},
    {"ignore_eos": True, "logit_bias": ((3, 50.0),), "min_p": 0.01},
    {"typical_p": 0.3},
    {"typical_p": 0.9, "temperature": 1.5, "top_k": 50, "frequency_penalty": 0.5},
    {"top_n_sigma": 2.0},
    {"top_n_sigma": 1.0, "temperature": 3.0, "repeat_penalty": 1.3},
    {"xtc_probability": 0.5, "xtc_threshold": 0.05, "min_p": 0.02},
    {"xtc_probability": 1.0, "xtc_threshold": 0.5, "temperature": 0.0},
    {"dynatemp_range": 0.7, "dynatemp_exponent": 1.3, "top_k": 100},
    {"temperature": 0.0, "dynatemp_range": 0.4, "min_p": 0.01},
    {"mirostat": 1, "mirostat_tau": 3.0, "top_k": 2, "presence_penalty": 0.3},
    {"mirostat": 2, "mirostat_eta": 0.4, "temperature": 0.7, "samplers": ("top_k",), "top_k": 1},
    {"samplers": ("temperature", "min_p"), "temperature": 1.6, "min_p": 0.1, "top_k": 1, "repeat_penalty": 9.0},
    {"samplers": ("top_k", "penalties", "temperature"), "top_k": 30, "repeat_penalty": 1.7, "temperature": 0.0},
    {"samplers": ("top_p", "penalties", "top_k"), "top_p": 0.9, "frequency_penalty": 1.0, "top_k": 5},
    {"samplers": ("min_p", "top_p", "top_k"), "min_p": 0.01, "top_p": 0.9, "top_k": 9, "temperature": 0.0},
    {"samplers": (), "temperature": 0.0, "top_k": 1},
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_distribution_and_the_draws_are_llama_cpps(shape: dict[str, Any]) -> None:
    sampling = Sampling(**shape)
    for vocabulary, draws in ((SMALL, 60), (LARGE, 6)):
        candidates = Candidates(vocabulary)
        ours, theirs = make(sampling, 42, vocabulary, candidates=candidates), LlamaChain(sampling, 42, vocabulary)
        for step in range(draws):
            logits = make_logits(vocabulary, step % 5)
            expected, distribution = theirs.draw(logits)
            if sampling.samplers != () or vocabulary <= FEW:  # a draw from all tokens of a large one: test_whole.py
                shares = shares_of(ours, logits)
                assert next_token(ours, logits.copy()) == expected
                assert_same(shares or probabilities(candidates._array), distribution, sampling)
        ours.close()
        theirs.chain.close()


def shares_of(sampler: SequenceSampler, logits: Logits) -> dict[int, float]:
    """Return the probability of each candidate of the next draw, if it has no chain of llama.cpp's."""
    if not (truncation := sampler.truncation):
        return {}
    logits = logits.copy()
    tops = logits[[sampler.prepare(logits, int(logits.argmax()))]]
    rows = logits[np.newaxis]
    heads = (
        truncation.find(rows, tops, [truncation])
        if truncation.find
        else Heads.above(rows, tops, -np.abs(rows.min(axis=1)))
    )
    weights = Shares(heads, np.array([truncation.temperature], np.float32)).weights
    return {at: p for at, p in zip(heads.columns.tolist(), (weights / weights.sum()).tolist(), strict=True) if p > 0}


def assert_same(got: dict[int, float], expected: dict[int, float], sampling: Sampling) -> None:
    """Check that two distributions are equal to rounding.

    llama.cpp sums the whole vocabulary's shares in single precision, where small ones are lost: its nucleus may end a
    few tokens earlier or later than the exact one (`truncation/test_draws.py`), a mass of 1e-4 at most.
    """
    border = sum(got.get(i, 0.0) + expected.get(i, 0.0) for i in got.keys() ^ expected.keys())
    assert border <= (1e-4 if sampling.top_p < 1 or sampling.typical_p < 1 else 0.0)
    both = got.keys() & expected.keys()
    assert [got[i] for i in both] == pytest.approx([expected[i] for i in both], rel=1e-4)


@pytest.mark.parametrize("temperature", [1e-30, 1e-6, 1e30])
@pytest.mark.parametrize("shape", [{}, {"top_k": 40}, {"min_p": 0.1}], ids=str)
def test_extreme_temperatures_draw_a_valid_token(temperature: float, shape: dict[str, Any]) -> None:
    sampler = make(Sampling(temperature=temperature, **shape), 1, LARGE)
    logits = make_logits(LARGE, 1)
    token = next_token(sampler, logits.copy())
    sampler.close()
    if temperature < 1:
        assert token == logits.argmax()
    else:
        assert 0 <= token < LARGE


def test_greedy_takes_the_likeliest() -> None:
    sampler = make(Sampling(temperature=GREEDY, top_k=5, top_p=0.1, seed=4))
    for seed in range(20):
        logits = make_logits(SMALL, seed)
        assert next_token(sampler, logits.copy()) == logits.argmax()
    sampler.close()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, set()),
        ({"ignore_eos": True}, set(END)),
        ({"min_tokens": 1}, None),
        ({"logit_bias": ((1, 1.0),)}, None),
        ({"frequency_penalty": 0.5}, None),
        ({"temperature": 1.0}, None),
    ],
)
def test_only_greedy_sampling_without_adjustments_needs_no_sampler(
    fields: dict[str, Any], expected: set[int] | None
) -> None:
    sampler = make(Sampling(**{"temperature": GREEDY, **fields}))
    assert sampler.takes_best_except == expected
    sampler.close()


def test_greedy_applies_biases_and_penalties() -> None:
    logits = np.zeros(SMALL, np.float32)
    logits[[3, 20, 21, 5]] = 9.0, 5.0, 4.0, 8.0
    sampling = Sampling(
        temperature=GREEDY, ignore_eos=True, logit_bias=((21, 0.5),), frequency_penalty=0.4, repeat_penalty=2.0
    )
    sampler = make(sampling)
    drawn = [next_token(sampler, logits.copy()) for _ in range(3)]
    sampler.close()
    # 3 ends the generation; 5 is in the prompt; 20 falls to 5 / 2 - 0.4 and 21 to 4.5 / 2 - 0.4 once drawn.
    assert drawn == [20, 21, 5]


def test_openais_penalties_count_generated_tokens_only() -> None:
    logits = np.zeros(SMALL, np.float32)
    logits[PROMPT[0]] = 1.0
    sampler = make(Sampling(temperature=GREEDY, frequency_penalty=0.6, presence_penalty=0.3))
    assert next_token(sampler, logits.copy()) == PROMPT[0]
    assert next_token(sampler, logits.copy()) == PROMPT[0], "1.0 - 0.6 - 0.3 is still the most"
    assert next_token(sampler, logits.copy()) != PROMPT[0]
    sampler.close()


@pytest.mark.parametrize(("last_n", "penalised"), [(0, False), (1, False), (2, True), (-1, True)])
def test_the_repeat_penalty_looks_back_over_its_window(last_n: int, penalised: bool) -> None:
    logits = np.zeros(SMALL, np.float32)
    logits[[32, 100]] = 2.0, 1.5
    sampler = make(Sampling(temperature=GREEDY, repeat_penalty=2.0, repeat_last_n=last_n), prompt=[32, 40])
    assert next_token(sampler, logits.copy()) == (100 if penalised else 32)
    sampler.close()


DRAWN_HERE, BY_LLAMA_CPP = Sampling(), Sampling(typical_p=0.99)


def draws(seed: int | None, vocabulary: int = SMALL, sampling: Sampling = DRAWN_HERE) -> list[int]:
    sampler = make(sampling, seed, vocabulary)
    flat = np.zeros(vocabulary, np.float32)
    drawn = [next_token(sampler, flat.copy()) for _ in range(12)]
    sampler.close()
    return drawn


@pytest.mark.parametrize(("vocabulary", "sampling"), [(SMALL, DRAWN_HERE), (LARGE, DRAWN_HERE), (SMALL, BY_LLAMA_CPP)])
@pytest.mark.parametrize("seed", [0, 1, 0xFFFFFFFE, llama_cpp.LLAMA_DEFAULT_SEED])
def test_a_seed_repeats_its_draws(seed: int, vocabulary: int, sampling: Sampling) -> None:
    assert draws(seed, vocabulary, sampling) == draws(seed, vocabulary, sampling)
    assert draws(seed, vocabulary, sampling) != draws((seed + 1) % (1 << 32), vocabulary, sampling)


def test_a_seed_has_32_bits() -> None:
    assert draws(5) == draws(5 + (1 << 32))
    assert draws(-1) == draws(0xFFFFFFFF)


def test_without_a_seed_each_sampler_has_a_random_one() -> None:
    assert draws(None) != draws(None)


@pytest.mark.parametrize("shape", [{"temperature": 0.0}, {}, {"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.1}], ids=str)
@pytest.mark.parametrize("value", [math.nan, -math.inf, math.inf])
def test_logits_without_a_number_fail_the_draw(shape: dict[str, Any], value: float) -> None:
    sampler = make(Sampling(**shape), vocabulary=LARGE)
    logits = np.full(LARGE, value, np.float32)
    with pytest.raises(DrawError, match="finite"):
        next_token(sampler, logits)
    sampler.close()


def test_one_nan_among_good_logits_fails_the_draw() -> None:
    sampler = make(Sampling())
    logits = make_logits(SMALL, 0)
    logits[100] = math.nan
    with pytest.raises(DrawError):
        next_token(sampler, logits)
    sampler.close()


@pytest.mark.parametrize("token", [-1, SMALL])
def test_biases_outside_the_vocabulary_are_refused(token: int) -> None:
    with pytest.raises(IndexError):
        make(Sampling(logit_bias=((token, 1.0),)))


@pytest.fixture
def balance(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Return the chains made and freed; a chain frees the samplers added to it."""
    counts = count_calls(monkeypatch, "llama_sampler_chain_init", "llama_sampler_free")
    yield counts
    assert counts["llama_sampler_chain_init"] == counts["llama_sampler_free"]


def test_samplers_are_freed_once(balance: Counter[str]) -> None:
    sampler = make(Sampling(top_k=5, repeat_penalty=1.1))
    next_token(sampler, make_logits(SMALL, 0))
    sampler.close()
    sampler.close()
    assert balance["llama_sampler_free"] == 1
    with pytest.raises(ValueError, match="closed"):
        next_token(sampler, make_logits(SMALL, 0))


@pytest.mark.parametrize("missing", ["llama_sampler_init_dist", "llama_sampler_init_penalties"])
def test_samplers_are_freed_when_one_cannot_be_made(
    balance: Counter[str], monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setattr(llama_cpp, missing, lambda *_: ctypes.POINTER(llama_cpp.llama_sampler)())
    with pytest.raises(MemoryError):
        make(Sampling(frequency_penalty=1.0, typical_p=0.5))
    assert balance["llama_sampler_free"] > 0


@pytest.mark.parametrize("temperature", [1e-50, 5e-324, 1e-40, 1e-6])
def test_a_tiny_temperature_draws_the_likeliest_token(temperature: float) -> None:
    logits = make_logits(SMALL, 3)
    with contextlib.closing(make(Sampling(temperature=temperature))) as sampler:
        assert next_token(sampler, logits.copy()) == int(logits.argmax())


@pytest.mark.parametrize("shape", [{}, {"samplers": ("nucleus",)}, {"samplers": ("top_k", "mirostat")}], ids=str)
def test_unknown_samplers_are_refused(shape: dict[str, Any]) -> None:
    if shape:
        with pytest.raises(ValueError, match="there is no sampler"):
            make(Sampling(**shape))
    else:
        make(Sampling(samplers=SAMPLER_ORDER)).close()


def test_an_improbable_token_does_not_spoil_typical_sampling() -> None:
    logits = make_logits(SMALL, 2)
    alone = make(Sampling(typical_p=0.5), 3)
    banned = make(Sampling(typical_p=0.5, temperature=1.0, logit_bias=((400, -100.0), (401, -100.0))), 3)
    logits[400:402] = -20.0
    assert all(next_token(alone, logits.copy()) == next_token(banned, logits.copy()) for _ in range(30))
    alone.close()
    banned.close()


@pytest.mark.parametrize(
    ("fields", "tokens"), [({"min_tokens": 2}, [20, 20, END[0]]), ({"min_tokens": 1, "ignore_eos": True}, [20, 11])]
)
def test_no_end_before_min_tokens(fields: dict[str, Any], tokens: list[int]) -> None:
    stop = 11
    logits = np.zeros(SMALL, np.float32)
    logits[[END[0], stop, 20]] = 9.0, 8.0, 7.0
    sampler = make(Sampling(temperature=GREEDY, **fields), stop_tokens=(stop,))
    assert [next_token(sampler, logits.copy()) for _ in tokens] == tokens
    sampler.close()


@pytest.mark.parametrize(
    ("sampling", "count"),
    [(Sampling(top_k=5), 5), (Sampling(temperature=0.0), 1), (Sampling(top_k=40, top_p=0.5, temperature=0.7), None)],
)
def test_the_logits_that_the_samplers_leave_are_kept_on_request(sampling: Sampling, count: int | None) -> None:
    sampler, same = make(sampling, keeps=True), make(sampling)
    with contextlib.closing(sampler), contextlib.closing(same):
        token = next_token(sampler, make_logits(SMALL, 3))
        left = np.flatnonzero(sampler.kept() > -math.inf)
        assert token in left
        assert len(left) == count or (count is None and 1 <= len(left) < SMALL)
        assert token == next_token(same, make_logits(SMALL, 3))
        sampler.force(50)
        assert np.flatnonzero(sampler.kept() > -math.inf).tolist() == [50]


@pytest.mark.parametrize("order", [("top_k", "xtc"), ("top_k", "xtc", "min_p", "temperature"), ("xtc",)], ids=str)
def test_what_xtc_drops_is_not_kept(order: tuple[str, ...]) -> None:
    logits = np.zeros(SMALL, np.float32)
    logits[:6] = 9.0, 8.9, 8.8, 8.0, 7.0, 6.0
    sampling = Sampling(
        samplers=order, top_k=6, min_p=0.01, temperature=0.5, xtc_probability=1.0, xtc_threshold=0.2, seed=1
    )
    with contextlib.closing(make(sampling, keeps=True)) as sampler:
        token = next_token(sampler, logits.copy())
        left = np.flatnonzero(sampler.kept() > -math.inf)
    assert token in left
    assert set(left[:4].tolist()) == {2, 3, 4, 5}, "the least likely of the three likely tokens stays"


@pytest.mark.parametrize(
    "shape",
    [
        {"temperature": 0.0},
        {},
        {"top_k": 1},
        {"top_p": 0.01},
        {"typical_p": 0.01},
        {"mirostat": 2},
        {"temperature": 0.0, "min_tokens": 5},
        {"temperature": 0.0, "ignore_eos": True},
        {"temperature": 0.0, "logit_bias": ((20, 100.0),)},
    ],
    ids=str,
)
def test_suppressed_tokens_are_never_drawn(shape: dict[str, Any]) -> None:
    logits = np.full(SMALL, -30.0, np.float32)
    logits[[20, 21, 40]] = 60.0, 50.0, 30.0
    with contextlib.closing(make(Sampling(**shape), suppressed=(20, 21))) as sampler:
        assert [next_token(sampler, logits.copy()) for _ in range(3)] == [40] * 3


def test_repeated_tokens_of_a_prompt_are_no_work_for_a_penalty_on_the_whole_text() -> None:
    sampling = Sampling(temperature=GREEDY, repeat_penalty=1.5, repeat_last_n=-1)

    def opened(length: int) -> Work:
        return work_of(lambda: make(sampling, prompt=[5, 9] * length).close())

    assert opened(2).instructions == opened(2000).instructions
    logits = np.zeros(SMALL, np.float32)
    logits[[5, 9, 11]] = 3.0, 2.9, 2.5
    with contextlib.closing(make(sampling, prompt=[5, 9] * 2000)) as sampler:
        assert [next_token(sampler, logits.copy()) for _ in range(3)] == [11, 5, 5]


@pytest.mark.parametrize(
    "shape",
    [
        {"frequency_penalty": 0.5},
        {"repeat_penalty": 1.5, "repeat_last_n": 8},
        {"dry_multiplier": 1.0, "dry_penalty_last_n": 8, "dry_sequence_breakers": ()},
    ],
    ids=str,
)
def test_the_part_of_a_prompt_that_no_penalty_counts_is_no_work(shape: dict[str, Any]) -> None:
    def opened(length: int) -> Work:
        prompt = [at % SMALL for at in range(length)]
        return work_of(lambda: make(Sampling(**shape), prompt=prompt).close())

    few, many = opened(50), opened(4000)
    assert few.instructions == many.instructions
    assert many.allocated - few.allocated < NOISE
