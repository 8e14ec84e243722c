"""What a person is told when the broker ends a connection."""

from __future__ import annotations

from vedette.mqtt.loss import disconnected


def test_two_boxes_with_one_client_id_are_told_so() -> None:
    """Each throws the other out, again and again; an operator who does it has another cure."""
    taken_over = disconnected(0x8E, "Session taken over")
    assert taken_over.kind == "kicked"
    assert "give each box its own `device.id`" in taken_over.reason()
    by_hand = disconnected(0x98, "Administrative action")
    assert (by_hand.kind, "device.id" in by_hand.reason()) == ("kicked", False)
