"""Build training sets from label files: filter, balance, split, mix, decontaminate and export."""
