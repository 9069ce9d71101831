"""The command that installs Millrace with an extra. Every hint in an error, a check or a report is made here.

In a checkout the command installs the checkout itself; otherwise the distribution by its name (`_version.py`).
"""

from __future__ import annotations

from pathlib import Path

from millrace import _version


def in_checkout() -> bool:
    """Whether millrace runs from its source tree."""
    return (Path(_version.__file__).parents[2] / "pyproject.toml").is_file()


def install_command(extra: str = "") -> str:
    """The command that installs millrace, with an extra (see pyproject.toml) if one is given.

    >>> install_command("sim")  # in a checkout
    "pip install '.[sim]'"
    """
    what = "." if in_checkout() else _version.DISTRIBUTION
    return f"pip install '{what}[{extra}]'" if extra else f"pip install {what}"
