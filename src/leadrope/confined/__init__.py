"""File access below a folder that an agent can write: only this code opens, lists, copies, moves or deletes there.

An agent can put anything into such a folder at any moment: a link to a file of the user, a pipe that blocks whoever
opens it, a folder that becomes a link between a check and its use. So everything here starts from the descriptor of a
trusted folder, walks down one component at a time without following links, checks again what it has opened, reads no
more than the given limit, and never blocks.

    with Folder.open(session_dir) as folder:
        text = folder.read_text("config/settings.json", most=64 * 1024)

What this package refuses raises `errors.UnsafeFile`; what the system refuses (missing, no permission, disk full) raises
the usual OSError.
"""

from leadrope.confined.folder import Folder
from leadrope.confined.named import appending_named, open_named, read_named, writing_named
from leadrope.confined.real import real_path
from leadrope.confined.scans import ScannedName, below, is_text, names
from leadrope.confined.trees import Copied
from leadrope.confined.values import Dropped, FolderEntry, Kind

__all__ = [
    "Copied",
    "Dropped",
    "Folder",
    "FolderEntry",
    "Kind",
    "ScannedName",
    "appending_named",
    "below",
    "is_text",
    "names",
    "open_named",
    "read_named",
    "real_path",
    "writing_named",
]
