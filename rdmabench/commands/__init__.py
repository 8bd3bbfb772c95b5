"""The commands, one module each: they wire rooms together and print; `cli` gathers them."""
