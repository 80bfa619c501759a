"""Settings as `serve` reads them."""

import pytest

from gateway.cli import SettingsError, read_settings
from gateway.settings import Settings


def read(*flags: object, **environment: str) -> Settings:
    return read_settings(["serve", *map(str, flags)], environment)


def complaint(*flags: object, **environment: str) -> str:
    """Return the line by which flags or variables are refused."""
    with pytest.raises(SettingsError) as caught:
        read(*flags, **environment)
    text = str(caught.value)
    assert "\n" not in text
    return text
