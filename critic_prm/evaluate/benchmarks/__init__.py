"""Benchmarks, one per file."""
