"""Secrets and ids of keys."""

import base64

from gateway.keys.secret import hash_of, new_id, new_secret


def test_a_secret_has_256_random_bits_in_characters_of_a_url() -> None:
    secrets = {new_secret() for _ in range(100)}
    assert len(secrets) == 100
    for secret in secrets:
        assert secret.startswith("sk-")
        assert len(base64.urlsafe_b64decode(secret.removeprefix("sk-") + "=")) == 32


def test_ids_are_random_and_differ_from_secrets() -> None:
    ids = {new_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(key_id.startswith("key_") for key_id in ids)


def test_a_hash_is_sha_256() -> None:
    assert hash_of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
