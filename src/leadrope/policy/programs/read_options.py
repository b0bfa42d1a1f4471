"""Long options of programs whose short options all only read. Only complete names count.

An option for a file that lists files (`--files0-from`) is left out: those paths do not appear in the line.
"""

from __future__ import annotations

from leadrope.policy.shell.words import names

_BY_PROGRAMS = {
    "b2sum": "binary check ignore-missing length quiet status strict tag text warn zero",
    "basename": "multiple suffix zero",
    "cat": "number number-nonblank show-all show-ends show-nonprinting show-tabs squeeze-blank",
    "cksum": "algorithm check debug ignore-missing length quiet status strict tag untagged warn zero",
    "cmp": "bytes ignore-initial print-bytes quiet silent verbose",
    "column": """
        fillrows json keep-empty-lines output-separator output-width separator table table-columns
        table-columns-limit table-header-repeat table-hide table-name table-noextreme table-noheadings table-order
        table-right table-truncate table-wrap tree tree-id tree-parent
    """,
    "comm": "check-order nocheck-order output-delimiter total zero-terminated",
    "cut": "bytes characters complement delimiter fields only-delimited output-delimiter zero-terminated",
    "df": """
        all block-size exclude-type human-readable inodes local no-sync output portability print-type si sync total
        type
    """,
    "dirname": "zero",
    "du": """
        all apparent-size block-size bytes count-links dereference dereference-args exclude exclude-from
        human-readable inodes max-depth no-dereference null one-file-system separate-dirs si summarize threshold
        time time-style total
    """,
    "egrep fgrep grep": """
        after-context basic-regexp before-context binary binary-files byte-offset color colour context count
        dereference-recursive devices directories exclude exclude-dir exclude-from extended-regexp file
        files-with-matches files-without-match fixed-strings group-separator ignore-case include initial-tab
        invert-match label line-buffered line-number line-regexp max-count no-filename no-group-separator
        no-ignore-case no-messages null null-data only-matching perl-regexp quiet recursive regexp silent text
        with-filename word-regexp
    """,
    "expand": "initial tabs",
    "fold": "bytes spaces width",
    "free": """
        bytes committed count gibi giga human kibi kilo lohi mebi mega pebi peta seconds si tebi tera total wide
    """,
    "head": "bytes lines quiet silent verbose zero-terminated",
    "hexdump": """
        canonical color format format-file length no-squeezing one-byte-char one-byte-octal skip two-bytes-decimal
        two-bytes-hex two-bytes-octal
    """,
    "id": "context group groups name real user zero",
    "ls": """
        all almost-all author block-size classify color context dereference dereference-command-line
        dereference-command-line-symlink-to-dir directory dired escape file-type format full-time
        group-directories-first hide hide-control-chars human-readable hyperlink ignore ignore-backups
        indicator-style inode kibibytes literal no-group numeric-uid-gid quote-name quoting-style recursive reverse
        show-control-chars si size sort tabsize time time-style width zero
    """,
    "lscpu": "all bytes caches extended hex json offline online output-all parse physical sysroot",
    "md5sum sha1sum sha224sum sha256sum sha384sum sha512sum": """
        binary check ignore-missing quiet status strict tag text warn zero
    """,
    "nl": """
        body-numbering footer-numbering header-numbering join-blank-lines line-increment no-renumber number-format
        number-separator number-width section-delimiter starting-line-number
    """,
    "nproc": "all ignore",
    "od": "address-radix endian format output-duplicates read-bytes skip-bytes strings traditional width",
    "paste": "delimiters serial zero-terminated",
    "readlink": """
        canonicalize canonicalize-existing canonicalize-missing no-newline quiet silent verbose zero
    """,
    "realpath": """
        canonicalize-existing canonicalize-missing logical no-symlinks physical quiet relative-base relative-to
        strip zero
    """,
    "seq": "equal-width format separator",
    "stat": "cached dereference file-system format printf terse",
    "strings": """
        all bytes data encoding include-all-whitespace output-separator print-file-name radix target unicode
    """,
    "tac": "before regex separator",
    "tr": "complement delete squeeze-repeats truncate-set1",
    "uname": """
        all hardware-platform kernel-name kernel-release kernel-version machine nodename operating-system processor
    """,
    "unexpand": "all first-only tabs",
    "uptime": "pretty since",
    "wc": "bytes chars lines max-line-length words",
    "which": "all",
}
LONG_OPTIONS: dict[str, frozenset[str]] = {
    program: frozenset(f"--{option}" for option in names(options))
    for programs, options in _BY_PROGRAMS.items()
    for program in programs.split()
}
