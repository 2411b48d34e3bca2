"""Numeric features of steps for the linear student."""
