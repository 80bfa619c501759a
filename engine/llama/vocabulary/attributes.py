"""Attributes of tokens whose names llama.cpp looks for in a text before it splits the rest into words."""

import llama_cpp

USER_DEFINED: int = llama_cpp.LLAMA_TOKEN_ATTR_USER_DEFINED
"""Those of tokens that are always found."""
PARSED: int = llama_cpp.LLAMA_TOKEN_ATTR_CONTROL | llama_cpp.LLAMA_TOKEN_ATTR_UNKNOWN
"""Those of tokens that are found only if llama.cpp is asked to parse their names."""
