"""Room 3, on the control host and offline: keeps what was measured and tabulates it."""
