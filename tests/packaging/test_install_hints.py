"""The distribution is named `millrace-sdk`, and every hint to install it is made by one function.

The name `millrace` on the public package index belongs to another project, so no text may tell users to install that.
"""

from __future__ import annotations

import re
import tomllib

import pytest

from millrace._version import DISTRIBUTION
from millrace.host.base import install
from tests.packaging.project import ROOT
from tests.packaging.test_names import tracked

FOREIGN = re.compile(r"pip install[^\n]*?\bmillrace(?!-sdk)\b(?!-)|\bmillrace\\?\[[a-z…]")
"""`pip install millrace`, or `millrace[extra]`, in any text."""
OWN = re.compile(r"pip install (?:'\.\[|'millrace-sdk\[)")
"""A hint that is written out: allowed in documents and tests, elsewhere `install_command` makes it."""
THIS = "tests/packaging/test_install_hints.py"
TEXTS = (".py", ".md", ".sh", ".toml", ".txt", ".yml", ".yaml", ".ipynb", ".cu", ".cpp", ".sv", ".tcl")


def lines_with(pattern: re.Pattern[str], allowed: tuple[str, ...] = ()) -> list[str]:
    found = []
    for path in tracked("*"):
        name = str(path.relative_to(ROOT))
        if path.suffix in (*TEXTS, "") and name != THIS and not name.startswith(allowed):
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
                if pattern.search(line):
                    found.append(f"{name}:{number}: {line.strip()}")
    return found


def test_no_text_names_the_other_project() -> None:
    assert lines_with(FOREIGN) == []


def test_one_function_makes_the_hints() -> None:
    assert lines_with(OWN, ("docs/", "tests/", "README.md", "CHANGELOG.md", "host/base/install.py")) == []


@pytest.mark.parametrize(
    "text", ["pip install millrace", "pip install 'millrace[sim]'", r"pip install 'millrace\[sim\]'", "millrace[cuda]"]
)
def test_the_other_name_is_found(text: str) -> None:
    assert FOREIGN.search(text)


@pytest.mark.parametrize("text", ["pip install 'millrace-sdk[sim]'", "pip install .", "pip install '.[cuda]'"])
def test_our_name_is_allowed(text: str) -> None:
    assert not FOREIGN.search(text)


def test_the_project_has_the_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == DISTRIBUTION == "millrace-sdk"


def test_the_command_depends_on_where_millrace_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert install.install_command("gpu") == "pip install '.[gpu]'"
    assert install.install_command() == "pip install ."
    monkeypatch.setattr(install, "in_checkout", lambda: False)
    assert install.install_command("gpu") == "pip install 'millrace-sdk[gpu]'"
    assert install.install_command() == "pip install millrace-sdk"
