"""The timed loops, in plain C, and their ctypes face."""
