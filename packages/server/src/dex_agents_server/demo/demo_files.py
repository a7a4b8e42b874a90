"""Where one run of the demo keeps its files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dex_agents_server.demo.demo_error import KeepFolderError

__all__ = ["DemoFiles", "demo_files"]


@dataclass(frozen=True, slots=True)
class DemoFiles:
    """The files of one run, all in one folder."""

    folder: Path

    @property
    def sessions(self) -> Path:
        """The embedded engine's database."""
        return self.folder / "sessions.db"

    @property
    def orders(self) -> Path:
        """The shop's own database."""
        return self.folder / "orders.db"

    def worker_log(self, number: int) -> Path:
        """What worker `number` writes to its standard error."""
        return self.folder / f"worker-{number}.log"


@contextmanager
def demo_files(keep: Path | None) -> Iterator[DemoFiles]:
    """A fresh folder: a temporary one that is removed afterwards, or `keep`, which stays.

    Args:
        keep: A folder that is empty or does not exist yet.

    Raises:
        KeepFolderError: `keep` holds something already, or cannot be made.
    """
    if keep is not None:
        try:
            keep.mkdir(parents=True, exist_ok=True)
            is_empty = next(keep.iterdir(), None) is None
        except OSError as error:
            raise KeepFolderError(f"cannot keep the databases in {keep}: {error}") from error
        if not is_empty:
            raise KeepFolderError(f"{keep} is not empty; name a folder that is, or a new one")
        yield DemoFiles(keep.resolve())
        return
    folder = Path(tempfile.mkdtemp(prefix="dex-agents-demo-"))
    try:
        yield DemoFiles(folder)
    finally:
        shutil.rmtree(folder)
