"""The environment of the engine process."""

import pytest

from engine.client.process import child_environment


def test_the_child_gets_defaults_for_its_libraries() -> None:
    given = child_environment({"PATH": "/bin"})
    assert given == {"PATH": "/bin", "OPENBLAS_NUM_THREADS": "1", "GOMP_SPINCOUNT": "20000"}


@pytest.mark.parametrize("own", [{"OMP_WAIT_POLICY": "active"}, {"GOMP_SPINCOUNT": "7"}])
def test_the_users_choice_of_waiting_counts(own: dict[str, str]) -> None:
    assert child_environment(own) == {"OPENBLAS_NUM_THREADS": "1", **own}


@pytest.mark.parametrize("name", ["LLAMA_API_KEY", "LLAMA_GATEWAY_API_KEY", "LLAMA_GATEWAY_KEYS", "HF_TOKEN"])
def test_the_child_gets_no_secret(name: str) -> None:
    assert name not in child_environment({name: "sk-secret"})
