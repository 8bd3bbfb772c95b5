"""rdmabench: is this RDMA fabric what was paid for, and if not, which part of it is not?"""

__version__ = "0.1.0"
