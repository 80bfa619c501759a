"""Choice of the models that make room for another one."""

from collections.abc import Iterable

from gateway.residency.memory import Memory
from gateway.residency.resident import Resident


def victims(need: Memory, room: Memory, residents: Iterable[Resident]) -> list[Resident] | None:
    """Return the models whose unloading makes room, or None if that of all does not.

    Idle ones come first, the least recently used before others. Of those in use come first the ones that were chosen
    before: if the choice moved from one to another, none might ever become idle. Then come those loaded first.

    Args:
        need: bytes of the model that waits.
        room: bytes that are free, or will be without a further decision.
        residents: models that may be unloaded.
    """
    chosen: list[Resident] = []
    for resident in sorted(residents, key=_order):
        if need.fits(room):
            break
        chosen.append(resident)
        room += resident.need
    if not need.fits(room):
        return None
    for resident in tuple(chosen):  # a later one may have made an earlier one needless
        if need.fits(room - resident.need):
            chosen.remove(resident)
            room -= resident.need
    return chosen


def _order(resident: Resident) -> tuple[bool, bool, float]:
    return (not resident.idle, not resident.yields, resident.used_at if resident.idle else resident.loaded_at)
