"""Checks of a judge or server for `critic-prm doctor`."""
