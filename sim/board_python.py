"""Stands in for the Python of a PYNQ board: runs `hw/pynq_child.py` as if on the board itself.

There, pynq's active device is named by XRT (`edge`; pynq 4.0, pl_server/xrt_device.py and embedded_device.py), and
what the board is stands in `$BOARD` and in the device tree. `board_python.py ADDRESS TREE CHILD SOCKET MEMORY` connects
to a loopback board, gives its device that name, and reads the device tree from the folder TREE. Needs pynq's
environment. Limit: registers and buffers go through pynq's remote protocol, not through /dev/mem and XRT.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

XRT_NAME = "edge"


def main(arguments: list[str]) -> None:
    """Run the child with the board as the active device."""
    from pynq import Device
    from pynq.pl_server.remote_device import RemoteDevice

    address, tree, child, *rest = arguments
    device = RemoteDevice(0, address)
    device.name = XRT_NAME
    Device.active_device = device
    names = runpy.run_path(child)
    names["main"].__globals__["DEVICE_TREE"] = f"{Path(tree)}/"
    sys.argv = [child, *rest]
    names["main"]()


if __name__ == "__main__":
    main(sys.argv[1:])
