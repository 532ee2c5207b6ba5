"""Dicts as the text that the reader of configs takes."""

import json
import os


def _plain(value: object) -> object:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "item"):  # a number of NumPy
        return value.item()
    raise TypeError(f"a config holds no {type(value).__name__}")


def text_of(config: dict) -> str:
    """YAML, of which JSON is a part."""
    return json.dumps(config, indent=2, ensure_ascii=False, default=_plain)


def keys_of(data: dict) -> "list[str]":
    """Keys of a corpus as on the command line."""
    return [f"{key}={json.dumps(value, ensure_ascii=False, default=_plain)}" for key, value in data.items()]
