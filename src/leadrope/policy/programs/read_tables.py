"""Allow lists of options, by program: with these a program reads and prints, and does nothing else.

An unlisted option may be new, write a file, or start a program. git accepts abbreviations of long options, and so do
GNU programs; only complete names count here.
"""

from __future__ import annotations

import re

from leadrope.policy.programs.effects import Grammar
from leadrope.policy.shell.words import names

# No option of these writes a file, starts a program or changes anything, on any system. Their long options are in
# read_options.
ANY_WORDS = names(
    """ls cat head wc cut tr nl paste comm cmp fold rev expand unexpand stat df du basename dirname realpath
    readlink od hexdump md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum grep egrep fgrep uname
    whoami id nproc uptime free groups arch seq which strings zipinfo getconf lscpu tac column"""
)


def _grammar(
    bare: str = "", valued: str = "", long_bare: str = "", long_valued: str = "", pattern: str = ""
) -> Grammar:
    return Grammar(bare, valued, tuple(sorted(names(long_bare))), tuple(sorted(names(long_valued))), pattern)


GRAMMARS: dict[str, Grammar] = {
    "tail": _grammar(
        "fFqvzr",
        "nc",
        "--quiet --verbose --zero-terminated --follow --retry",
        "--lines --bytes --sleep-interval",
        r"[-+]\d+",
    ),
    "sort": _grammar(
        "bdfgiMhnRrVcCmsuz",
        "ktS",
        """--ignore-leading-blanks --dictionary-order --ignore-case --general-numeric-sort --human-numeric-sort
        --numeric-sort --random-sort --reverse --version-sort --check --merge --stable --unique --zero-terminated""",
        "--key --field-separator --buffer-size --sort --parallel",
    ),
    "uniq": _grammar(
        "cdDiuz",
        "fsw",
        "--count --repeated --all-repeated --ignore-case --unique --zero-terminated",
        "--skip-fields --skip-chars --check-chars --group",
    ),
    "diff": _grammar(
        "abBcdeEiNpqrstuwyZT",
        "CUWxIF",
        """--brief --report-identical-files --side-by-side --unified --context --recursive --ignore-case
        --ignore-all-space --ignore-space-change --ignore-blank-lines --ignore-trailing-space --text --new-file
        --suppress-common-lines --minimal --strip-trailing-cr --color --expand-tabs --show-c-function --normal""",
        "--unified --context --width --exclude --color --ignore-matching-lines --label",
    ),
    "rg": _grammar(
        "abcFHhiIlLnNopPqsSuUvwx0",
        "ABCefgjmMrtTdE",
        """--files --files-with-matches --files-without-match --count --count-matches --hidden --no-ignore
        --no-ignore-vcs --ignore-case --smart-case --case-sensitive --fixed-strings --line-number --no-line-number
        --no-heading --heading --multiline --multiline-dotall --only-matching --pcre2 --pretty --stats --trim --vimgrep
        --word-regexp --line-regexp --invert-match --json --text --quiet --follow --null --type-list --with-filename
        --no-filename --no-messages --unrestricted --byte-offset --column --passthru --no-config
        --glob-case-insensitive --no-ignore-parent --one-file-system --crlf --debug --files-with-matches
        --sort-files --version --help""",
        """--after-context --before-context --context --regexp --file --glob
        --iglob --threads --max-count --max-columns --replace --type --type-not --max-depth --sort --sortr --color
        --colors --encoding --max-filesize --ignore-file --path-separator --context-separator --engine""",
    ),
    "ag": _grammar(
        "acDfFHhiLlnorsSuUvwz0",
        "ABCGmp",
        """--count --files-with-matches --files-without-matches --ignore-case --smart-case --case-sensitive --literal
        --nonumbers --numbers --hidden --all-types --all-text --nocolor --color --noheading --heading --nogroup
        --group --only-matching --invert-match --word-regexp --stats --column --nobreak --silent""",
        """--after --before --context --depth --file-search-regex --ignore --ignore-dir --max-count
        --path-to-ignore""",
    ),
    "ack": _grammar(
        "acfFhHiIlLnoqrRsvwx01",
        "ABCgm",
        """--count --files-with-matches --files-without-matches --ignore-case --smart-case --literal --nocolor --color
        --noheading --heading --nogroup --group --invert-match --word-regexp --column --nobreak""",
        "--after-context --before-context --context --max-count --type --ignore-dir --ignore-file",
    ),
    "fd": _grammar(
        "0HIuFglLpsia1q",
        "dtEecSjoCm",
        """--hidden --no-ignore --no-ignore-vcs --unrestricted --case-sensitive --ignore-case --glob --fixed-strings
        --absolute-path --list-details --follow --full-path --print0 --prune --quiet --show-errors
        --one-file-system""",
        """--max-depth --min-depth --exact-depth --type --extension --exclude --size
        --changed-within --changed-before --owner --color --threads --max-results --base-directory --and""",
    ),
    "tree": _grammar(
        "adfilxpsuhgDtcrvUnCASNqFJX",
        "LPI",
        """--dirsfirst --noreport --prune --gitignore --du --si --inodes --device --ignore-case --matchdirs
        --filesfirst""",
        "--filelimit --charset --timefmt --sort",
    ),
    "file": _grammar(
        "bEhikLNnprs0I",
        "PF",
        """--brief --mime --mime-type --mime-encoding --dereference --no-dereference --keep-going --no-pad --print0
        --raw""",
        "--separator",
    ),
    "date": _grammar(
        "uR", "dr", "--utc --universal --rfc-email --iso-8601", "--date --iso-8601 --rfc-3339 --reference", r"-I\w*"
    ),
    "jq": _grammar(
        "rcnseSaCMjR",
        "",
        """--raw-output --compact-output --null-input --slurp --exit-status --sort-keys --ascii-output --color-output
        --monochrome-output --join-output --raw-input --tab --stream --seq""",
        "--indent --arg --argjson",
    ),
    "yq": _grammar(
        "rceCMjPnN",
        "op",
        "--raw-output --compact-output --prettyPrint --colors --no-colors --null-input --exit-status",
        "--output-format --input-format --indent",
    ),
    "xxd": _grammar("abeEipru", "clgso", "", "", r"-(?:ps|cols|len|seek)"),
    "base64": _grammar("dDi", "wb", "--decode --ignore-garbage", "--wrap"),
    "base32": _grammar("di", "w", "--decode --ignore-garbage", "--wrap"),
    "hostname": _grammar("fiIsdA", "", "--fqdn --ip-address --all-ip-addresses --short --domain"),
    "lsof": _grammar("PntaUlR", "ipucsd", "", "", r"-i\S*|-ti\S*"),
    "ss": _grammar(
        "tulnpaemorsi460xHwS", "", "--tcp --udp --listening --numeric --processes --all --summary --extended"
    ),
    "tput": _grammar("", "T"),
    "more": _grammar("dlfpcsu"),
    "gzip": _grammar("lvt", "", "--list --verbose --test"),
    "zcat": _grammar("f"),
    "unzip": _grammar("lvtqZ1"),
    "tar": _grammar(
        "tvzjJ", "fC", "--list --verbose --gzip --xz --bzip2 --zstd --wildcards", "--file --directory --exclude"
    ),
    "find": _grammar(),
}

FIND_TESTS = names(
    """-name -iname -path -ipath -wholename -iwholename -regex -iregex -type -xtype -size -mtime -mmin -newer -atime
    -amin -ctime -cmin -anewer -cnewer -empty -maxdepth -mindepth -depth -prune -print -print0 -printf -ls -not
    -and -or -a -o -user -group -uid -gid -nouser -nogroup -perm -links -inum -samefile -readable -writable
    -executable -true -false -daystart -follow -mount -xdev -quit -regextype -noleaf -L -H -P -lname -ilname -used
    -fstype ( ) ! ,"""
)
FIND_ACTIONS = ("-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprint0", "-fprintf", "-fls")

_DIFF_LONG = """--stat --shortstat --numstat --summary --name-only --name-status --cached --staged --raw --patch
    --no-patch --patch-with-stat --word-diff --color-words --color --no-color --no-ext-diff --no-textconv
    --exit-code --quiet --ignore-all-space --ignore-space-change --ignore-blank-lines --ignore-space-at-eol
    --ignore-cr-at-eol --function-context --minimal --patience --histogram --binary --full-index --no-renames
    --find-renames --find-copies --check --compact-summary --dirstat --text --relative --no-relative --merge-base
    --no-prefix --no-index --cc --combined-all-paths --pickaxe-all --pickaxe-regex --submodule --ignore-submodules
    --indent-heuristic"""
_DIFF_VALUED = """--stat --diff-filter --unified --word-diff --color --color-words
    --find-renames --find-copies --diff-algorithm --inter-hunk-context --word-diff-regex --relative --abbrev
    --ignore-submodules --submodule --src-prefix --dst-prefix --ignore-matching-lines --stat-width --dirstat
    --color-moved"""
_LOG_LONG = f"""{_DIFF_LONG} --oneline --graph --all --branches --tags --remotes --decorate
    --no-decorate --merges --no-merges --first-parent --reverse --follow --abbrev-commit --no-abbrev-commit
    --topo-order --date-order --author-date-order --left-right --cherry-pick --cherry-mark --left-only --right-only
    --walk-reflogs --invert-grep --all-match --fixed-strings --extended-regexp --perl-regexp --regexp-ignore-case
    --simplify-by-decoration --full-history --ancestry-path --boundary --no-walk --source --relative-date --parents
    --children --count --no-notes --notes --root --log-size --use-mailmap --no-mailmap --objects --not --expand-tabs"""
_LOG_VALUED = f"""{_DIFF_VALUED} --format --pretty --since --until --after --before --author --committer --grep
    --max-count --skip --date --decorate --decorate-refs --branches --tags --remotes --glob --exclude --min-parents
    --max-parents --encoding"""
_DIFF_LETTERS = "puswbaRzrtcmqWD"
_DIFF_TAKES = "USGMCBlL"
_NUMBERED = r"-\d+|-[MCB]\d*%?|-U\d+"

GIT: dict[str, Grammar] = {
    "status": _grammar(
        "sbvzu",
        "",
        """--short --branch --long --verbose --porcelain --show-stash --untracked-files --ignored --ahead-behind
        --no-ahead-behind --no-renames --renames --column --no-column""",
        "--porcelain --untracked-files --ignored --ignore-submodules --find-renames",
        r"-u(?:no|normal|all)|-sb",
    ),
    "diff": _grammar(_DIFF_LETTERS, _DIFF_TAKES, _DIFF_LONG, _DIFF_VALUED, _NUMBERED),
    "log": _grammar(_DIFF_LETTERS + "giEFP", _DIFF_TAKES + "n", _LOG_LONG, _LOG_VALUED, _NUMBERED),
    "show": _grammar(_DIFF_LETTERS + "iEFP", _DIFF_TAKES + "n", _LOG_LONG, _LOG_VALUED, _NUMBERED),
    "rev-list": _grammar("iEF", "n", _LOG_LONG, _LOG_VALUED, _NUMBERED),
    "reflog": _grammar("pis", "n", _LOG_LONG, _LOG_VALUED, _NUMBERED),
    "shortlog": _grammar(
        "nsec",
        "",
        "--numbered --summary --email --no-merges --all --merges",
        "--since --until --author --group --format",
        r"-\d+",
    ),
    "blame": _grammar(
        "bcewlstfnpCM",
        "L",
        """--show-stats --porcelain --line-porcelain --show-name --show-number --show-email --root --minimal
        --progress --no-progress""",
        "--since --date --abbrev --ignore-rev",
    ),
    "branch": _grammar(
        "avrliq",
        "",
        """--list --all --remotes --show-current --verbose --color --no-color --column --no-column --ignore-case""",
        """--list --contains --no-contains --merged --no-merged --points-at --sort --format --abbrev --color""",
        r"-vv",
    ),
    "tag": _grammar(
        "li",
        "",
        "--list --column --no-column --ignore-case",
        "--list --contains --no-contains --merged --no-merged --points-at --sort --format",
        r"-n\d*",
    ),
    "remote": _grammar("v", "", "--verbose"),
    "rev-parse": _grammar(
        "q",
        "",
        """--abbrev-ref --show-toplevel --git-dir --absolute-git-dir --git-common-dir --is-inside-work-tree
        --is-inside-git-dir --is-bare-repository --is-shallow-repository --show-prefix --show-cdup --short
        --verify --quiet --symbolic-full-name --symbolic --all --branches --tags --remotes
        --show-superproject-working-tree --show-object-format""",
        "--short --abbrev-ref --git-path --path-format",
    ),
    "ls-files": _grammar(
        "cdomiskztvfu",
        "xX",
        """--cached --deleted --others --modified --ignored --stage --killed --unmerged --exclude-standard
        --full-name --error-unmatch --eol --directory --no-empty-directory --debug --deduplicate
        --recurse-submodules""",
        "--exclude --exclude-from --exclude-per-directory --abbrev --with-tree",
    ),
    "ls-tree": _grammar(
        "drtlz", "", "--long --name-only --name-status --full-name --full-tree --object-only", "--abbrev"
    ),
    "cat-file": _grammar("tesp"),
    "grep": _grammar(
        "ivwEGFPnlLcohHqaIWprz",
        "eABCfm",
        """--ignore-case --invert-match --word-regexp --extended-regexp --basic-regexp --fixed-strings
        --perl-regexp --line-number --files-with-matches --name-only --files-without-match --count --cached
        --untracked --no-index --show-function --function-context --all-match --and --or --not --break --heading
        --column --quiet --text --only-matching --full-name --color --no-color --recursive --no-exclude-standard
        --exclude-standard""",
        "--max-depth --after-context --before-context --context --max-count --color --threads",
        r"-\d+",
    ),
    "describe": _grammar(
        "",
        "",
        "--tags --all --long --always --dirty --contains --exact-match --first-parent --abbrev",
        "--match --exclude --abbrev --candidates --dirty",
    ),
    "config": _grammar(
        "lz",
        "",
        """--list --get --get-all --get-regexp --show-origin --show-scope --global --local --system --worktree
        --name-only --null --bool --int --path --includes""",
        "--get --get-all --get-regexp --type --default",
    ),
    "stash": _grammar("pu", "", "--stat --patch --include-untracked --oneline", "--format --date"),
    "worktree": _grammar("vz", "", "--porcelain --verbose"),
    "show-ref": _grammar(
        "dsqh", "", "--head --heads --branches --tags --dereference --hash --verify --quiet", "--hash --abbrev"
    ),
    "for-each-ref": _grammar(
        "",
        "",
        "--ignore-case --omit-empty",
        "--count --sort --format --points-at --merged --no-merged --contains --no-contains --exclude",
    ),
    "merge-base": _grammar("a", "", "--all --octopus --independent --is-ancestor --fork-point"),
    "name-rev": _grammar("", "", "--tags --name-only --always --no-undefined", "--refs --exclude"),
    "count-objects": _grammar("vH", "", "--verbose --human-readable"),
    "check-ignore": _grammar("qvzn", "", "--quiet --verbose --non-matching --no-index"),
    "cherry": _grammar("v"),
    "diff-tree": _grammar("rtpszcmv", "MC", _DIFF_LONG + " --root --no-commit-id --stdin", _DIFF_VALUED),
    "version": _grammar("", "", "--build-options"),
}

# With only `--version` these print it and exit, or refuse the option. Left out is what first loads code of the project
# (pytest, pylint, flake8, rspec, rubocop: plugins; poetry and bundle: plugins and releases of themselves), and what
# acts on any word (killall, yes, reboot).
VERSIONED = names(
    """python python3 pip pip3 node npm npx deno bun git make gmake cmake ninja gcc g++ cc c++ clang clang++ ruff black
    mypy isort tsc eslint prettier docker docker-compose kubectl helm terraform curl wget bash sh zsh dash ksh fish sed
    awk gawk mawk nawk perl ruby php lua java javac Rscript uv shellcheck hadolint yamllint actionlint codespell
    coverage bandit biome oxlint golangci-lint pyright jq yq rg fd bat tree rsync tar gtar bsdtar zip unzip gzip bzip2
    xz zstd lz4 pigz ssh gh brew apt systemctl psql sqlite3 aws gcloud less man nm split shuf iconv install xxd
    cargo rustc rustfmt yarn pnpm
    cp mv ln tee dd patch csplit cpio ar objcopy strip mkdir touch chmod chown chgrp mktemp mkfifo true false printenv
    ps join fmt sum sleep pgrep lsblk netstat bc expr factor numfmt tsort pstree vmstat iostat getent who users tokei
    scc nohup timeout nice ionice stdbuf setsid chrt taskset env sudo xargs flock watch find bwrap
    chroot gdb ltrace nsenter prlimit script setpriv strace unshare"""
)
# Other ways to ask for the version, and the programs that accept them.
VERSION_WORDS: dict[str, frozenset[str]] = {
    "version": names("docker docker-compose helm git uv deno cargo go terraform gh golangci-lint"),
    "-V": names("python python3 pip pip3 curl wget rg cargo rustc rustfmt ruff uv mypy ssh ip"),
    "-v": names("node npm npx bun ruby php perl lua docker terraform tsc eslint yarn pnpm"),
    "-version": names("java javac actionlint"),
}


def prints_version(name: str, word: str) -> bool:
    """Whether this program, given only this word, prints its version and exits."""
    name = re.sub(r"\A(?:python|pypy)[\d.]*\Z", "python3", name)
    if word == "--version":
        return name in VERSIONED or name in ANY_WORDS or name in GRAMMARS
    return name in VERSION_WORDS.get(word, ())


# Programs for which a file of the project, in the folder or a parent, decides first what runs: the toolchain that
# rustup starts (also by path) or that go fetches, and the release of themselves that yarn and pnpm start.
PINNED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("cargo", "rustc", "rustfmt"), ("rust-toolchain", "rust-toolchain.toml")),
    "go": ("go.mod", "go.work"),
    "yarn": ("package.json", ".yarnrc", ".yarnrc.yml"),
    "pnpm": ("package.json", "pnpm-workspace.yaml", ".npmrc", ".pnpmfile.cjs"),
}
# Shims of version managers (asdf, mise, pyenv, rbenv, volta, proto, aqua, tfenv, corepack): a file of the project
# decides what they start, for some of them by path.
SHIM_FOLDERS = names("shims .volta .proto .tfenv aquaproj-aqua corepack")
SHIM_PROGRAMS = names("mise rtx asdf volta volta-shim aqua-proxy proto-shim corepack bazelisk")
