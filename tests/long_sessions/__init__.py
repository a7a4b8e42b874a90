"""Long sessions: what they store, read and write stays flat."""
