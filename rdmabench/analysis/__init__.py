"""What the collector's tables mean: statistics, attainable rates, comparison."""
