"""Settings of LoRA adapters and control vectors."""

from pathlib import Path

import pytest

from gateway.settings.adapters import AdapterFile, adapter_file
from tests.gateway.settings.reading import complaint, read

GGUF = b"GGUF" + bytes(20)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("model", "fr", "de", "calm"):
        (tmp_path / f"{name}.gguf").write_bytes(GGUF)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a/fr.gguf", ("fr", "a/fr.gguf", 1.0)),
        ("french=a/fr.gguf", ("french", "a/fr.gguf", 1.0)),
        ("french=a/fr.gguf:0.5", ("french", "a/fr.gguf", 0.5)),
        ("a/fr.gguf:-2", ("fr", "a/fr.gguf", -2.0)),
        ("a/fr.gguf:1_0", ("fr", "a/fr.gguf:1_0", 1.0)),
        ("a/b=c/fr.gguf", ("fr", "a/b=c/fr.gguf", 1.0)),
        ("a/b:c/fr.gguf", ("fr", "a/b:c/fr.gguf", 1.0)),
        ("a:b.gguf:inf", ("a:b", "a:b.gguf:inf", 1.0)),
    ],
)
def test_a_name_and_a_scale_are_optional(text: str, parts: tuple[str, str, float]) -> None:
    assert adapter_file(text)[1:] == (Path(parts[1]), parts[2])
    assert adapter_file(text).name == parts[0]


def test_adapters_are_for_the_main_engine_only(folder: Path) -> None:
    model, fr, de, calm = (str(folder / f"{name}.gguf") for name in ("model", "fr", "de", "calm"))
    flags = ["--lora", f"{fr}:0.5", "--lora", f"german={de}", "--control-vector", f"{calm}:-0.8"]
    flags += ["--control-vector-layer-range", "3-12", "--embedding-model", model]
    settings = read("--model", model, *flags)
    assert settings.adapters == (AdapterFile("fr", Path(fr), 0.5), AdapterFile("german", Path(de), 1.0))
    config, embedder = map(settings.engine_config, settings.served)
    assert (config.adapters, embedder.adapters) == ((fr, de), ())
    assert (config.control_vectors, embedder.control_vectors) == (((calm, -0.8),), ())
    assert config.control_vector_layers == (3, 12)


def test_a_file_and_a_variable_can_have_several(folder: Path) -> None:
    fr, de = (str(folder / f"{name}.gguf") for name in ("fr", "de"))
    config = folder / "gateway.toml"
    config.write_text(f"lora = ['{fr}', 'german={de}:2']\n")
    by_file = read("--config", config)
    assert by_file.adapters == read(LLAMA_GATEWAY_LORA=f"{fr},german={de}:2").adapters
    assert [adapter.name for adapter in by_file.adapters] == ["fr", "german"]


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--lora", "{folder}/none.gguf"], "there is no such file"),
        (["--lora", "{folder}"], "the file cannot be read: Is a directory"),
        (["--lora", "{folder}/fr.gguf", "--lora", "fr={folder}/de.gguf"], "2 adapters have the name 'fr'"),
        (["--control-vector", "{folder}/none.gguf:1"], "there is no such file"),
        (["--control-vector-layer-range", "12"], "should be the first and the last layer"),
        (["--control-vector-layer-range", "0-3"], "should be the first and the last layer"),
        (["--control-vector-layer-range", "4-3"], "should be the first and the last layer"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(folder: Path, flags: list[str], reason: str) -> None:
    refused = complaint(*(flag.format(folder=folder) for flag in flags))
    assert refused.startswith(flags[0])
    assert reason in refused


def test_each_model_may_have_its_own(folder: Path) -> None:
    model, fr, de = (folder / f"{name}.gguf" for name in ("model", "fr", "de"))
    config = folder / "gateway.toml"
    config.write_text(f"[models.a]\nfile = '{model}'\nlora = ['{fr}', '{de}:2']\n\n[models.b]\nfile = '{model}'\n")
    settings = read("--config", config)
    assert [settings.engine_config(one).adapters for one in settings.served] == [(str(fr), str(de)), ()]


def test_a_model_with_the_name_of_another_one_with_an_adapter_is_refused(folder: Path) -> None:
    model, fr = (folder / f"{name}.gguf" for name in ("model", "fr"))
    config = folder / "gateway.toml"
    text = f"[models.a]\nfile = '{model}'\naliases = 'b'\nlora = '{fr}'\n\n[models.'b:fr']\nfile = '{model}'\n"
    config.write_text(text)
    assert complaint("--config", config) == "several models have the name 'b:fr'"
