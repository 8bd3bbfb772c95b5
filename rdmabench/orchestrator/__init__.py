"""Room 1, on the control host: talks to the nodes."""
