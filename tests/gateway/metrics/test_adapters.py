"""The series of LoRA adapters, which is vLLM's."""

from gateway.metrics.adapters import AdapterCollector
from tests.gateway.application import gateway_of
from tests.gateway.fake_engine import FakeEngine


def names_of(engine: FakeEngine, *lora: str) -> list[tuple[dict[str, str], float]]:
    (family,) = AdapterCollector(gateway_of(engine, lora=lora).models.all, clock=lambda: 12.0).collect()
    return [(sample.labels, sample.value) for sample in family.samples]


def test_all_adapters_are_one_series_whose_value_is_the_time() -> None:
    ((labels, value),) = names_of(FakeEngine(), f"fr={__file__}", f"de={__file__}")
    names = labels.pop("running_lora_adapters").split(",")
    assert {"tiny:de", "tiny:fr"} <= set(names)
    assert names == sorted(names)
    assert (labels, value) == ({"max_lora": "2", "waiting_lora_adapters": ""}, 12.0)


def test_a_server_without_adapters_has_no_series() -> None:
    assert names_of(FakeEngine()) == []
