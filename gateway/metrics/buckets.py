"""Bounds of the histograms. Those with vLLM's names have vLLM's bounds, so that its dashboards fit."""

from itertools import product

FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
"""Seconds until the first token."""
PER_TOKEN = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
"""Seconds for a token."""
REQUEST = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0),
    *(60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
"""Seconds of a request or of one of its phases."""
TOKENS = tuple(float(digit * 10**power) for power, digit in product(range(6), (1, 2, 5)))
"""Tokens of a request. vLLM ends its series at the length of the context; this one is the same for every model."""
CHOICES = (1.0, 2.0, 5.0, 10.0, 20.0)
"""Choices of a request."""
RELEASE = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds from a cancel to the release of all that the request held."""
WASTED = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0)
"""Tokens that were computed after a cancel."""
