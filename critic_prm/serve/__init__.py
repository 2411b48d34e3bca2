"""Serve any critic over HTTP, and as a reward function for RL trainers."""
