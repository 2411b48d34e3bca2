"""Read and write files of JSON records: JSONL, JSON, CSV, Parquet, compressed or not."""
