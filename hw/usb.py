"""Finds the USB device behind a serial line, so that loader and link use the same board where two are plugged in.

Linux only: reads sysfs and /dev/serial/by-id. A line that is not on USB has no serial number.
"""

from __future__ import annotations

from pathlib import Path

TTYS = Path("/sys/class/tty")
BY_ID = Path("/dev/serial/by-id")


def serial_number(line: str) -> str | None:
    """The serial number of the USB device that provides a line, if there is one."""
    device = (TTYS / Path(line).resolve().name / "device").resolve()
    for folder in (device, *device.parents):
        if (folder / "idVendor").is_file():
            try:
                return (folder / "serial").read_text(encoding="ascii", errors="ignore").strip() or None
            except OSError:
                return None
    return None


def lasting_path(line: str) -> str:
    """A path of the line that stays the same if the system numbers its lines again."""
    wanted = Path(line).resolve()
    found = [path for path in sorted(BY_ID.glob("*")) if path.resolve() == wanted] if BY_ID.is_dir() else []
    return str(found[0]) if found else line
