"""Templates by name: the prompts that llama.cpp makes for the same names, and their way through the settings."""

from pathlib import Path

import pytest

from gateway.chat.named_templates import NAMED_TEMPLATES
from gateway.chat.template import ChatTemplate
from gateway.chat.template_file import read_template
from gateway.settings.values import readable_template

MESSAGES = [
    {"role": "system", "content": "You are a test."},
    {"role": "user", "content": "Hi there"},
    {"role": "assistant", "content": "Yes"},
]
PROMPTS = {
    "chatml": "<|im_start|>system\nYou are a test.<|im_end|>\n<|im_start|>user\nHi there<|im_end|>\n"
    "<|im_start|>assistant\nYes<|im_end|>\n<|im_start|>assistant\n",
    "command-r": "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>You are a test.<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|>"
    "<|USER_TOKEN|>Hi there<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>Yes<|END_OF_TURN_TOKEN|>"
    "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
    "llama3": "<|start_header_id|>system<|end_header_id|>\n\nYou are a test.<|eot_id|><|start_header_id|>user"
    "<|end_header_id|>\n\nHi there<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nYes<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "phi3": "<|system|>\nYou are a test.<|end|>\n<|user|>\nHi there<|end|>\n<|assistant|>\nYes<|end|>\n<|assistant|>\n",
    "zephyr": "<|system|>\nYou are a test.<|endoftext|>\n<|user|>\nHi there<|endoftext|>\n<|assistant|>\n"
    "Yes<|endoftext|>\n<|assistant|>\n",
}


@pytest.mark.parametrize("name", NAMED_TEMPLATES)
def test_a_name_makes_the_prompt_of_llama_cpp(name: str) -> None:
    template = ChatTemplate(readable_template(name))
    assert template.render({"messages": MESSAGES, "add_generation_prompt": True}) == PROMPTS[name]


def test_a_template_may_be_given_as_a_text() -> None:
    assert read_template("{{ messages[0].content }}") == "{{ messages[0].content }}"
    with pytest.raises(ValueError, match="this is no Jinja template"):
        read_template("{% if %}")


def test_another_name_is_that_of_a_file() -> None:
    names = "chatml, command-r, llama3, phi3, zephyr"
    with pytest.raises(ValueError, match=f"^there is no such file; names of templates are {names}$"):
        read_template("llama7")


def test_the_byte_order_mark_of_a_file_is_not_in_its_template(tmp_path: Path) -> None:
    file = tmp_path / "windows.jinja"
    file.write_text("{{ messages }}", encoding="utf-8-sig")
    assert read_template(str(file)) == "{{ messages }}"
