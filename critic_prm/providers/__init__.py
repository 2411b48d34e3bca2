"""Model APIs, one provider per file: a request in, a raw reply out."""
