"""Sessions whose workers die at every point, and what these tests share with the field scenarios."""
