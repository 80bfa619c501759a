"""The model handle: refused files, metadata, tokenization, and freed memory."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import llama_cpp
import pytest

from engine.config import EngineConfig
from engine.errors import LoadError, RequestError
from engine.hardware import RopeScaling
from engine.llama import devices, metadata
from engine.llama import model as models
from engine.llama.memory.contexts import Contexts
from engine.llama.model import LlamaModel
from tests.architectures.families import CONTEXT, FAMILIES
from tests.architectures.models import write_family
from tests.c_calls import count_calls
from tests.models import model_path
from tests.random_model import write_random_model

Calls = Counter[str]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return count_calls(monkeypatch, "llama_model_load_from_file", "llama_model_free")


def config(path: Path | None = None, **fields: Any) -> EngineConfig:
    return EngineConfig(model=str(path or model_path()), **fields)


def load(settings: EngineConfig) -> LlamaModel:
    return LlamaModel(settings, lambda _share: None)


@pytest.fixture(scope="module")
def model() -> Iterator[LlamaModel]:
    with load(config(context=256)) as loaded:
        yield loaded


def test_info_has_the_sampling_that_the_file_recommends(tmp_path: Path, model: LlamaModel) -> None:
    recommended: dict[str, float | str] = {
        "temp": 0.5,
        "top_k": 20,
        "penalty_repeat": 1.25,
        "sequence": "top_k;temperature",
    }
    path = tmp_path / "model.gguf"
    write_random_model(path, metadata={f"general.sampling.{key}": value for key, value in recommended.items()})
    with load(config(path, metadata_only=True)) as found:
        texts = dict(found.info.sampling)
    numbers = {name: float(texts.pop(name)) for name in ("temperature", "top_k", "repeat_penalty")}
    assert numbers == {"temperature": 0.5, "top_k": 20, "repeat_penalty": 1.25}
    assert texts == {"samplers": "top_k;temperature"}
    assert model.info.sampling == {}


def test_info_describes_the_loaded_model(model: LlamaModel) -> None:
    info = model.info
    assert (info.context, info.slots) == (256, 8)
    assert info.vocabulary > 0
    assert info.trained_context > 0
    assert info.parameters > 0
    assert info.size > 0
    assert info.description == f"llama {info.parameters / 1000:.0f}K all F32"
    assert info.file_type == "all F32"
    assert (info.architecture, info.generates, info.infills) == ("llama", True, False)
    assert info.embedding_size == 64
    assert (info.bos, info.eos) == ("<s>", "</s>")
    assert info.special_tokens["</s>"] == 2
    assert model.traits.can_trim


@pytest.mark.parametrize(("threads", "all_cores"), [(None, True), (2, True), (1, False)])
def test_fewer_threads_than_cores_leave_a_core_to_others(
    monkeypatch: pytest.MonkeyPatch, threads: int | None, *, all_cores: bool
) -> None:
    monkeypatch.setattr(models, "usable_cores", lambda: 2)
    with load(config(context=256, threads=threads, gpu_layers=0)) as loaded:
        assert loaded.traits.uses_all_cores is all_cores


@pytest.mark.parametrize("named", [None, "for tools"])
def test_chat_templates_are_read_from_the_file(monkeypatch: pytest.MonkeyPatch, named: str | None) -> None:
    templates = {None: b"plain \xff", b"tool_use": named.encode() if named else None}
    monkeypatch.setattr(llama_cpp, "llama_model_chat_template", lambda _handle, name: templates[name])
    with load(config(context=256)) as loaded:
        assert (loaded.info.chat_template, loaded.info.tool_template) == ("plain \ufffd", named)


def test_loading_reports_its_progress() -> None:
    shares: list[float] = []
    with LlamaModel(config(context=256), shares.append):
        assert shares == sorted(shares)
        assert shares[-1] == 1.0


def test_a_prompt_round_trips_through_its_pieces(model: LlamaModel) -> None:
    tokens = model.tokenize("Once upon a time, été\n")
    assert b"".join(map(model.piece, tokens)).decode().strip() == "Once upon a time, été"
    assert model.piece(tokens[0]) == b"", "the model's own beginning renders as nothing"


def test_special_tokens_are_recognised(model: LlamaModel) -> None:
    (end,) = model.end_tokens
    assert model.tokenize("the end</s>")[-1] == end
    assert end in model.end_tokens
    assert model.tokenize("the end")[-1] not in model.end_tokens


def test_a_nul_character_does_not_end_the_text(model: LlamaModel) -> None:
    pieces = [model.piece(token) for token in model.tokenize("one\0two")]
    assert b"\0" in pieces
    assert b"".join(pieces).endswith(b"two")


def test_a_text_of_more_tokens_than_expected_is_tokenised_whole(model: LlamaModel) -> None:
    assert len(model.tokenize("\x01" * 1000)) > 1000


def test_an_empty_text_is_the_bos_token_alone(model: LlamaModel) -> None:
    assert model.tokenize("") == model.tokenize("x")[:1]


def test_a_text_with_a_bos_token_gets_no_second_one(model: LlamaModel) -> None:
    assert model.tokenize("<s>Once") == model.tokenize("Once")
    assert model.tokenize("<s>") == model.tokenize("")
    assert model.tokenize("<s><s>Once") == [model.tokenize("")[0], *model.tokenize("Once")]


def test_a_model_without_a_bos_token_adds_none(model: LlamaModel) -> None:
    assert model.tokenize("Once", begin=False) == model.tokenize("Once")[1:]
    assert model.tokenize("<s>Once", begin=False) == model.tokenize("Once")


def test_names_of_control_tokens_are_plain_text_unless_special(model: LlamaModel) -> None:
    tokens = model.tokenize("<s>the</s>", special=False)
    assert b"".join(model.piece(token, special=True) for token in tokens[1:]).decode().strip() == "<s>the</s>"
    assert not model.end_tokens & set(tokens)


def test_control_tokens_are_listed_by_their_names(model: LlamaModel) -> None:
    (end,) = model.end_tokens
    assert (model.piece(end), model.piece(end, special=True)) == (b"", b"</s>")
    word = model.tokenize("Once")[-1]
    assert model.piece(word) == model.piece(word, special=True)


def test_infill_encloses_both_texts_in_its_control_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, token in (("pre", 10), ("suf", 11), ("mid", 12)):
        monkeypatch.setattr(llama_cpp, f"llama_vocab_fim_{name}", lambda _vocab, token=token: token)
    with load(config(context=256)) as loaded:
        before, after = (loaded.tokenize(text, begin=False, special=False) for text in ("one </s>", "two"))
        assert loaded.info.infills
        assert loaded.info.fill_tokens == {"prefix": 10, "suffix": 11, "middle": 12}
        assert loaded.infill("one </s>", "two") == [1, 10, *before, 11, *after, 12]


def test_a_model_without_infill_tokens_does_not_infill(model: LlamaModel) -> None:
    with pytest.raises(RequestError, match="cannot fill in") as raised:
        model.infill("one", "two")
    assert (raised.value.param, raised.value.code) == ("suffix", "unsupported")


def test_tokenization_works_from_many_threads(model: LlamaModel) -> None:
    texts = [f"Once upon a time there were {n} dogs" * n for n in range(40)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(model.tokenize, texts)) == list(map(model.tokenize, texts))


@pytest.mark.parametrize("token", [-1, 1 << 31, 1 << 70])
def test_unknown_token_ids_are_refused(model: LlamaModel, token: int) -> None:
    for wrong in (token, model.info.vocabulary):
        with pytest.raises(ValueError, match="out of range"):
            model.piece(wrong)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lambda whole: whole[: len(whole) // 2], "corrupted or incomplete"),
        (lambda whole: whole[:5000], "failed to read key-value pairs"),
        (lambda whole: whole[:10], "failed to read header"),
        (lambda _: b"<html>not found</html>", "is not a GGUF file"),
        (lambda _: b"", "is not a GGUF file"),
    ],
    ids=["half the weights", "half the header", "10 bytes", "not GGUF", "empty"],
)
def test_a_damaged_file_is_a_load_error(
    tmp_path: Path, content: Callable[[bytes], bytes], reason: str, calls: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "damaged.gguf"
    path.write_bytes(content(model_path().read_bytes()))
    with pytest.raises(LoadError, match=reason) as raised:
        load(config(path))
    assert str(path) in raised.value.message
    assert "\n" not in raised.value.message
    assert calls.total() == 0
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR], "reported once, by the error"


def test_a_missing_file_and_a_directory_are_load_errors(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="No such file"):
        load(config(tmp_path / "absent.gguf"))
    with pytest.raises(LoadError, match="directory"):
        load(config(tmp_path))


@pytest.mark.parametrize(
    ("ask", "answer", "reason"),
    [
        ("llama_model_has_encoder", True, "encoder"),
        ("llama_model_has_decoder", False, "encoder"),
        ("llama_model_is_diffusion", True, "diffusion"),
        ("llama_vocab_type", llama_cpp.LLAMA_VOCAB_TYPE_NONE, "vocabulary"),
    ],
)
def test_models_that_do_not_generate_are_refused(
    monkeypatch: pytest.MonkeyPatch, calls: Calls, ask: str, answer: object, reason: str
) -> None:
    monkeypatch.setattr(llama_cpp, ask, lambda _handle: answer)
    with pytest.raises(LoadError, match=reason):
        load(config())
    assert calls == {"llama_model_load_from_file": 1, "llama_model_free": 1}


def with_metadata(monkeypatch: pytest.MonkeyPatch, ending: str, value: str) -> None:
    true_metadata = metadata._metadata
    monkeypatch.setattr(
        metadata, "_metadata", lambda handle, key: value if key.endswith(ending) else true_metadata(handle, key)
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("chameleon", "computes chameleon wrongly"),
        ("cogvlm", "computes cogvlm wrongly"),
        ("arwkv7", "choose --slots 1"),
        ("kimi-linear", "a power of two"),
        ("minimax-01", "a power of two"),
        ("plamo2", "choose --slots 1"),
        ("rwkv6qwen2", "choose --slots 1"),
    ],
)
def test_architectures_that_llama_cpp_computes_wrongly_are_refused(
    monkeypatch: pytest.MonkeyPatch, calls: Calls, name: str, reason: str
) -> None:
    with_metadata(monkeypatch, "general.architecture", name)
    with pytest.raises(LoadError, match=reason):
        load(config(slots=6))
    assert calls == {"llama_model_load_from_file": 1, "llama_model_free": 1}


def test_an_architecture_that_dies_with_flash_attention_is_refused_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with_metadata(monkeypatch, "general.architecture", "plm")
    with pytest.raises(LoadError, match="choose --flash-attention off"):
        load(config(flash_attention=True))


@pytest.mark.parametrize("longer", [{"context": CONTEXT + 1}, {"rope": RopeScaling(freq_scale=0.5)}])
def test_a_model_with_learned_positions_has_no_more_of_them(tmp_path: Path, longer: dict[str, Any]) -> None:
    path = tmp_path / "model.gguf"
    write_family(replace(FAMILIES[0], architecture="gpt2"), path)
    with load(config(path, context=CONTEXT)) as model:
        assert model.info.context == CONTEXT
    with pytest.raises(LoadError, match=f"choose --context {CONTEXT} "):
        load(config(path, **longer))


def test_an_architecture_without_shared_cells_has_no_unified_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    with_metadata(monkeypatch, "general.architecture", "deepseek4")
    with pytest.raises(LoadError, match="share no cells"):
        load(config(kv_unified=True))


def test_an_embedding_model_of_an_architecture_without_embeddings_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with_metadata(monkeypatch, "general.architecture", "deepseek4")
    with pytest.raises(LoadError, match="cannot compute embeddings"):
        load(config(pooling="mean"))


@pytest.mark.parametrize(("key", "value"), [(".attention.causal", "false"), (".pooling_type", "3")])
def test_an_embedding_model_does_not_generate(monkeypatch: pytest.MonkeyPatch, key: str, value: str) -> None:
    with_metadata(monkeypatch, key, value)
    with load(config(context=256)) as loaded:
        assert not loaded.info.generates
        assert loaded.info.embedding_size > 0


def test_a_model_that_ranks_needs_a_classifier(monkeypatch: pytest.MonkeyPatch, calls: Calls) -> None:
    with_metadata(monkeypatch, ".pooling_type", str(llama_cpp.LLAMA_POOLING_TYPE_RANK))
    with pytest.raises(LoadError, match="has no classifier"):
        load(config())
    assert calls == {"llama_model_load_from_file": 1, "llama_model_free": 1}


@pytest.mark.parametrize("ask", ["llama_model_is_recurrent", "llama_model_is_hybrid"])
def test_models_that_cannot_drop_part_of_a_sequence_are_recognised(monkeypatch: pytest.MonkeyPatch, ask: str) -> None:
    monkeypatch.setattr(llama_cpp, ask, lambda _handle: 1)
    with load(config(context=256)) as loaded:
        assert (loaded.traits.can_trim, loaded.info.checkpoints) == (False, True)


@pytest.mark.parametrize("fits", [True, False])
def test_a_sliding_window_model_drops_parts_where_memory_allows_full_caches(
    monkeypatch: pytest.MonkeyPatch, fits: bool
) -> None:
    monkeypatch.setattr(llama_cpp, "llama_model_n_swa", lambda _handle: 1)
    monkeypatch.setattr(Contexts, "headroom", lambda *_arguments: 0 if fits else -1)
    with load(config(context=256)) as loaded:
        assert (loaded.traits.can_trim, loaded.memory.full_windows) == (fits, fits)
        assert loaded.traits.windowed
        assert loaded.info.checkpoints, "copies cannot be trimmed"


def test_a_model_is_freed_once(calls: Calls) -> None:
    with load(config(context=256)) as loaded:
        assert calls == {"llama_model_load_from_file": 2, "llama_model_free": 1}  # one without weights
    loaded.close()
    assert calls == {"llama_model_load_from_file": 2, "llama_model_free": 2}
    with pytest.raises(ValueError, match="closed"):
        loaded.tokenize("too late")
    with pytest.raises(ValueError, match="closed"):
        _ = loaded.handle


def test_an_exception_of_the_progress_callback_is_raised_and_the_model_is_freed(calls: Calls) -> None:
    def gone(_share: float) -> None:
        raise BrokenPipeError("the gateway is gone")

    with pytest.raises(BrokenPipeError):
        LlamaModel(config(), gone)
    assert calls["llama_model_load_from_file"] == calls["llama_model_free"]


def test_a_model_too_large_for_the_memory_is_freed(monkeypatch: pytest.MonkeyPatch, calls: Calls) -> None:
    monkeypatch.setattr(devices, "available_memory", lambda: 0)
    with pytest.raises(LoadError, match="memory allows 0 tokens"):
        load(config())
    assert calls == {"llama_model_load_from_file": 2, "llama_model_free": 2}  # the second has no weights


def test_a_model_without_weights_describes_itself_in_the_same_way(model: LlamaModel) -> None:
    with load(config(context=256, metadata_only=True)) as described:
        assert described.info == model.info
        assert described.memory.token_bytes == model.memory.token_bytes
        assert described.tokenize("a") == model.tokenize("a")
