"""What a person or a pipeline reads."""
