"""Endpoint `POST /slots/{id_slot}`: save the cells of a slot to a file, restore or erase them."""

import re
import time
from pathlib import Path
from typing import Any

from engine import RequestError, SlotAction
from gateway.apis.answers.reply import JsonReply
from gateway.apis.answers.shapes import Count, JsonObject, Time
from gateway.apis.endpoint import MODEL_PARAMETER, NOT_FOUND, AnyEndpoint, Call, Described, Endpoint
from gateway.apis.fields.base import Fields
from gateway.apis.fields.whole_numbers import whole_number
from gateway.apis.llama_server.options import NOT_ALLOWED, RouteOptions, refused
from gateway.serving.generations import partition_of
from gateway.serving.models import Models

MOST_NAME_BYTES = 255
_NAME = re.compile(r"\w[\w .+@-]*")
"""Names of files: no path leads out of the folder."""
_ACTION: Described = {
    "name": "action",
    "in": "query",
    "required": True,
    "schema": {"enum": [action.value for action in SlotAction]},
}


class SaveTime(JsonObject):
    """Time of a save."""

    save_ms: Time


class RestoreTime(JsonObject):
    """Time of a restore."""

    restore_ms: Time


class SavedSlot(JsonObject):
    """A slot whose cells were written to a file."""

    id_slot: Count
    filename: str
    n_saved: Count
    n_written: Count
    timings: SaveTime


class RestoredSlot(JsonObject):
    """A slot whose cells were read from a file."""

    id_slot: Count
    filename: str
    n_restored: Count
    n_read: Count
    timings: RestoreTime


class ErasedSlot(JsonObject):
    """A slot whose cells were dropped."""

    id_slot: Count
    n_erased: Count


_ANSWER: Any = SavedSlot | RestoredSlot | ErasedSlot


class SlotActionBody(Fields):
    """The body of an action. `erase` needs none."""

    filename: str | None = None


def prepare_slot_action(body: SlotActionBody) -> str | None:
    """Return the name of the file in a body."""
    return body.filename


class SlotActionsEndpoints:
    """Handlers for the cells of slots."""

    def __init__(self, models: Models, options: RouteOptions) -> None:
        self._models = models
        self._folder = options.save_path

    async def act(self, call: Call[str | None]) -> JsonReply[SavedSlot | RestoredSlot | ErasedSlot]:
        """Save, restore or erase the cells of a slot, once no request holds it."""
        if self._folder is None:
            raise refused("slots action", "with `--slot-save-path`")
        query = call.http.query_params
        served = self._models.find(call.caller, query.get("model")).loaded()
        slot, action = _slot(call.http.path_params["id_slot"]), _action(query.get("action"))
        name = "" if action is SlotAction.ERASE else _file_name(call.prepared)
        file = str((self._folder / name).absolute()) if name else ""
        partition, adapters = partition_of(call.caller), served.generations.adapters_of(call.caller)
        began = time.perf_counter()
        tokens, size = await served.engine.keep_slot(action, slot, file=file, partition=partition, adapters=adapters)
        return JsonReply(_answer(action, slot, name, tokens, size, (time.perf_counter() - began) * 1000))


def _answer(
    action: SlotAction, slot: int, name: str, tokens: int, size: int, milliseconds: float
) -> SavedSlot | RestoredSlot | ErasedSlot:
    match action:
        case SlotAction.SAVE:
            saving: SaveTime = {"save_ms": milliseconds}
            return {"id_slot": slot, "filename": name, "n_saved": tokens, "n_written": size, "timings": saving}
        case SlotAction.RESTORE:
            restoring: RestoreTime = {"restore_ms": milliseconds}
            return {"id_slot": slot, "filename": name, "n_restored": tokens, "n_read": size, "timings": restoring}
        case SlotAction.ERASE:
            return {"id_slot": slot, "n_erased": tokens}


def _slot(text: str) -> int:
    number = whole_number(text)
    if number is None:
        raise RequestError("Invalid slot ID", code="invalid_value", param="id_slot")
    return number


def _action(text: str | None) -> SlotAction:
    if text in set(SlotAction):
        return SlotAction(text)
    raise RequestError("Invalid action", code="invalid_value", param="action")


def _file_name(name: str | None) -> str:
    if name is None or not _NAME.fullmatch(name) or ".." in name or len(name.encode()) > MOST_NAME_BYTES:
        raise RequestError("Invalid filename", code="invalid_value", param="filename")
    return Path(name).name


def slot_actions_endpoints(models: Models, options: RouteOptions) -> tuple[AnyEndpoint, ...]:
    """Return the endpoint of actions on slots."""
    act = Endpoint(
        method="POST",
        path="/slots/{id_slot}",
        id="keepSlot",
        summary="Save the cells of a slot to a file, restore or erase them.",
        body=SlotActionBody,
        prepare=prepare_slot_action,
        handler=SlotActionsEndpoints(models, options).act,
        answer=_ANSWER,
        optional_body=True,
        query=(_ACTION, MODEL_PARAMETER),
        refusals=NOT_FOUND | NOT_ALLOWED,
    )
    return (act,)
