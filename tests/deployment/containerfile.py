"""The container file, as stages of instructions."""

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from tests.program import ROOT

FILE = ROOT / "examples" / "container" / "Containerfile"


class Instruction(NamedTuple):
    """One instruction of a stage."""

    name: str
    value: str


def stages() -> Mapping[str, list[Instruction]]:
    """Return the instructions of each stage by its name. The last stage is the default target."""
    text = re.sub(r"^#.*\n", "", FILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found: dict[str, list[Instruction]] = {"": []}
    for line in filter(None, text.splitlines()):
        name, _, value = line.partition(" ")
        if name == "FROM":
            found[value.rpartition(" AS ")[2]] = []
        list(found.values())[-1].append(Instruction(name, " ".join(value.split())))
    return found


def only(stage: list[Instruction], name: str) -> str:
    """Return the value of the only instruction of this name."""
    (value,) = (each.value for each in stage if each.name == name)
    return value


def entrypoint(stage: str) -> list[str]:
    """Return the command of a stage."""
    return list(json.loads(only(stages()[stage], "ENTRYPOINT")))
