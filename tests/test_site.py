"""The documentation site: every page is reachable, every link leads somewhere; `make docs` builds it strictly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from critic_prm.cli import build

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\]\(([\w.-]+\.md)(?:#([\w-]*))?\)")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The text of every page, by name."""
    spec = spec_from_file_location("site_of_docs", ROOT / "docs" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    site = module_from_spec(spec)
    spec.loader.exec_module(site)
    folder = tmp_path_factory.mktemp("site") / "pages"
    made: Mapping[str, str] = site.write(folder)
    assert {path.name: path.read_text("utf-8") for path in folder.iterdir()} == dict(made)
    return made


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as Python-Markdown makes them."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = (re.sub(r"[^\w\s-]", "", line).strip().lower() for line in re.findall(r"^#+ (.+)$", prose, re.MULTILINE))
    return {re.sub(r"[\s-]+", "-", heading) for heading in headings}


def test_every_link_leads_to_a_page_and_a_heading(pages: Mapping[str, str]) -> None:
    links = [(name, *link) for name, text in pages.items() for link in LINK.findall(text)]
    assert len(links) > 50
    assert [link for link in links if link[1] not in pages] == []
    assert [link for link in links if link[2] and link[2] not in anchors(pages[link[1]])] == []


def test_every_page_is_in_the_navigation_or_linked(pages: Mapping[str, str]) -> None:
    navigation = re.findall(r"[\w-]+\.md", (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2])
    assert set(navigation) <= pages.keys()
    linked = {target for text in pages.values() for target, _ in LINK.findall(text)}
    assert pages.keys() - linked - set(navigation) == set()
    manual = {path.name for path in (ROOT / "docs").glob("*.md")} - {"start.md"}
    assert manual <= set(navigation), "add the page to mkdocs.yml"


def test_the_reference_has_every_command_with_every_option(pages: Mapping[str, str]) -> None:
    for name, command in build().commands.items():
        text = pages[f"cli-{name}.md"]
        for child in getattr(command, "commands", {name: command}).values():
            for option in child.params:
                if option.param_type_name == "option" and not option.hidden:
                    assert f"`{option.opts[-1]}`" in text, (name, option.opts)
