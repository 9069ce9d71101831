"""Interrupts in calls on a board: the engine's thread goes on, and the call can be made again."""

from __future__ import annotations

import millrace as mr
from tests.boards.test_fault_points import index_of
from tests.signals.interrupts import Interrupt, TimedInterrupts, dropped_interrupts, raise_at_number

INTERRUPTS, POINTS = 40, 12
WANTED = [56 * i for i in range(8)]


def test_an_interrupt_at_random_moments(card: str) -> None:
    device = mr.device(card)
    timer = TimedInterrupts(3, 4e-3)
    with timer.installed():
        while timer.count < INTERRUPTS:
            assert timer.run(lambda: index_of(device), lambda: None) == WANTED
    assert index_of(device) == WANTED
    device.close()


def test_an_interrupt_while_a_board_is_opened_and_closed(card: str) -> None:
    def use() -> list[int]:
        with_device = mr.device(card)
        try:
            return index_of(with_device)
        finally:
            with_device.close()

    interrupted = 0
    with dropped_interrupts(Interrupt):
        for number in range(0, 20 * POINTS, 20):
            try:
                assert raise_at_number(number, use) == WANTED
            except Interrupt:
                interrupted += 1
            assert use() == WANTED
    assert interrupted > POINTS / 3
