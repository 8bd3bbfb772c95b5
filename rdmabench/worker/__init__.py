"""Room 2, on the node: measures. Standard library and the node's pyverbs, Python 3.9 or later."""
