"""The import rules: the folders are the layers, and each may import only the modules listed for it."""

import ast
import sys
from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
VOCABULARY = {
    *(
        "engine.checkup",
        "engine.config",
        "engine.control_groups",
        "engine.environment",
        "engine.errors",
        "engine.events",
        "engine.fairness",
        "engine.gguf",
        "engine.info",
        "engine.hardware",
        "engine.host_memory",
        "engine.logs",
        "engine.notifier",
        "engine.processors",
        "engine.prompt",
        "engine.regular_files",
        "engine.request",
    ),
}

SERVED = {"gateway", "engine", *VOCABULARY, "anyio", "orjson", "pydantic", "starlette"}

# For each API: the parts that all of them share, and neither another API nor the application.
SHARED = {
    "gateway.apis.endpoint",
    "gateway.apis.fields",
    "gateway.apis.answers",
    "gateway.chat",
    "gateway.serving",
    "gateway.middleware",
    "engine",
    "anyio",
    "orjson",
    "pydantic",
    "starlette",
    "typing_extensions",
}
MOST_MODULES = 18
"""The modules of one folder."""
MOST_LINES = 300
"""The lines of one module."""

CROWDED = {"gateway.chat.formats"}
"""One module for each format of model output."""

# The longest prefix of a module's name decides. A prefix allows itself and all modules below it.
RULES: dict[str, set[str]] = {
    **dict.fromkeys(VOCABULARY, VOCABULARY),
    "engine.events": {*VOCABULARY, "msgspec"},
    "engine.gguf": {"engine.gguf", "engine.regular_files"},
    "engine.info": {"msgspec"},
    "engine.notifier": {"anyio"},
    "engine.prompt": {"msgspec"},
    "engine.request": {*VOCABULARY, "msgspec"},
    "engine.logs": {*VOCABULARY, "typing_extensions"},
    "engine": {"engine"},
    "engine.protocol": {"engine.protocol", *VOCABULARY, "msgspec"},
    "engine.client.checkup": {"engine.client.process", *VOCABULARY, "msgspec"},
    "engine.client": {"engine.client", "engine.protocol", *VOCABULARY, "anyio"},
    "engine.described": {"engine.client", *VOCABULARY, "typing_extensions"},
    "engine.protocol.pipes": {"anyio"},
    "engine.core": {"engine.core", *VOCABULARY},
    "engine.core.kv.pooled_ledger": {"engine.core", *VOCABULARY, "typing_extensions"},
    "engine.sampling": {"engine.sampling", *VOCABULARY, "llama_cpp", "llguidance", "numpy", "typing_extensions"},
    "engine.prefix_files": {"engine.prefix_files", "engine.core", *VOCABULARY, "numpy"},
    "engine.llama": {
        "engine.llama",
        "engine.prefix_files",
        "engine.core",
        "engine.sampling",
        *VOCABULARY,
        "llama_cpp",
        "numpy",
        "typing_extensions",
    },
    "engine.llama.checkup.main": {"engine.llama", *VOCABULARY, "msgspec"},
    "engine.llama.cpu.row_threads": {"engine.background"},
    "engine.testing": {"engine.testing", "engine.core", *VOCABULARY, "typing_extensions"},
    "engine.worker": {"engine.worker", "engine.core", "engine.protocol", *VOCABULARY, "typing_extensions"},
    "engine.worker.loop": {"engine.worker", "engine.core", "engine.background", *VOCABULARY},
    "engine.worker.main": {"engine.worker", "engine.core", "engine.llama", "engine.prefix_files", *VOCABULARY},
    "engine.embedded": {"engine.embedded"},
    "engine.embedded.training": {"engine.embedded", "gguf", "jinja2", "llama_cpp", "numpy", "torch", "tqdm"},
    "gateway": SERVED,
    "gateway.habits": {"gateway.like", "typing_extensions"},
    "gateway.like": {"gateway.like", "gateway.arguments", "engine"},
    "gateway.server": {"gateway.server", "gateway.middleware", "engine.notifier", "anyio", "starlette"},
    "gateway.server.tls.certificates": {"engine.regular_files", "anyio"},
    "gateway.server.unix": {"typing_extensions"},
    "gateway.server.hypercorn": {
        "gateway.server",
        "gateway.middleware",
        "engine.notifier",
        "anyio",
        "h11",
        "hypercorn",
        "starlette",
        "typing_extensions",
    },
    "gateway.storage": {"gateway.storage", "engine.errors", "anyio", "typing_extensions"},
    "gateway.storage.postgres": {"gateway.storage", "anyio", "psycopg", "typing_extensions"},
    "gateway.arguments": {"typing_extensions"},
    "gateway.keys": {
        "gateway.keys",
        "gateway.arguments",
        "gateway.storage",
        "gateway.usage.store",
        "anyio",
        "orjson",
        "typing_extensions",
    },
    "gateway.middleware": {
        "gateway.middleware",
        "gateway.keys.key",
        *VOCABULARY,
        "anyio",
        "orjson",
        "pydantic",
        "starlette",
    },
    "gateway.middleware.faults": {"pydantic", "pydantic_core"},
    "gateway.chat": {"gateway.chat", "engine", "orjson", "typing_extensions"},
    "gateway.chat.rendering": {"gateway.chat", "engine", "msgspec", "orjson"},
    "gateway.chat.template": {"engine", "jinja2", "typing_extensions"},
    "gateway.chat.template_variables": {"pydantic"},
    "gateway.preparation": {
        "gateway.preparation",
        "gateway.apis.endpoint",
        "gateway.apis.fields",
        "gateway.chat",
        "gateway.middleware",
        "engine",
        "anyio",
        "msgspec",
        "pydantic",
        "typing_extensions",
    },
    "gateway.serving": {"gateway", "engine", "anyio", "starlette", "typing_extensions"},
    "gateway.residency": {"gateway.residency", "engine.errors"},
    "gateway.residency.machine": {"gateway.residency", "engine.host_memory"},
    "gateway.residency.residents": {
        "gateway.residency",
        "gateway.serving.sources",
        "engine",
        "engine.notifier",
        "anyio",
        "typing_extensions",
    },
    "gateway.residency.estimate": {"gateway.residency", "gateway.hub", "engine", "engine.gguf"},
    "gateway.routing": {"gateway.routing"},
    "gateway.limits": {
        "gateway.limits",
        "gateway.keys.key",
        "gateway.middleware",
        "gateway.serving.records",
        "gateway.storage",
        "engine",
        "anyio",
        "starlette",
        "typing_extensions",
    },
    "gateway.usage": {
        "gateway.usage",
        "gateway.storage",
        "gateway.serving.records",
        "engine.notifier",
        "anyio",
    },
    "gateway.metrics": {
        "gateway.metrics",
        "gateway.middleware.exchange",
        "gateway.serving.model",
        "gateway.serving.records",
        "engine",
        "prometheus_client",
        "starlette",
    },
    "gateway.apis": {*SERVED, "pydantic_core", "typing_extensions"},
    "gateway.apis.fields": {
        "gateway.apis.fields",
        "gateway.middleware",
        "engine",
        "orjson",
        "pydantic",
        "pydantic_core",
    },
    "gateway.apis.fields.tools": {"gateway.apis.fields", "gateway.chat.tools", "orjson", "pydantic"},
    "gateway.apis.answers": {
        "gateway.apis.answers",
        "gateway.middleware.streams.blocks",
        "gateway.serving.field_names",
        "engine",
        "anyio",
        "orjson",
        "pydantic",
        "starlette",
        "typing_extensions",
    },
    "gateway.apis.answers.deltas": {"gateway.chat", "anyio"},
    "gateway.apis.anthropic": {"gateway.apis.anthropic", "pydantic_core", *SHARED},
    "gateway.apis.ollama": {"gateway.apis.ollama", *SHARED},
    "gateway.apis.ollama.api": {"gateway.apis.ollama", "gateway.pulls", *SHARED},
    "gateway.apis.ollama.pulling": {
        "gateway.apis.ollama",
        "gateway.hub.download_progress",
        "gateway.hub.reference",
        "gateway.pulls",
        *SHARED,
    },
    "gateway.apis.ollama.models": {"gateway.apis.ollama", "engine.gguf", *SHARED},
    "gateway.apis.openai": {"gateway.apis.openai", *SHARED},
    "gateway.apis.openai.shared_store": {"gateway.apis.openai", "gateway.storage", "msgspec", *SHARED},
    "gateway.apis.openai.responses.encoded": {"gateway.apis.openai.responses", "msgspec", "orjson"},
    "gateway.apis.generate": {"gateway.apis.generate", *SHARED},
    "gateway.apis.llama_server": {"gateway.apis.llama_server", *SHARED},
    "gateway.apis.llama_server.completion.samplers": {"gateway.like.spellings", *SHARED},
    "gateway.apis.llama_server.metrics": {"gateway.apis.llama_server.options", "gateway.metrics", *SHARED},
    "gateway.apis.llama_server.props": {"gateway", "gateway.apis.llama_server", *SHARED},
    # It has OpenAI's routes, too, with fields of its own.
    "gateway.apis.llama_server.openai": {"gateway.apis.llama_server", "gateway.apis.openai", *SHARED},
    # Its versioned route has OpenAI's answer.
    "gateway.apis.llama_server.embeddings": {
        "gateway.apis.llama_server",
        "gateway.apis.openai.embeddings",
        *SHARED,
    },
    # Its routes take the body of a chat request.
    "gateway.apis.llama_server.apply_template": {
        "gateway.apis.llama_server",
        "gateway.apis.openai.chat.call",
        "gateway.apis.openai.chat.request",
        *SHARED,
    },
    "gateway.openapi": {"gateway.openapi", "gateway.apis", "gateway", "anyio", "orjson", "pydantic", "starlette"},
    "gateway.bench": {"gateway.bench", "gateway.arguments", "anyio", "orjson"},
    "gateway.doctor": {"gateway.doctor", "gateway.arguments", "gateway.chat", "engine"},
    "gateway.doctor.arguments": {"gateway.arguments", "gateway.flags"},
    "gateway.doctor.findings": {"gateway.doctor", "gateway.chat", "engine", "engine.hardware"},
    "gateway.doctor.command": {
        "gateway.doctor",
        "gateway.arguments",
        "engine",
        "gateway.cli",
        "gateway.hub",
        "gateway.residency",
        "gateway.settings",
        "anyio",
        "orjson",
    },
    "gateway.hub": {
        "gateway.hub",
        "gateway.arguments",
        "engine",
        "engine.gguf",
        "anyio",
        "orjson",
        "typing_extensions",
    },
    "gateway.hub.client": {"gateway.hub", "httpx2", "huggingface_hub"},
    "gateway.hub.command": {"gateway.hub", "gateway.arguments", "gateway.progress", "anyio", "orjson"},
    "gateway.hub.opening": {"gateway.hub", "huggingface_hub"},
    "gateway.bench.command": {"gateway.bench", "gateway.arguments", "gateway.signals", "anyio", "orjson", "tqdm"},
    "gateway.bench.plot": {"gateway.bench", "matplotlib", "plotille"},
    "gateway.tracing": {
        "gateway.tracing",
        "gateway.middleware",
        "gateway.serving.records",
        "engine",
        "typing_extensions",
    },
    "gateway.tracing.spans": {
        "gateway.tracing",
        "gateway.middleware",
        "gateway.serving.records",
        "opentelemetry",
        "typing_extensions",
    },
    "gateway.tracing.exporter": {
        "gateway.tracing",
        "gateway",
        "engine.errors",
        "anyio",
        "opentelemetry",
        "typing_extensions",
    },
    "gateway.cluster": {
        "gateway",
        "engine",
        *VOCABULARY,
        "anyio",
        "msgspec",
        "orjson",
        "ray",
        "starlette",
        "typing_extensions",
    },
    "gateway.pulls": {
        "gateway.pulls",
        "gateway.hub",
        "gateway.serving",
        "gateway.settings",
        "engine",
        "engine.notifier",
        "anyio",
    },
    "gateway.engines": {"gateway", "engine", "anyio", "typing_extensions"},
    "gateway.progress": {"gateway", "tqdm"},
    "gateway.program": {"gateway", "engine", *VOCABULARY, "anyio"},
    "gateway.signals": set(),
    "gateway.__main__": {"gateway.program", "gateway.signals"},
}
EXACT = {"engine"}
"""Names that allow only themselves: `engine` is the public interface, not a way to every module below it."""


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports(path: Path) -> frozenset[str]:
    """Return every module that a file imports anywhere; `from a import b` counts as `a.b` if that is a module."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            assert node.module
            found |= {
                child if is_module(child := f"{node.module}.{alias.name}") else node.module for alias in node.names
            }
    return frozenset(found)


@cache
def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def covers(allowed: str, module: str) -> bool:
    return module == allowed or (allowed not in EXACT and module.startswith(f"{allowed}."))


def rule_for(module: str) -> set[str]:
    fitting = [prefix for prefix in RULES if module == prefix or module.startswith(f"{prefix}.")]
    return RULES[max(fitting, key=len)]


SOURCES = sorted([*(ROOT / "engine").rglob("*.py"), *(ROOT / "gateway").rglob("*.py")])


def foreign(path: Path) -> list[str]:
    """Return the modules that a file imports and may not."""
    module = module_name(path)
    allowed = rule_for(module)
    found = {
        name
        for name in imports(path)
        if name.split(".")[0] not in sys.stdlib_module_names and not any(covers(rule, name) for rule in allowed)
    }
    if module == "engine":
        found = {name for name in found if not name.startswith("engine.")}
    return sorted(found)


def test_every_file_imports_only_the_modules_allowed_for_its_layer() -> None:
    assert {module_name(path): names for path in SOURCES if (names := foreign(path))} == {}


def circle(graph: Mapping[str, AbstractSet[str]]) -> list[str]:
    """Return the modules of one import cycle, or an empty list."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def test_imports_have_no_cycle() -> None:
    assert not circle({module_name(path): imports(path) for path in SOURCES})


def test_an_import_cycle_is_detected() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


def test_no_folder_has_too_many_modules() -> None:
    sizes = Counter(module_name(path.parent) for path in SOURCES if path.name != "__init__.py")
    assert {folder for folder, size in sizes.items() if size > MOST_MODULES} <= CROWDED


def test_no_module_is_too_long() -> None:
    assert [module_name(path) for path in SOURCES if len(path.read_text().splitlines()) > MOST_LINES] == []


def test_only_the_engine_process_touches_llama_cpp() -> None:
    touching = {module_name(path) for path in SOURCES if any(n.split(".")[0] == "llama_cpp" for n in imports(path))}
    assert {
        name for name in touching if not name.startswith(("engine.llama", "engine.sampling", "engine.embedded"))
    } == set()


def test_the_import_rules_reject_forbidden_modules() -> None:
    assert not any(covers(rule, "llama_cpp") for rule in rule_for("gateway.apis.openai.completions.endpoint"))
    assert not any(covers(rule, "anyio") for rule in rule_for("engine.core.scheduler"))
    assert not any(covers(rule, "engine.core.scheduler") for rule in rule_for("gateway.app"))
    assert not any(covers(rule, "engine") for rule in rule_for("engine.worker.worker"))
    assert not any(covers(rule, "engine.llama.vocabulary.tokenizer") for rule in rule_for("engine.sampling.grammar"))
    assert not any(covers(rule, "hypercorn") for rule in rule_for("gateway.server.server"))
    assert not any(covers(rule, "hypercorn") for rule in rule_for("gateway.program"))
    assert not any(covers(rule, "gateway.apis.openai.usage") for rule in rule_for("gateway.apis.generate.answer"))
    assert not any(covers(rule, "gateway.apis.generate") for rule in rule_for("gateway.apis.openai.chat.endpoint"))
    assert not any(covers(rule, "gateway.apis.openai.chat.answer") for rule in rule_for("gateway.apis.llama_server.x"))
    assert any(covers(rule, "engine.core.scheduler") for rule in rule_for("engine.worker.worker"))
