"""Durable agent sessions for every Python agent framework."""
