"""The demo: agent sessions that survive killed workers without repeating a refund."""
