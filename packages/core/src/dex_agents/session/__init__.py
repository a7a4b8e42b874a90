"""The pure session: values, Steps and RPCs of the durable agent Flow, without I/O, clock or randomness."""
