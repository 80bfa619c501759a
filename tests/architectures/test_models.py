"""The random-weight models are of use: their texts depend on all of the context, and are the same each time."""

from operator import attrgetter
from pathlib import Path

import pytest

from engine.config import EngineConfig
from engine.core.kv.cell_changes import Removal
from engine.core.step import Chunk, Outcome, StepPlan
from engine.core.token import Token
from engine.llama.model import LlamaModel
from engine.llama.runner import LlamaRunner
from engine.request import Sampling
from tests.architectures.families import FAMILIES, Family, quick_for_some
from tests.architectures.models import family_model, write_family
from tests.engine.driver import running

PROMPT = "Once upon a time there was a little girl who liked to play in the garden with her dog"
GREEDY = Sampling(temperature=0.0, ignore_eos=True)
NAMES = [family.name for family in FAMILIES]


@pytest.mark.parametrize("name", quick_for_some(NAMES))
def test_the_greedy_text_depends_on_the_first_token(name: str) -> None:
    config = EngineConfig(model=str(family_model(name)), slots=2, context=256, threads=1)
    with LlamaModel(config, lambda _share: None) as model, LlamaRunner(model, config) as runner:
        model_prompt = model.tokenize(PROMPT)
        texts = [generate(runner, model_prompt), generate(runner, [model_prompt[5], *model_prompt[1:]])]
        assert texts[0] != texts[1]
        assert len(set(texts[0])) > 3
        assert generate(runner, model_prompt) == texts[0]


def generate(runner: LlamaRunner, tokens: list[int]) -> list[int]:
    sequence = running(0, tokens, 64, sampling=GREEDY)
    for _ in range(16):
        result = runner.run(StepPlan((Chunk(sequence, sequence.pending, sample=True),), decode=False))
        assert result.outcome is Outcome.DONE
        ((token,),) = result.draws
        assert isinstance(token, Token)
        sequence.computed = len(sequence.tokens)
        sequence.tokens.append(token.id)
    runner.cache.remove(Removal(0, 0))
    runner.close(sequence)
    return sequence.tokens[sequence.prompt :]


@pytest.mark.parametrize("family", quick_for_some(FAMILIES, attrgetter("name")), ids=NAMES)
def test_a_model_is_small_and_written_alike_each_time(family: Family, tmp_path: Path) -> None:
    write_family(family, tmp_path / "again.gguf")
    written = (tmp_path / "again.gguf").read_bytes()
    assert len(written) < 2_000_000
    assert written == family_model(family.name).read_bytes()
    assert list(tmp_path.iterdir()) == [tmp_path / "again.gguf"]
