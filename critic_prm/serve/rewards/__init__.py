"""Rewards for RL trainers from any critic."""
