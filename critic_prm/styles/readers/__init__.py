"""Readers, one module per reply shape, each with a function `read(text, expect, logprobs) -> Reading`."""
