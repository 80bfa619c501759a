"""Rendering of conversations in workers: functions of jobs."""

from functools import cache

from gateway.chat.rendering import compiled
from gateway.chat.rendering import render as rendered
from gateway.chat.template_key import TemplateKey
from gateway.preparation.codec import decode, encode


def render(template: bytes, conversation: bytes) -> bytes:
    """Return the encoded `ChatPrompt` of an encoded conversation and an encoded `TemplateKey`."""
    return encode(rendered(_template(template), conversation))


def compile_template(template: bytes, _payload: bytes) -> bytes:
    """Compile a template. This process keeps it."""
    compiled(_template(template))
    return b""


@cache
def _template(encoded: bytes) -> TemplateKey:
    key: TemplateKey = decode(encoded, TemplateKey)
    return key
