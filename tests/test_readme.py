"""The README documents the program's flags and their defaults."""

import re
from pathlib import Path

import pytest

from gateway.flags import flag_fields
from tests.reference import BLOCKS, ROOT, readmes, refreshed

FRONT = ROOT / "README.md"
GATEWAY = (ROOT / "gateway" / "README.md").read_text(encoding="utf-8")
FILES = pytest.mark.parametrize("path", readmes(), ids=lambda path: str(path.relative_to(ROOT)))

ERROR_CODE = re.compile(r'code="([a-z_]+)"')
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED_PATH = re.compile(r"`((?:engine|gateway|tests|examples|\.ci)(?:/[\w.-]+)*/?)`")


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def headings(path: Path) -> set[str]:
    """The anchors of a file's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", text_of(path), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_first_page_is_short() -> None:
    assert len(text_of(FRONT).splitlines()) <= 150


def test_the_readme_lists_every_flag_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `--([a-z-]+)`[^|]*\| ([^|]+?) \|", GATEWAY, re.MULTILINE))
    assert rows.pop("config") == "none"
    assert list(rows) == [name.replace("_", "-") for name in flag_fields()]
    for name, field in flag_fields().items():
        if field.default is False:
            assert rows[name.replace("_", "-")] == "off"
        elif isinstance(field.default, int | float | str):
            default = f"{field.default:g}" if isinstance(field.default, float) else str(field.default)
            assert rows[name.replace("_", "-")] == default


@FILES
def test_generated_lists_are_what_the_code_gives(path: Path) -> None:
    assert refreshed(text_of(path)) == text_of(path), "run: python -m tests.reference"


def test_every_generated_list_is_shown() -> None:
    shown = [name for path in readmes() for name in re.findall(r"<!-- generated: (\w+) -->", text_of(path))]
    assert sorted(shown) == sorted(BLOCKS)


def test_every_error_code_is_there() -> None:
    sources = [text_of(path) for folder in ("engine", "gateway") for path in sorted((ROOT / folder).rglob("*.py"))]
    raised = {code for source in sources for code in ERROR_CODE.findall(source)}
    table = GATEWAY.partition("| code | status | meaning |")[2].partition("\n## ")[0]
    listed = {code for row in table.splitlines() for code in re.findall(r"`([a-z_]+)`", row.partition(" | ")[0])}
    assert raised <= listed
    assert {code for code in listed if not any(f'"{code}"' in source for source in sources)} == set()


@FILES
def test_links_lead_somewhere(path: Path) -> None:
    for link in LINK.findall(text_of(path)):
        if link.startswith("https://"):
            continue
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        assert target.exists(), link
        assert not anchor or anchor in headings(target), link


@FILES
def test_named_paths_exist(path: Path) -> None:
    assert [name for name in NAMED_PATH.findall(text_of(path)) if not (ROOT / name).exists()] == []


def test_every_folder_of_the_code_is_described() -> None:
    described = {name for path in readmes() for name in NAMED_PATH.findall(text_of(path))}
    packages = {path.parent for folder in ("engine", "gateway") for path in (ROOT / folder).glob("*/__init__.py")}
    assert {package.relative_to(ROOT).as_posix() for package in packages} - described == set()
