"""Other tools' output as runs: perftest, nccl-tests, OSU micro-benchmarks.

A parser turns one text into `model.Imported` rows or refuses it with one `InputError` that names
file, line and what was expected; `bring_in` writes the rows of all files into a run's journal.
"""
