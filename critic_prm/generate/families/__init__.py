"""Families of problems whose solutions, right or wrong at a known step, are written by a program; one family a file."""
