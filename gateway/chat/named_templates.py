"""Chat templates by llama.cpp's names for them."""

from collections.abc import Mapping

_TURN = "{% for message in messages %}"
_END = "{% endfor %}"
_REPLY = "{% if add_generation_prompt %}"
_END_REPLY = "{% endif %}"
_CHATML = "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
_LLAMA_3 = "<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n{{ message.content | trim }}<|eot_id|>"
_COMMAND_R = (
    "<|START_OF_TURN_TOKEN|><|"
    "{{ {'system': 'SYSTEM', 'assistant': 'CHATBOT'}.get(message.role, 'USER') }}_TOKEN|>"
    "{{ message.content | trim }}<|END_OF_TURN_TOKEN|>"
)
_ROLE_LINES = "<|{{ message.role }}|>\n{{ message.content }}"


def _template(message: str, reply: str) -> str:
    return f"{_TURN}{message}{_END}{_REPLY}{reply}{_END_REPLY}"


NAMED_TEMPLATES: Mapping[str, str] = {
    "chatml": _template(_CHATML, "<|im_start|>assistant\n"),
    "command-r": _template(_COMMAND_R, "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"),
    "llama3": _template(_LLAMA_3, "<|start_header_id|>assistant<|end_header_id|>\n\n"),
    "phi3": _template(f"{_ROLE_LINES}<|end|>\n", "<|assistant|>\n"),
    "zephyr": _template(f"{_ROLE_LINES}<|endoftext|>\n", "<|assistant|>\n"),
}
"""Sources of the templates."""
