"""Several models: by flags, by a folder, and by tables with settings of their own."""

import errno
import json
import os
import struct
from pathlib import Path

import pytest

from gateway.settings import Settings
from tests.gateway.settings.reading import complaint, read

HEAD = b"GGUF" + bytes(60)
VARIABLE = "LLAMA_GATEWAY_MODEL"


def gguf(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_bytes(HEAD)
    return path


def typed(kind: str, key: str = "general.type") -> bytes:
    """Return a GGUF file without tensors whose only key is its type, or another one."""
    name, value = (struct.pack("<Q", len(text)) + text.encode() for text in (key, kind))
    return struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + name + struct.pack("<I", 8) + value


def names(settings: Settings) -> list[str]:
    return [model.name for model in settings.served]


def test_one_plain_file_is_no_choice_of_models(tmp_path: Path) -> None:
    found = read("--model", gguf(tmp_path, "a.gguf"))
    assert (names(found), found.on_demand) == (["a"], False)


def test_flags_name_several_models_in_their_order(tmp_path: Path) -> None:
    small, large = gguf(tmp_path, "a.gguf"), gguf(tmp_path, "b.gguf")
    found = read("--model", f"small={small}", "--model", f"large={large}")
    assert [(model.name, model.place) for model in found.served] == [("small", small), ("large", large)]
    assert found.on_demand


def test_several_plain_files_have_the_names_of_their_files(tmp_path: Path) -> None:
    files = gguf(tmp_path, "b.gguf"), gguf(tmp_path, "a.gguf")
    assert names(read("--model", files[0], "--model", files[1])) == ["b", "a"]


def test_a_plain_file_beside_named_ones_is_the_default(tmp_path: Path) -> None:
    file = gguf(tmp_path, "a.gguf")
    assert names(read("--model", f"x={file}", "--model", file, "--alias", "main")) == ["main", "x"]


def test_an_alias_without_a_plain_file_is_refused(tmp_path: Path) -> None:
    file = gguf(tmp_path, "a.gguf")
    assert "--alias is for one --model FILE" in complaint("--model", f"x={file}", "--alias", "main")


def test_a_table_replaces_the_file_of_the_folder_with_its_name(tmp_path: Path) -> None:
    gguf(tmp_path, "a.gguf")
    config = tables(tmp_path, f"models-dir = '{tmp_path}'\n[models.a]\nfile = '{gguf(tmp_path, 'b.gguf')}'\n")
    assert [(model.name, model.place.name) for model in read("--config", config).served] == [
        ("a", "b.gguf"),
        ("b", "b.gguf"),
    ]


def test_a_file_whose_path_has_an_equals_sign_is_a_file(tmp_path: Path) -> None:
    assert names(read("--model", gguf(tmp_path, "a=b.gguf"))) == ["a=b"]


def test_models_of_the_same_name_are_refused(tmp_path: Path) -> None:
    a, b = gguf(tmp_path, "a.gguf"), gguf(tmp_path, "b.gguf")
    for flags in (("--model", f"x={a}", "--model", f"x={b}"), ("--model", a, "--model", a)):
        assert "several models have the name" in complaint(*flags)


def test_a_missing_file_is_refused_by_its_flag(tmp_path: Path) -> None:
    file = gguf(tmp_path, "a.gguf")
    expected = "--model 'x=missing.gguf': there is no such file"
    assert complaint("--model", file, "--model", "x=missing.gguf") == expected


def test_a_variable_names_several_models_as_a_json_array(tmp_path: Path) -> None:
    small, large = gguf(tmp_path, "a.gguf"), gguf(tmp_path, "b,c.gguf")
    several = read(**{VARIABLE: json.dumps([f"small={small}", str(large)])})
    assert [(model.name, model.place) for model in several.served] == [("b,c", large), ("small", small)]
    assert names(read(**{VARIABLE: f"x={small}"})) == ["x"]
    assert names(read("--model", small, **{VARIABLE: '["x=missing.gguf"]'})) == ["a"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('["a=missing.gguf", "b=missing.gguf"]', " 'a=missing.gguf': there is no such file"),
        ('["missing.gguf"]', " 'missing.gguf': there is no such file"),
        ("a=missing.gguf,b=missing.gguf", " 'a=missing.gguf,b=missing.gguf': there is no such file"),
        ('["a=a.gguf", "a=b.gguf"]', ": several models have the name 'a'; NAME=MODEL gives another one"),
        ('["a=a.gguf",', ": begins as a JSON array of strings, but is not one"),
        ('["a=a.gguf", 5]', ": begins as a JSON array of strings, but is not one"),
    ],
)
def test_wrong_models_of_a_variable_are_refused_by_its_name(text: str, reason: str) -> None:
    assert complaint(**{VARIABLE: text}) == f"{VARIABLE}{reason}"


def test_a_folder_is_one_model_for_each_file_and_one_for_a_split_file(tmp_path: Path) -> None:
    projectors = ("mmproj-a.gguf", "A.mmproj-f16.gguf", "A-MMPROJ-F16.gguf")
    for name in ("b.gguf", "a.gguf", "s-00001-of-00002.gguf", "s-00002-of-00002.gguf", *projectors, "notes.txt"):
        gguf(tmp_path, name)
    found = read("--models-dir", tmp_path)
    assert names(found) == ["a", "b", "s"]
    assert found.served[-1].place.name == "s-00001-of-00002.gguf"
    assert found.on_demand


def test_files_of_a_folder_that_are_no_models_are_left_out_with_a_reason(tmp_path: Path) -> None:
    gguf(tmp_path, "b.gguf")
    (tmp_path / "a.gguf").write_text("Not a model.")
    (tmp_path / "c.gguf").mkdir()
    found = read("--models-dir", tmp_path)
    assert names(found) == ["b"]
    assert [model.refusal for model in found.unserved] == [
        f"--models-dir {str(tmp_path / 'a.gguf')!r}: this is not a GGUF file",
        f"--models-dir {str(tmp_path / 'c.gguf')!r}: the file cannot be read: Is a directory",
    ]


def test_split_files_of_a_folder_whose_parts_are_not_all_models_are_left_out_with_a_reason(tmp_path: Path) -> None:
    for name in ("a-00002-of-00003.gguf", "a-00003-of-00003.gguf", "b-00001-of-00002.gguf", "c.gguf"):
        gguf(tmp_path, name)
    (tmp_path / "b-00002-of-00002.gguf").write_text("Not a model.")
    found = read("--models-dir", tmp_path)
    assert names(found) == ["c"]
    assert [(model.name, model.fault) for model in found.unserved] == [
        ("a", "a-00001-of-00003.gguf: there is no such file"),
        ("b", "b-00002-of-00002.gguf: this is not a GGUF file"),
    ]


@pytest.mark.parametrize("flag", ["--model", "--embedding-model"])
def test_a_later_part_of_a_split_file_is_refused_with_the_name_of_the_first(flag: str, tmp_path: Path) -> None:
    first, second = (gguf(tmp_path, f"a-{part}-of-00002.gguf") for part in ("00001", "00002"))
    reason = "this is part 2; a split model is named by its first part, a-00001-of-00002.gguf"
    assert complaint(flag, second) == f"{flag} {str(second)!r}: {reason}"
    assert read(flag, first).served[-1].place == first


def test_a_split_file_that_lacks_a_part_is_refused(tmp_path: Path) -> None:
    first = gguf(tmp_path, "a-00001-of-00002.gguf")
    second = tmp_path / "a-00002-of-00002.gguf"
    assert complaint("--model", first) == f"--model {str(first)!r}: {second.name}: there is no such file"
    second.symlink_to(os.devnull)
    assert complaint("--model", first).endswith(f"{second.name}: the file cannot be read: not a regular file")


def test_of_two_files_of_a_folder_for_one_name_the_first_good_one_is_served(tmp_path: Path) -> None:
    files = [gguf(tmp_path, f"a-{part}-of-00002.gguf") for part in ("00001", "00002")]
    gguf(tmp_path, "a.gguf")
    found = read("--models-dir", tmp_path)
    assert [(model.name, model.place) for model in found.served] == [("a", files[0])]
    reason = "a-00001-of-00002.gguf is served as a, and not a.gguf"
    assert [model.refusal for model in found.unserved] == [f"--models-dir {str(tmp_path / 'a.gguf')!r}: {reason}"]
    files[1].unlink()
    found = read("--models-dir", tmp_path)
    assert [(model.name, model.place) for model in found.served] == [("a", tmp_path / "a.gguf")]
    assert [model.file for model in found.unserved] == [files[0]]


def test_a_file_that_is_no_model_is_no_matter_where_another_model_has_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_text("Not a model.")
    found = read("--models-dir", tmp_path, "--model", f"a={gguf(tmp_path, 'b.gguf')}")
    assert (names(found), found.unserved) == (["a", "b"], [])


def test_a_folder_whose_files_are_all_no_models_is_refused_with_each_reason(tmp_path: Path) -> None:
    places = tmp_path / "a.gguf", tmp_path / "b.gguf"
    for place in places:
        place.write_text("Not a model.")
    refused = "; ".join(f"--models-dir {str(place)!r}: this is not a GGUF file" for place in places)
    assert complaint("--models-dir", tmp_path) == refused


def test_a_folder_without_models_is_refused(tmp_path: Path) -> None:
    expected = f"--models-dir {str(tmp_path)!r}: there is no GGUF file in this folder"
    assert complaint("--models-dir", tmp_path) == expected
    assert complaint("--models-dir", tmp_path / "x").endswith("there is no such folder")
    assert complaint("--models-dir", tmp_path / ("x" * 300)).endswith("the folder cannot be read: File name too long")


def test_a_folder_that_cannot_be_listed_is_refused_for_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object) -> None:  # root may list every folder
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    gguf(tmp_path, "a.gguf")
    monkeypatch.setattr(os, "scandir", refuse)
    expected = f"--models-dir {str(tmp_path)!r}: the folder cannot be read: Permission denied"
    assert complaint("--models-dir", tmp_path) == expected


def tables(folder: Path, text: str) -> Path:
    path = folder / "gateway.toml"
    path.write_text(text)
    return path


def test_a_table_has_settings_of_its_own_over_those_of_the_flags(tmp_path: Path) -> None:
    file = gguf(tmp_path, "a.gguf")
    config = tables(
        tmp_path,
        f"slots = 4\ncontext = 64\n[models.small]\nfile = '{file}'\nslots = 2\naliases = ['s', 'gpt']\n"
        f"keep-loaded = true\nidle-unload = 5.5\n[models.other]\nfile = '{file}'\n",
    )
    found = read("--config", config, "--threads", "3")
    small, other = found.served
    assert (small.name, small.aliases) == ("small", ("s", "gpt"))
    assert (small.settings.keep_loaded, small.settings.idle_unload) == (True, 5.5)
    assert [found.engine_config(model).slots for model in found.served] == [2, 4]
    assert [found.engine_config(model).threads for model in found.served] == [3, 3]
    assert (other.settings.keep_loaded, found.all_slots) == (False, 6)


def test_settings_of_a_table_go_together_with_those_of_flags(tmp_path: Path) -> None:
    file = gguf(tmp_path, "a.gguf")
    config = tables(tmp_path, f"[models.a]\nfile = '{file}'\nmain-gpu = 1\n")
    (model,) = read("--config", config, "--split-mode", "none").served
    assert (model.settings.split_mode, model.settings.main_gpu) == ("none", 1)
    assert complaint("--config", config) == "models.a: --main-gpu needs --split-mode none"


def test_a_flag_replaces_the_file_of_a_table(tmp_path: Path) -> None:
    config = tables(tmp_path, "[models.a]\nfile = 'missing.gguf'\nslots = 2\n")
    file = gguf(tmp_path, "a.gguf")
    (model,) = read("--config", config, "--model", f"a={file}").served
    assert (model.place, model.settings.slots) == (file, 2)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[models.a]\nfile = 'missing.gguf'\n", "models.a.file 'missing.gguf': there is no such file"),
        ("[models.a]\nslots = 2\n", "models.a.file: is required"),
        (
            "[models.a]\nfile = 'F'\nslot = 2\n",
            "models.a.slot: there is no such setting of a model; did you mean slots?",
        ),
        ("[models.a]\nfil = 'F'\n", "models.a.fil: there is no such setting of a model; did you mean file?"),
        ("[models.a]\nfile = 'F'\nnonsense = 2\n", "models.a.nonsense: there is no such setting of a model"),
        (
            "[models.a]\nfile = 'F'\nqueue-limit = 2\n",
            "models.a.queue-limit: this is a setting of the server, and comes before all tables",
        ),
        ("[models.a]\nfile = 'F'\nslots = 'x'\n", "models.a.slots: should be a whole number"),
        (
            "[models.a]\nfile = 'F'\nprefix-store = '1.5G'\n",
            "models.a.prefix-store: should be a whole number of bytes, or a size such as 512M or 8G",
        ),
        ("[models.a]\nfile = 'F'\nmax-tokens = 0\n", "models.a.max-tokens: should be greater than or equal to 1"),
        ("[models.a]\nfile = 'F'\naliases = 'b'\n[models.b]\nfile = 'F'\n", "several models have the name 'b'"),
        ("[models.'a,b']\nfile = 'F'\n", "models.a,b: 'a,b' is not a name of a model"),
        ("[models.' a']\nfile = 'F'\n", "models. a: ' a' is not a name of a model"),
        ("[models.'']\nfile = 'F'\n", "models.: '' is not a name of a model"),
        ("[models.a]\nfile = 'F'\naliases = \"b\\nc\"\n", "models.a.aliases: 'b\\nc' is not a name of a model"),
    ],
)
def test_a_wrong_table_is_one_line(tmp_path: Path, text: str, reason: str) -> None:
    config = tables(tmp_path, text.replace("'F'", f"'{gguf(tmp_path, 'a.gguf')}'"))
    assert complaint("--config", config).startswith(reason)


def test_a_setting_that_a_table_has_twice_is_refused_by_both_names(tmp_path: Path) -> None:
    config = tables(tmp_path, f"[models.a]\nfile = '{gguf(tmp_path, 'a.gguf')}'\ngpu-layers = 1\ngpu_layers = 2\n")
    assert complaint("--config", config) == f"{config}: models.a: gpu-layers and gpu_layers are the same setting"


def test_names_may_have_blanks_wherever_they_are_given(tmp_path: Path) -> None:
    file = gguf(tmp_path, "my model.gguf")
    config = tables(tmp_path, f"[models.'table a']\nfile = '{file}'\naliases = ['other name (v2)', ' last ']\n")
    (of_table,) = read("--config", config).served
    (of_alias,) = read("--model", file, "--alias", "table a, other name (v2) ,last").served
    assert (of_table.name, of_table.aliases) == ("table a", ("other name (v2)", "last"))
    assert (of_alias.name, of_alias.aliases) == (of_table.name, of_table.aliases)
    assert names(read("--model", file)) == ["my model"]
    assert complaint("--alias", "a\tb").startswith("--alias 'a\\tb': 'a\\tb' is not a name of a model")


def test_gguf_files_of_a_folder_that_are_something_else_are_left_out_with_a_reason(tmp_path: Path) -> None:
    contents = {
        "adapter": "a LoRA adapter, which --lora adds to its model",
        "imatrix": "an importance matrix, which only serves to quantise a model",
        "mmproj": "a projector for images or sound, which are not supported",
    }
    for kind in ("model", *contents):
        (tmp_path / f"{kind}-file.gguf").write_bytes(typed(kind))
    (tmp_path / "mmproj-file.gguf").rename(tmp_path / "vision.gguf")
    (tmp_path / "vision-of-2024.gguf").write_bytes(typed("clip", "general.architecture"))
    found = read("--models-dir", tmp_path)
    assert names(found) == ["model-file"]
    faults = {model.name: model.fault.removeprefix("this is ") for model in found.unserved}
    adapter, matrix, projector = contents.values()
    assert faults == {
        "adapter-file": adapter,
        "imatrix-file": matrix,
        "vision": projector,
        "vision-of-2024": projector,
    }


@pytest.mark.parametrize("text", ["[models]\na = 'x.gguf'\n", "models = 'x.gguf'\n", "[[models]]\nfile = 'x.gguf'\n"])
def test_a_model_that_is_no_table_is_refused(tmp_path: Path, text: str) -> None:
    assert "each model is a table" in complaint("--config", tables(tmp_path, text))


def test_a_table_in_a_model_is_no_value(tmp_path: Path) -> None:
    text = f"[models.a]\nfile = '{gguf(tmp_path, 'a.gguf')}'\nchat-template-kwargs = {{a = 1}}\n"
    reason = "models.a.chat-template-kwargs: should be a value in quotes, and no table"
    assert complaint("--config", tables(tmp_path, text)).endswith(reason)


def test_idleness_unloads_a_single_model_too(tmp_path: Path) -> None:
    assert read("--model", gguf(tmp_path, "a.gguf"), "--idle-unload", "60").on_demand
