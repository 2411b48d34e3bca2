"""One reply shape a file, each with `read(text, expect, logprobs) -> Reading`."""
