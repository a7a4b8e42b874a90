"""Programs that keep the documentation true."""
