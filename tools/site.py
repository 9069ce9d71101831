"""`make docs`: builds the site of docs/ in build/site; warnings are errors.

1. Copies `docs/` to `build/docs/pages`, and beside it what other folders have: the examples, the changelog, the notes
   on contributing, security and benchmarks. Links between these files work in the repository and in the site: each is
   changed to the page of its file, or, for a source file, to plain text.
2. Adds the generated pages (`tools/reference_pages.py`).
3. Runs zensical in strict mode: a broken link or anchor, or an unknown name in the API reference, ends the build.
4. Opens pages in Chromium (`tools/browser.py`) if there is one: `--no-browser` leaves it out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools.reference_pages import generated_pages

ROOT = Path(__file__).resolve().parents[1]
STAGE = ROOT / "build" / "docs"
SITE = ROOT / "build" / "site"
ELSEWHERE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "LICENSE": "licence.md",
    "benchmarks/README.md": "internals/benchmarks.md",
    "examples/README.md": "examples.md",
}
"""Files outside of docs/, and their pages."""
_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)?(#[^)\s]*)?(\))")


def page_of(file: str) -> str:
    """The page of a file of the repository; a KeyError if it has none."""
    if file.startswith("docs/"):
        return file.removeprefix("docs/")
    if file.startswith("examples/") and file != "examples/README.md":
        return f"examples.md#{anchor_of(file)}"
    return ELSEWHERE[file]


def anchor_of(file: str) -> str:
    """The anchor of an example on the page of examples."""
    return Path(file).name.replace(".", "").lower()


def relinked(text: str, file: str, page: str) -> str:
    """The text of a file as that page: relative links go from page to page."""
    folder = (ROOT / file).parent

    def changed(match: re.Match[str]) -> str:
        before, target, fragment, after = match.groups()
        if not target or "://" in target or target.startswith("mailto:"):
            return match.group()
        found = (folder / target).resolve()
        inside = found.relative_to(ROOT).as_posix() if found.is_relative_to(ROOT) else target
        if not found.exists() and not (STAGE / "pages" / inside.removeprefix("docs/")).exists():
            raise SystemExit(f"docs: {file} links to {target}, which does not exist")
        try:
            to, _, own = page_of(inside).partition("#")
        except KeyError:  # a source file: the site has its name, the repository has it as a link
            return re.sub(r"^\[|\]\($", "", before)
        fragment = fragment or (f"#{own}" if own else "")
        return f"{before}{os.path.relpath(to, Path(page).parent)}{fragment}{after}"

    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _LINK.sub(changed, part) for part in parts)


def examples_page() -> str:
    """The list of examples, and the source of each."""
    parts = [relinked((ROOT / "examples/README.md").read_text(), "examples/README.md", "examples.md")]
    for path in sorted((ROOT / "examples").iterdir()):
        if path.suffix == ".py":
            parts.append(f"## {path.name} {{ #{anchor_of(path.name)} }}\n\n```python\n{path.read_text()}```\n")
        elif path.suffix == ".ipynb":
            parts.append(f"## {path.name} {{ #{anchor_of(path.name)} }}\n\n{notebook_text(path)}")
    return "\n\n".join(parts)


def notebook_text(path: Path) -> str:
    """A notebook's cells as Markdown; its headings become bold lines."""
    cells = json.loads(path.read_text())["cells"]
    shown = []
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            shown.append(re.sub(r"^#+ (.*)$", r"**\1**", source, flags=re.MULTILINE))
        else:
            shown.append(f"```python\n{source}\n```")
    return "\n\n".join(shown)


def licence_page(text: str) -> str:
    """The licence, as it is."""
    return f"# Licence\n\n```text\n{text}```\n"


def with_dark_scheme(picture: str) -> str:
    """A plot that inverts its lightness in a dark scheme; pictures that have a scheme of their own stay."""
    if "prefers-color-scheme" in picture:
        return picture
    style = "<style>@media (prefers-color-scheme:dark){:root{filter:invert(.88) hue-rotate(180deg)}}</style>"
    return re.sub(r"(<svg\b[^>]*>)", rf"\1{style}", picture, count=1)


def stage() -> None:
    """Write all pages to build/docs."""
    shutil.rmtree(STAGE, ignore_errors=True)
    pages = STAGE / "pages"
    shutil.copytree(ROOT / "docs", pages, ignore=shutil.ignore_patterns("zensical.toml"))
    shutil.copy(ROOT / "docs" / "zensical.toml", STAGE / "zensical.toml")
    for name, text in generated_pages().items():
        (pages / name).parent.mkdir(parents=True, exist_ok=True)
        (pages / name).write_text(text)
    for path in sorted((ROOT / "docs").rglob("*.md")):
        name = path.relative_to(ROOT / "docs").as_posix()
        (pages / name).write_text(relinked(path.read_text(), f"docs/{name}", name))
    for file, page in ELSEWHERE.items():
        if file not in ("README.md", "examples/README.md"):
            (pages / page).parent.mkdir(parents=True, exist_ok=True)
            text = (ROOT / file).read_text()
            (pages / page).write_text(licence_page(text) if file == "LICENSE" else relinked(text, file, page))
    (pages / "examples.md").write_text(examples_page())
    for path in (pages / "images").glob("*.svg"):
        path.write_text(with_dark_scheme(path.read_text()))


def build() -> None:
    """Run zensical; any warning ends the build."""
    shutil.rmtree(SITE, ignore_errors=True)
    command = [Path(sys.executable).with_name("zensical"), "build", "--clean", "--strict"]
    found = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    done = subprocess.run(
        [str(part) for part in command], cwd=STAGE, env=found, capture_output=True, text=True, check=False
    )
    if done.returncode or "warning" in (done.stdout + done.stderr).lower().replace("resourcewarning", ""):
        raise SystemExit(f"docs: the build failed\n{done.stdout}\n{done.stderr}")
    shutil.move(STAGE / "site", SITE)
    sys.stdout.write(f"docs: {sum(1 for _ in SITE.rglob('*.html'))} pages in {SITE.relative_to(ROOT)}\n")


def main() -> None:
    """Stage, build and look."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--no-browser", action="store_true", help="do not open the pages in Chromium")
    chosen = parser.parse_args()
    stage()
    build()
    if not chosen.no_browser:
        from tools.browser import look_at

        look_at(SITE, ROOT / "build" / "screenshots")


if __name__ == "__main__":
    main()
