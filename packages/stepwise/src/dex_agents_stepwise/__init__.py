"""The built-in agent loop for durable agent sessions."""
