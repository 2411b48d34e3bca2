"""Annotate solutions by hand in a local web page, and compare and merge the answers of several people."""
