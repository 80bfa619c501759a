"""Strict fakes that replace llama.cpp in tests."""
