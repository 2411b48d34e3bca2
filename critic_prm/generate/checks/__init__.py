"""Checkers that read the words of generated solutions and find the first error with a solver; one family a file."""
