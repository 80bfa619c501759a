"""The README documents the program's flags and their defaults."""

import re
from pathlib import Path

from gateway.settings import Settings

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_readme_lists_every_flag_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `--([a-z-]+)`[^|]*\| ([^|]+?) \|", README, re.MULTILINE))
    assert rows.pop("config") == "none"
    assert list(rows) == [name.replace("_", "-") for name in Settings.model_fields]
    for name, field in Settings.model_fields.items():
        if field.default is False:
            assert rows[name.replace("_", "-")] == "off"
        elif isinstance(field.default, int | float | str):
            default = f"{field.default:g}" if isinstance(field.default, float) else str(field.default)
            assert rows[name.replace("_", "-")] == default
