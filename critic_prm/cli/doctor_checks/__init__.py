"""Checks that `critic-prm doctor` runs against a judge or a server."""
