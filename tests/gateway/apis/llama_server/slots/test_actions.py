"""`POST /slots/{id}`: what is asked of the engine, its answers, and names of files that lead nowhere else."""

from pathlib import Path

import orjson
import pytest

from engine import RequestError, SlotAction
from tests.gateway.application import app_of
from tests.gateway.asgi import AsgiCall
from tests.gateway.fake_engine import FakeEngine

pytestmark = pytest.mark.anyio


async def act(engine: FakeEngine, query: str, body: bytes = b"", slot: str = "1", **changes: object) -> AsgiCall:
    return await AsgiCall(app_of(engine, **changes), f"/slots/{slot}", body, query=query).run()


async def test_a_slot_is_saved_restored_and_erased(tmp_path: Path) -> None:
    engine, file = FakeEngine(), str(tmp_path / "slot 1.bin")
    saved = (await act(engine, "action=save", b'{"filename":"slot 1.bin"}', slot_save_path=tmp_path)).json
    assert saved.pop("timings")["save_ms"] >= 0
    assert saved == {"id_slot": 1, "filename": "slot 1.bin", "n_saved": 84, "n_written": 1000}
    restored = (await act(engine, "action=restore", b'{"filename":"slot 1.bin"}', slot_save_path=tmp_path)).json
    assert restored.pop("timings")["restore_ms"] >= 0
    assert restored == {"id_slot": 1, "filename": "slot 1.bin", "n_restored": 84, "n_read": 1000}
    erased = await act(engine, "action=erase", slot_save_path=tmp_path)
    assert erased.json == {"id_slot": 1, "n_erased": 84}
    assert engine.kept == [
        (SlotAction.SAVE, 1, file, "", ()),
        (SlotAction.RESTORE, 1, file, "", ()),
        (SlotAction.ERASE, 1, "", "", ()),
    ]


async def test_a_long_number_is_read_wholly(tmp_path: Path) -> None:
    engine = FakeEngine()
    await act(engine, "action=erase", slot="0000000012", slot_save_path=tmp_path)
    assert [slot for _, slot, *_ in engine.kept] == [12]


async def test_slots_of_other_clients_are_out_of_reach(tmp_path: Path) -> None:
    engine = FakeEngine()
    await act(engine, "action=erase", slot_save_path=tmp_path, partition_cache=True)
    assert engine.kept[0][3]


@pytest.mark.parametrize(("model", "adapters"), [("tiny", ((1, 1.0),)), ("tiny:fr", ((0, 0.5),))])
async def test_a_slot_has_the_adapters_of_its_model_name(
    tmp_path: Path, model: str, adapters: tuple[tuple[int, float], ...]
) -> None:
    engine, lora = FakeEngine(), (f"fr={tmp_path}:0.5", f"es={tmp_path}")
    app = app_of(engine, slot_save_path=tmp_path, lora=lora)
    await AsgiCall(app, "/lora-adapters", orjson.dumps([{"id": 1, "scale": 1}])).run()
    call = await AsgiCall(app, "/slots/1", query=f"action=erase&model={model}").run()
    assert call.status == 200
    assert engine.kept[0][-1] == adapters


async def test_the_folder_is_needed() -> None:
    call = await act(FakeEngine(), "action=erase")
    assert (call.status, call.json["error"]["type"]) == (501, "not_supported_error")
    assert "--slot-save-path" in call.json["error"]["message"]


@pytest.mark.parametrize(
    "name",
    ["", "../x", "a/b", "/etc/passwd", "..", ".", "a..b", "a\\b", "a\0", "-x", ".hidden", "é" * 128, "x\n", " x"],
)
async def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    engine, body = FakeEngine(), orjson.dumps({"filename": name})
    for action in ("save", "restore"):
        call = await act(engine, f"action={action}", body, slot_save_path=tmp_path)
        assert (call.status, call.json["error"]["message"]) == (400, "Invalid filename")
    assert engine.kept == []


@pytest.mark.parametrize(
    ("slot", "query", "message"),
    [
        ("x", "action=erase", "Invalid slot ID"),
        ("-1", "action=erase", "Invalid slot ID"),
        ("0" * 5000, "action=erase", "Invalid slot ID"),
        ("1", "action=move", "Invalid action"),
        ("1", "", "Invalid action"),
        ("1", "action=save", "Invalid filename"),
    ],
)
async def test_wrong_parameters_are_a_400(tmp_path: Path, slot: str, query: str, message: str) -> None:
    call = await act(FakeEngine(), query, slot=slot, slot_save_path=tmp_path)
    assert (call.status, call.json["error"]["message"]) == (400, message)


async def test_a_refusal_of_the_engine_is_a_400(tmp_path: Path) -> None:
    engine = FakeEngine()
    engine.refusal = RequestError("this is no file of a saved slot", code="invalid_file", param="filename")
    call = await act(engine, "action=restore", b'{"filename":"x"}', slot_save_path=tmp_path)
    assert (call.status, call.json["error"]["message"]) == (400, "this is no file of a saved slot")
