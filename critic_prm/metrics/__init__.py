"""Compute metrics from gold labels and predictions."""
