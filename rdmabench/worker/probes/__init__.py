"""One module per probe family."""
