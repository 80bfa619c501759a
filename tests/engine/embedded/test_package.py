"""The package: the path of the model, without imports of the training."""

import subprocess
import sys
from pathlib import Path

from engine import embedded


def test_the_file_lies_beside_the_code() -> None:
    assert embedded.path() == Path(embedded.__file__).with_name("tiny.gguf")


def test_importing_the_package_loads_no_library_of_the_training() -> None:
    code = "import sys, engine.embedded; print(sorted({'gguf', 'jinja2', 'llama_cpp', 'torch'} & set(sys.modules)))"
    root = Path(__file__).parents[3]
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
