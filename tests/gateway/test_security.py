"""The threat model names tests that exist."""

import ast
import re

from tests.program import ROOT

NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_each_test_that_the_threat_model_names_exists() -> None:
    named = NAMED.findall((ROOT / "gateway" / "SECURITY.md").read_text(encoding="utf-8"))
    assert len(named) > 40
    missing = [f"{path}::{name}" for path, name in named if name not in functions_of(path)]
    assert missing == []


def test_each_threat_has_a_test() -> None:
    text = (ROOT / "gateway" / "SECURITY.md").read_text(encoding="utf-8")
    rows = text.partition("| threat |")[2].partition("\n## ")[0].splitlines()[2:]
    assert [row for row in rows if row and not NAMED.search(row)] == []


def functions_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
