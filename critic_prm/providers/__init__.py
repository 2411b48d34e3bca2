"""Clients for model APIs, one provider per file."""
