"""Metrics over gold labels and predictions."""
