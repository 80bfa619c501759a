"""The Kubernetes examples, as files and as `kubectl kustomize` renders them."""

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import jsonschema
import pytest
import yaml
from kubernetes_validate.utils import validate

from tests.deployment.schemas import SCHEMAS
from tests.program import GUARD, ROOT

FOLDER = ROOT / "examples" / "kubernetes"
VERSION = "1.37"
"""Version of Kubernetes whose schemas the manifests must satisfy."""
RENDERED = ("base", "overlays/cpu", "overlays/cuda")

Manifest = dict[str, Any]


def documents(name: str) -> list[Manifest]:
    """Return the documents of a file."""
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def whole_manifests() -> Iterator[Manifest]:
    """Return every manifest of the files, without the patches of components."""
    for path in sorted(FOLDER.rglob("*.yaml")):
        if "kustomization" in path.name or path.match("components/*/deployment.yaml"):
            continue
        yield from (one for one in yaml.safe_load_all(path.read_text()) if "kind" in one)


@cache
def rendered(name: str) -> Sequence[Manifest]:
    """Return what `kubectl apply -k` would send for a folder. Skips the test without kubectl."""
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not installed")
    command = ["kubectl", "kustomize", str(FOLDER / name)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=GUARD, check=False)
    assert run.returncode == 0, run.stderr
    return tuple(yaml.safe_load_all(run.stdout))


def check(manifest: Manifest) -> None:
    """Check a manifest by the schema of its kind, without unknown fields."""
    if manifest["kind"] in SCHEMAS:
        jsonschema.validate(manifest, SCHEMAS[manifest["kind"]])
    else:
        validate(manifest, VERSION, strict=True)


def one(manifests: Sequence[Manifest], kind: str, name: str = "llama-gateway") -> Manifest:
    """Return the only manifest of this kind and name."""
    (found,) = (each for each in manifests if each["kind"] == kind and each["metadata"]["name"] == name)
    return found


def server(manifests: Sequence[Manifest]) -> Manifest:
    """Return the container of the server."""
    (container,) = one(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    return dict(container)


def pods(manifests: Sequence[Manifest]) -> list[Manifest]:
    """Return the templates of all pods."""
    return [each["spec"]["template"]["spec"] for each in manifests if each["kind"] == "Deployment"]
