"""Many requests through one narrow door: gate, retries, budget, writer, progress."""
