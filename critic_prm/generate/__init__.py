"""Trajectories made, not found: one family a file."""
