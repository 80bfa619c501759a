"""Random numbers against those of llama.cpp's `dist` sampler."""

import math

import llama_cpp
import numpy as np
import pytest

from engine.sampling.candidates import Candidates
from engine.sampling.chain import SamplerChain
from engine.sampling.truncation.uniforms import Uniforms

TOKENS = 4001


@pytest.mark.parametrize("seed", [0, 1, 42, 0x5EED5EED, 0xFFFFFFFE])
def test_the_numbers_of_a_seed_are_llama_cpps(seed: int) -> None:
    candidates, flat = Candidates(TOKENS), np.zeros(TOKENS, np.float32)
    chain = SamplerChain([llama_cpp.llama_sampler_init_dist(seed)])
    numbers, every = Uniforms(seed), np.arange(TOKENS, dtype=np.int32)
    for _ in range(100):
        number = numbers.next()
        assert 0 <= number < 1
        assert candidates.sample(chain, every, flat) == math.ceil(number * TOKENS) - 1
    chain.close()
