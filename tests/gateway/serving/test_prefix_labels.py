"""Labels of the latest requests, with a bound."""

import gc
from weakref import ref

from engine import GenerationRequest, HeldPrefix
from gateway.routing.blocks import BLOCK_BYTES, MOST_BLOCKS
from gateway.serving.prefixes import MOST_LABELS, HeldPrefixes, PromptLabels, blocks_of

PROMPT = "x" * BLOCK_BYTES


def labelled(labels: PromptLabels) -> int:
    request = labels.label(GenerationRequest(id="r", prompts=(PROMPT,)))
    labels.count(request, [100])
    assert request.label is not None
    return request.label


def test_labels_are_forgotten_in_the_order_of_their_use() -> None:
    labels = PromptLabels("m", b"", lambda: None)
    first, second = labelled(labels), labelled(labels)
    assert len(labels.blocks(HeldPrefix(first, 0, 100))) == 1
    for _ in range(MOST_LABELS - 1):
        last = labelled(labels)
    assert labels.blocks(HeldPrefix(second, 0, 100)) == ()
    assert len(labels.blocks(HeldPrefix(first, 0, 100))) == len(labels.blocks(HeldPrefix(last, 0, 100))) == 1


def test_a_prompt_without_an_answer_of_the_engine_has_no_blocks() -> None:
    labels = PromptLabels("m", b"", lambda: None)
    request = labels.label(GenerationRequest(id="r", prompts=(PROMPT,)))
    assert request.label is not None
    assert labels.blocks(HeldPrefix(request.label, 0, 100)) == ()
    labels.count(request, [100])
    assert not labels.blocks(HeldPrefix(request.label, 0, 99))
    assert len(labels.blocks(HeldPrefix(request.label, 0, 150))) == 1


def test_the_labels_of_a_model_that_is_gone_are_forgotten() -> None:
    held = HeldPrefixes(b"")
    labels = held.add("m", lambda: None)
    gone = ref(held.add("deleted", lambda: None))
    gc.collect()
    assert gone() is None
    assert labelled(labels) == 1


def test_the_prompts_of_a_request_share_its_blocks() -> None:
    for prompt in (PROMPT * 256, range(BLOCK_BYTES * 64)):
        request = GenerationRequest(id="r", prompts=(prompt if isinstance(prompt, str) else tuple(prompt),) * 128)
        assert [len(one) for one in blocks_of(request, "m", b"")] == [MOST_BLOCKS // 128] * 128
