"""Checkers that verify generated solutions with a solver, one module per family."""
