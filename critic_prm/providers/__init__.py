"""One provider a file, each with `connect(model, base_url) -> Provider`."""
