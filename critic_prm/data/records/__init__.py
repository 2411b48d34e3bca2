"""Read and write files of JSON records: JSONL, JSON, CSV and Parquet, optionally compressed."""
