"""Names of models on the hub."""

import pytest

from gateway.hub.reference import HubReference


@pytest.mark.parametrize(
    ("text", "reference", "name"),
    [
        ("hf:user/repo", HubReference("user/repo"), "repo"),
        ("hf:user/Qwen3-0.6B-GGUF:Q4_K_M", HubReference("user/Qwen3-0.6B-GGUF", "Q4_K_M"), "Qwen3-0.6B-GGUF"),
        ("hf:user/repo:UD-Q4_K_XL", HubReference("user/repo", "UD-Q4_K_XL"), "repo"),
        ("hf:user/repo/BF16/a-b.gguf", HubReference("user/repo", None, "BF16/a-b.gguf"), "repo"),
    ],
)
def test_a_reference_is_read_and_written(text: str, reference: HubReference, name: str) -> None:
    assert HubReference.parse(text) == reference
    assert (str(reference), reference.name) == (text, name)


@pytest.mark.parametrize(
    "text",
    [
        *("hf:", "hf:repo", "hf:user/", "hf:user/repo:", "hf:user/repo/", "hf:user/repo/file.bin", "user/repo"),
        *("hf:user/../etc/passwd.gguf", "hf:user/repo/../../a.gguf", "hf:us--er/repo", "hf:user/repo//a.gguf"),
        *("hf:user/repo:Q4 K", "hf:-user/repo", "hf:user/repo:Q4_0/a.gguf", "hf:usér/repo", "hf:user/repo\n"),
        *("hf:user/repo/./a.gguf", "hf:https://huggingface.co/user/repo"),
        *(f"hf:{'u' * 233}/repo", f"hf:user/{'r' * 5_000}", f"hf:user/repo/{'é' * 120}.gguf"),
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="should be hf:user/repo"):
        HubReference.parse(text)
