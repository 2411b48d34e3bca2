"""Measure critics on benchmarks and analyze their scores."""
