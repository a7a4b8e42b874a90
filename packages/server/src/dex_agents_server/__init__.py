"""Command line and server for durable agent sessions."""
