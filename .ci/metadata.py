"""What an index of packages shows of this one: the README with links that lead somewhere, and where the source is.

hatchling asks when it builds. `REPO_URL` is where the source is read, and `REPO_REF` the branch or tag. Without the
former a link within the repository becomes its text, and a picture of the repository is left out.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).resolve().parent.parent

_FENCE = re.compile(r"(^```[^\n`]*\n.*?^```$)", re.MULTILINE | re.DOTALL)
_PICTURE = re.compile(r"!\[(?P<text>[^\]]*)\]\((?P<path>[^):]+)\)")
_LINK = re.compile(r"\[(?P<text>(?:!\[[^\]]*\]\([^)]*\)|[^\[\]])*)\]\((?P<path>[^):#]+)(?P<anchor>#[^)]+)?\)")


class Shown(MetadataHookInterface):  # type: ignore[misc, unused-ignore]
    """The fields that `pyproject.toml` calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the long description and the addresses."""
        url, ref = os.environ.get("REPO_URL", "").rstrip("/"), os.environ.get("REPO_REF", "main")
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        specification = "https://download.eclipse.org/microprofile/microprofile-fault-tolerance-4.1"
        metadata["readme"] = {"content-type": "text/markdown", "text": outward(readme, url, ref)}
        metadata["urls"] = {"Specification": f"{specification}/microprofile-fault-tolerance-spec-4.1.html"}
        if url:
            places = {"Source": "tree", "Documentation": "tree", "Changelog": "blob"}
            paths = {"Source": "", "Documentation": "/docs", "Changelog": "/docs/changelog.md"}
            metadata["urls"] |= {name: f"{url}/{kind}/{ref}{paths[name]}" for name, kind in places.items()}
            metadata["urls"]["Issues"] = f"{url}/issues"


def outward(text: str, url: str, ref: str) -> str:
    """Return the Markdown *text* with links and pictures that do not depend on where it is read."""

    def picture(found: re.Match[str]) -> str:
        return f"![{found['text']}]({url}/raw/{ref}/{found['path']})" if url else ""

    def link(found: re.Match[str]) -> str:
        kind = "tree" if (ROOT / found["path"]).is_dir() else "blob"
        where = f"{url}/{kind}/{ref}/{found['path']}{found['anchor'] or ''}"
        return f"[{found['text']}]({where})" if url and found["text"] else found["text"]

    parts = _FENCE.split(text)
    parts[::2] = [_LINK.sub(link, _PICTURE.sub(picture, part)) for part in parts[::2]]
    return re.sub(r"\n{3,}", "\n\n", "".join(parts))
