"""What a cause is called, and what the run could not tell about it."""

from __future__ import annotations

import numpy as np

from rdmabench.analysis.candidates import LINK, NODE, ONE_WAY, RAIL, RECEIVING, SENDING
from rdmabench.analysis.causes import Cause
from rdmabench.analysis.pairs import PairMatrix


def named(matrix: PairMatrix, cause: Cause) -> tuple[str, str, str]:
    """Kind, subject and remark, as a person says them."""
    ends, key = matrix.ends, cause.key[0]
    name, direction = cause.kind.name, cause.kind.direction
    if name == RAIL:
        return RAIL, f"rail {key}", ""
    if name == LINK:
        label = matrix.pair_label(int(cause.pairs[0]))
        if direction == ONE_WAY:
            sender, receiver = (
                ends.labels[int(side[cause.pairs[0]])] for side in (matrix.sender, matrix.receiver)
            )
            return "direction", f"{sender} to {receiver}", "the other way is as fast as the fleet"
        one_way = "" if len(cause.pairs) > 1 or not matrix.has_ways else "measured one way only"
        return LINK, label, one_way
    subject = ends.hosts[key] if name == NODE else ends.labels[key]
    remark = _directions(matrix, cause)
    if direction and not remark:
        words = {SENDING: "sending", RECEIVING: "receiving"}
        if not matrix.has_ways:
            words = {SENDING: "as initiator", RECEIVING: "as responder"}
        return "direction", f"{subject} {words[direction]}", "the other direction is as the fleet"
    if name == NODE and ends.has_one_nic_each:
        remark = "; ".join(filter(None, (remark, "one NIC a node: the two are not told apart")))
    return name, subject, remark


def _directions(matrix: PairMatrix, cause: Cause) -> str:
    """A remark where the subject was measured in one direction only."""
    if cause.kind.name == LINK:
        return ""
    owner = matrix.ends.host if cause.kind.name == NODE else np.arange(len(matrix.ends.labels))
    sends = int((owner[matrix.sender] == cause.key[0]).sum())
    receives = int((owner[matrix.receiver] == cause.key[0]).sum())
    if sends and receives:
        return ""
    return f"measured only {SENDING if sends else RECEIVING}"
