"""Analyses of a critic's scores, one per file."""
