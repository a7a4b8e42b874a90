"""Benchmarks of durable agent sessions beside what raw SQLite costs: `uv run python -m bench --help`."""
