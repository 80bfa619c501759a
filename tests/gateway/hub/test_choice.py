"""Choice of a model's files by names as they are on the hub."""

import pytest

from gateway.hub.choice import MOST_NAMED, choose, quant_of
from gateway.hub.errors import HubError
from gateway.hub.reference import HubReference

PLAIN = [
    *(".gitattributes", "README.md", "imatrix.gguf", "mmproj-model-Q8_0.gguf"),
    *(f"model-{quant}.gguf" for quant in ("BF16", "IQ4_XS", "Q4_K_M", "Q8_0", "UD-Q4_K_XL")),
]
SPLIT = [f"Q6_K/model-Q6_K-0000{part}-of-00002.gguf" for part in (1, 2)]


@pytest.mark.parametrize(
    ("quant", "names", "chosen"),
    [
        (None, PLAIN, ["model-Q4_K_M.gguf"]),
        (None, ["model-BF16.gguf", "model-Q8_0.gguf"], ["model-Q8_0.gguf"]),
        (None, ["mmproj-Q4_K_M.gguf", "model-f16.gguf", "model-f32.gguf"], ["model-f16.gguf"]),
        ("q8_0", PLAIN, ["model-Q8_0.gguf"]),
        ("IQ4_XS", PLAIN, ["model-IQ4_XS.gguf"]),
        ("UD-Q4_K_XL", PLAIN, ["model-UD-Q4_K_XL.gguf"]),
        ("Q4_K_XL", PLAIN, ["model-UD-Q4_K_XL.gguf"]),
        ("Q6_K", PLAIN + SPLIT, SPLIT),
    ],
)
def test_the_quantisation_decides(quant: str | None, names: list[str], chosen: list[str]) -> None:
    assert choose(names, HubReference("user/repo", quant)) == chosen


@pytest.mark.parametrize("part", SPLIT)
def test_a_file_is_taken_by_its_name_with_all_parts(part: str) -> None:
    assert choose(SPLIT, HubReference("user/repo", file=part)) == SPLIT


@pytest.mark.parametrize(
    ("reference", "names", "reason"),
    [
        (HubReference("u/r", "Q4_XS"), PLAIN, "u/r has no such model; it has BF16, IQ4_XS, Q4_K_M, Q4_K_XL, Q8_0"),
        (HubReference("u/r", file="other.gguf"), PLAIN, "has no such model; it has"),
        (HubReference("u/r"), ["model.safetensors", "mmproj.gguf"], "the repository has no GGUF model"),
        (HubReference("u/r"), SPLIT[:1], "lacks a part of this model: Q6_K/model-Q6_K-00002-of-00002.gguf"),
    ],
)
def test_a_model_that_is_not_there_is_an_error(reference: HubReference, names: list[str], reason: str) -> None:
    with pytest.raises(HubError, match=reason):
        choose(names, reference)


def test_an_error_names_some_of_many_models() -> None:
    names = [f"model-Q{at:02}.gguf" for at in range(MOST_NAMED + 5)]
    with pytest.raises(HubError, match=r"it has Q00, Q01, .*, Q19 and 5 more$"):
        choose(names, HubReference("u/r", "F16"))


def test_a_file_of_zero_parts_is_an_ordinary_one() -> None:
    name = "model-00001-of-00000.gguf"
    assert choose([name], HubReference("u/r")) == choose([name], HubReference("u/r", file=name)) == [name]


def test_a_name_has_a_quantisation_or_not() -> None:
    assert quant_of("a/model-7B-q5_k_m.gguf") == "Q5_K_M"
    assert quant_of(SPLIT[1]) == "Q6_K"
    assert quant_of("model.gguf") is None
    assert quant_of("some-model-chat.gguf") is None
