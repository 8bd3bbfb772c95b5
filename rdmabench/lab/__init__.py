"""The soft-RoCE lab: QEMU nodes on this machine, each with a real rxe device."""
