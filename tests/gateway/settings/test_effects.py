"""Flags that have no effect without another one."""

from pathlib import Path

import pytest

from gateway.cli import read_settings
from gateway.like.llama_server import translate
from tests.gateway.settings.reading import complaint, read


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.gguf"
    path.write_bytes(b"GGUF" + bytes(20))
    return path


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--lora-apply",), "--lora-apply needs --lora"),
        (("--prefix-dir-bytes", "1G"), "--prefix-dir-bytes needs --prefix-dir"),
        (("--control-vector-layer-range", "1", "2"), "--control-vector-layer-range needs --control-vector"),
    ],
)
def test_a_flag_that_needs_another_one_is_refused_without_it(flags: tuple[str, ...], reason: str) -> None:
    assert complaint(*flags) == reason


def test_a_variable_that_switches_it_off_is_no_choice() -> None:
    assert not read(LLAMA_GATEWAY_LORA_APPLY="false").lora_apply


def test_a_flag_for_the_models_of_tables_needs_one_table_with_the_other(file: Path, tmp_path: Path) -> None:
    config = tmp_path / "gateway.toml"
    tables = f"[models.x]\nfile = '{file}'\nlora = '{file}'\n[models.y]\nfile = '{file}'\n"
    config.write_text(f"lora-apply = true\n{tables}")
    assert [one.settings.lora_apply for one in read("--config", config).served] == [True, True]
    config.write_text(f"{tables}lora-apply = true\n")
    assert complaint("--config", config) == "models.y: --lora-apply needs --lora"


def test_a_default_of_llama_server_is_no_choice() -> None:
    line = translate(["--port", "1"], {})
    assert read_settings(line.arguments, line.environment, line.defaults).lora_apply
