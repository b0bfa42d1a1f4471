"""Archivers, download tools and compilers: where they write, and which of their options start a program."""

from __future__ import annotations

import re
from collections.abc import Callable

from leadrope.policy.programs.effects import (
    Grammar,
    ProgramEffect,
    Words,
    options_used,
    other_options,
    parse,
    unknown_options,
)
from leadrope.policy.shell.words import UNKNOWN, Word, known, names
from leadrope.regex import regex

_TAR = Grammar(
    "cxtruvzjJpkmhSPOaWdlo",
    "fC",
    tuple(
        names(
            """--create --extract --get --list --append --update --verbose --gzip --xz --bzip2 --zstd --no-same-owner
            --numeric-owner --dereference --preserve-permissions --no-recursion --keep-old-files --to-stdout
            --auto-compress --totals --no-same-permissions --touch --anchored --wildcards"""
        )
    ),
    tuple(names("--file --directory --exclude --strip-components --owner --group --mtime --sort --mode --format")),
)
_TAR_STARTS = (
    "--checkpoint-action",
    "--to-command",
    "--use-compress-program",
    "--info-script",
    "--new-volume-script",
    "--rsh-command",
    "--rmt-command",
)
_CURL = Grammar(
    "sSfLkviIgG46N#jnRaqpOJ",
    "XHdFuAebmwxryYzTCEoDct",
    tuple(
        names(
            """--silent --show-error --fail --fail-with-body --location --insecure --verbose --include --head
            --compressed --no-progress-meter --progress-bar --globoff --get --ipv4 --ipv6 --no-buffer --http1.1 --http2
            --tlsv1.2 --tlsv1.3 --netrc --path-as-is --raw --remote-time --tcp-nodelay --no-keepalive
            --no-sessionid --basic --digest --anyauth --remote-name --remote-header-name --remote-name-all
            --version --help --fail-early --create-dirs"""
        )
    ),
    tuple(
        names(
            """--request --header --data --data-raw --data-ascii --data-binary --data-urlencode --json --form
            --form-string --user
            --user-agent --referer --cookie --max-time --connect-timeout --retry --retry-delay --retry-max-time
            --write-out --url --proxy --cacert --cert --key --resolve --range --upload-file --url-query
            --oauth2-bearer --limit-rate --max-redirs --unix-socket --output --dump-header --cookie-jar --output-dir
            --proto --noproxy --connect-to --interface --max-filesize --speed-limit --speed-time"""
        )
    ),
)
# The value of these is a file that curl writes, or a folder that it writes to.
_CURL_FILES = names("-o --output -D --dump-header -c --cookie-jar")
_CURL_ANYWHERE = names("-O -J --remote-name --remote-header-name --remote-name-all --output-dir")
_WGET = Grammar(
    "qvcNSFrkKmpEx46b",
    "OoPtTUwQlAXDIRae",
    tuple(
        names(
            """--quiet --verbose --no-verbose --continue --timestamping --server-response --spider --recursive
            --no-check-certificate --no-clobber --no-parent --mirror --page-requisites --convert-links --no-directories
            --content-disposition --show-progress --trust-server-names --version --help"""
        )
    ),
    tuple(
        names(
            """--output-document --output-file --append-output --directory-prefix --tries --timeout --user-agent
            --header --post-data --post-file --method --body-data --user --password --wait --limit-rate --level
            --accept --reject --input-file --ca-certificate --max-redirect"""
        )
    ),
    r"-n[vcdpH]",
)
_COMPILED = regex(
    r"-[cSEgvwsM]|-MM?D?|-g[0-3]?|-O[0-3sgz]?|-std=[\w+]+|-W(?:all|extra|error|pedantic|no-[\w-]+|[\w-]+(?:=[\w-]+)?)|-pedantic"
    r"|-pthread|-static|-shared|-fPIC|-fpic|-fPIE|-pie|-m(?:64|32|arch=[\w-]+)|-f(?:no-)?[\w-]+(?:=[\w,-]+)?|-[IDUL].*"
    r"|-l[\w.+-]+|--version|--help"
)
# `-fplugin=x.so` loads code; `-Wl,-plugin,x` passes it to the linker.
_LOADED = regex(r"-f(?:plugin|use-linker-plugin|profile|dump|auxbase|diagnostics|sanitize-ignorelist|pass-plugin).*")
_JAVA_COMPILED = regex(r"-g(?::\w+)?|-nowarn|-verbose|-Xlint(?::[\w,-]+)?|-Werror|-parameters|--?version|--help")
_JAVA_VALUED = names(
    "-d -cp -classpath --class-path -sourcepath --source-path -source -target --release -encoding -s -h"
)
_RUST = Grammar(
    "OgvV",
    "oL",
    ("--verbose", "--version", "--help", "--test"),
    ("--edition", "--crate-type", "--crate-name", "--out-dir", "--emit", "--cfg", "--target", "--error-format"),
    r"-C(?:opt-level|debuginfo)=\w+|-O",
)
_UNZIP_LISTS = regex(r"-[ltvZ1qhmsxz]+")
_GUNZIPS = names("gunzip bunzip2 unxz bzip2 xz zstd unzstd gzip lz4 pigz pxz")


def file_tool(name: str, words: Words) -> ProgramEffect | None:
    """Returns the effect of a program that this module knows; None for others."""
    if name in _GUNZIPS:
        return _compressor(name, words)
    tool = _TOOLS.get(name)
    return tool(words) if tool else None


def _tar(words: Words) -> ProgramEffect:
    if words and words[0].text and re.fullmatch(r"[A-Za-z]+", words[0].text):
        letters = words[0].text
        # The old form takes the values of its letters from the following words, in order.
        values = sum(letter in "fCbTXVgNKI" for letter in letters)
        if not all(letter in _TAR.bare or letter == "f" for letter in letters) or values > 1:
            return unknown_options("tar")
        words = (Word(f"-{letters.replace('f', '')}f" if values else f"-{letters}"), *words[1:])
    parsed = parse(words, _TAR, permute=True)
    if parsed is None:
        return unknown_options("tar") if options_used(words, _TAR_STARTS, "IF") else other_options("tar", "writer")
    files = [value for option, value in parsed.options if option in ("-f", "--file")]
    if any(value is None or ":" in (value.text or ":") for value in files):
        # A colon makes it a file of another machine, which tar reaches by starting a program.
        return unknown_options("tar")
    options = {option for option, _ in parsed.options}
    if options & {"-x", "--extract", "--get"} and not options & {"-O", "--to-stdout"}:
        return ProgramEffect(role="writer", writes=(UNKNOWN,))
    if options & {"-t", "--list", "-d", "-x"}:
        return ProgramEffect()
    return ProgramEffect(
        role="writer", writes=tuple(value for value in files if value and value.text not in ("-", "/dev/null"))
    )


def _compressor(name: str, words: Words) -> ProgramEffect:
    grammar = Grammar(
        "cdfklnqrtvzT0123456789",
        "",
        ("--stdout", "--to-stdout", "--decompress", "--list", "--test", "--keep", "--force", "--version"),
    )
    parsed = parse(words, grammar, permute=True)
    if parsed is None:
        return other_options(name, "writer")
    only = names("-c -l -t --stdout --to-stdout --list --test --version")
    return (
        ProgramEffect()
        if any(option in only for option, _ in parsed.options)
        else ProgramEffect(role="writer", writes=(UNKNOWN,))
    )


def _unzip(words: Words) -> ProgramEffect:
    first = words[0].text if words else None
    if first is not None and _UNZIP_LISTS.fullmatch(first) and any(letter in first for letter in "ltvZ"):
        return ProgramEffect()
    return ProgramEffect(role="writer", writes=(UNKNOWN,))


def _xxd(words: Words) -> ProgramEffect:
    grammar = Grammar("abeEipruCd", "clgnosR", (), (), r"-(?:ps|cols|len|seek)")
    parsed = parse(words, grammar, permute=True)
    if parsed is None:
        return other_options("xxd", "writer")
    return ProgramEffect(role="writer" if len(parsed.rest) > 1 else "inert", writes=parsed.rest[1:])


def _base64(words: Words) -> ProgramEffect:
    parsed = parse(
        words, Grammar("dDi", "wb", ("--decode", "--ignore-garbage", "--version"), ("--wrap",)), permute=True
    )
    return other_options("base64", "writer") if parsed is None else ProgramEffect()


def _curl(words: Words) -> ProgramEffect:
    """Judges curl: it starts nothing, and writes where an option or its config file (`-K`) says."""
    parsed = parse(words, _CURL, permute=True)
    if parsed is None or any(
        option in ("-w", "--write-out") and (value is None or re.search(r"%output|\A@", value.text or "@"))
        for option, value in parsed.options
    ):
        return other_options("curl", "writer")
    files = [value or UNKNOWN for option, value in parsed.options if option in _CURL_FILES]
    anywhere = any(option in _CURL_ANYWHERE for option, _ in parsed.options)
    return ProgramEffect(
        role="writer", writes=(UNKNOWN,) if anywhere else tuple(w for w in files if w.text not in ("-", "/dev/null"))
    )


def _wget(words: Words) -> ProgramEffect:
    parsed = parse(words, _WGET, permute=True)
    if parsed is None or any(option in ("-e", "-I") for option, _ in parsed.options):
        return other_options("wget", "writer")
    options = dict(parsed.options)
    target = options.get("-O") or options.get("--output-document")
    if "--spider" in options or (target and target.text in ("-", "/dev/null") and not {"-o", "-a"} & set(options)):
        return ProgramEffect(role="writer")
    return ProgramEffect(role="writer", writes=(UNKNOWN,))


def _compiler(words: Words) -> ProgramEffect:
    outputs: list[Word] = []
    place = 0
    while place < len(words):
        word, text = words[place], words[place].text
        place += 1
        if text is None or word.glob:
            if word.splits or word.could_be_option or word.lead.startswith("@"):
                return other_options("a compiler")
        elif text in ("-o", "-I", "-D", "-L", "-x", "-include", "-isystem", "-MF", "-MT"):
            value = words[place] if place < len(words) else UNKNOWN
            outputs += [value] if text in ("-o", "-MF") else []
            place += 1
        elif text.startswith("-o"):
            outputs.append(known(text[2:]))
        elif text.startswith("@") or (
            text.startswith("-") and (_LOADED.fullmatch(text) or not _COMPILED.fullmatch(text))
        ):
            return other_options("a compiler")
    return ProgramEffect(role="writer", writes=tuple(outputs) or (UNKNOWN,))


def _javac(words: Words) -> ProgramEffect:
    place = 0
    while place < len(words):
        word, text = words[place], words[place].text
        place += 1
        if text in _JAVA_VALUED:
            place += 1
        elif text is None or word.glob:
            if word.splits or word.could_be_option:
                return other_options("javac")
        elif text[:1] in "-@" and not _JAVA_COMPILED.fullmatch(text):
            return other_options("javac")
    return ProgramEffect(role="writer", writes=(Word(None, tail=".class"),))


def _rustc(words: Words) -> ProgramEffect:
    parsed = parse(words, _RUST, permute=True)
    if parsed is None:
        return other_options("rustc")
    outputs = tuple(value for option, value in parsed.options if option == "-o" and value)
    return ProgramEffect(role="writer", writes=outputs or (UNKNOWN,))


def _cmake(words: Words) -> ProgramEffect:
    """Judges cmake, a runner of the project's CMakeLists; `-E` and `-P` run what the line says."""
    if any(word.text is None or word.text.startswith(("-E", "-P")) for word in words):
        return ProgramEffect(role="runner", opaque="cmake -E and -P run what their words say")
    texts = [word.text for word in words]
    plain = all(text is not None and re.fullmatch(r"[\w./:+-]+|-D[\w:]+=[\w./+-]+|-G|Ninja", text) for text in texts)
    return ProgramEffect(role="runner", unknown="" if plain else "cmake with words that are not known here")


def _ninja(words: Words) -> ProgramEffect:
    parsed = parse(words, Grammar("vn", "jkCl", ("--version", "--verbose", "--quiet")), permute=True)
    return other_options("ninja") if parsed is None else ProgramEffect(role="runner")


def _rsync(words: Words) -> ProgramEffect:
    if options_used(words, ("--rsh", "--rsync-path", "--daemon", "--config"), "eM") or any(
        ":" in (w.text or ":") for w in words
    ):
        return unknown_options("rsync")
    return ProgramEffect(role="writer", writes=(words[-1] if words else UNKNOWN,))


_TOOLS: dict[str, Callable[[Words], ProgramEffect]] = {
    "tar": _tar,
    "gtar": _tar,
    "bsdtar": _tar,
    "unzip": _unzip,
    "xxd": _xxd,
    "base64": _base64,
    "base32": _base64,
    "curl": _curl,
    "wget": _wget,
    **dict.fromkeys(names("gcc g++ cc c++ clang clang++"), _compiler),
    "javac": _javac,
    "rustc": _rustc,
    "cmake": _cmake,
    "ninja": _ninja,
    "rsync": _rsync,
}
