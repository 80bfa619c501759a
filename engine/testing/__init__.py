"""Strict fakes that stand in for llama.cpp in tests."""
