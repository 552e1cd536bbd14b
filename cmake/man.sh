#!/bin/sh
# Writes the man pages of the command from its own --help texts, so that they can't differ.
# usage: cmake/man.sh WEFT_BINARY DIRECTORY
set -eu
weft=$1 out=$2
mkdir -p "$out"
version=$("$weft" --version | cut -d' ' -f2)

# page NAME TEXT: the help text TEXT as a page; "usage:" becomes SYNOPSIS, indented two-column lines become a list.
page() {
    awk -v name="$1" -v version="$version" '
        function escape(s) { gsub(/\\/, "\\e", s); gsub(/-/, "\\-", s); sub(/^\./, "\\\\\\&.", s); return s }
        NR == 1 {
            title = name; gsub(/-/, "\\-", title)
            printf ".TH \"%s\" 1 \"\" \"weft %s\" \"weft\"\n.SH NAME\n", toupper(title), version
            sub(/^usage: /, ""); synopsis = $0; next
        }
        NR == 2 { next }
        NR == 3 {
            printf "%s \\- %s\n.SH SYNOPSIS\n%s\n.SH DESCRIPTION\n", title, escape($0), escape(synopsis)
            print escape($0); next
        }
        /^[a-z].*:$/ { section = $0; sub(/ *\(.*/, "", section); sub(/:$/, "", section); printf ".SH %s\n", toupper(section); next }
        /^exit codes:/ { printf ".SH EXIT STATUS\n"; sub(/^exit codes: */, ""); print escape($0); next }
        /^  [^ ]/ {
            line = substr($0, 3)
            if (match(line, /  +/)) { printf ".TP\n.B %s\n%s\n", escape(substr(line, 1, RSTART - 1)), escape(substr(line, RSTART + RLENGTH)) }
            else if (match(line, / [a-z(]/)) { printf ".TP\n.B %s\n%s\n", escape(substr(line, 1, RSTART - 1)), escape(substr(line, RSTART + 1)) }
            next
        }
        /^example: / { printf ".PP\nExample:\n.PP\n.nf\n    %s\n.fi\n", escape(substr($0, 10)); next }
        /^$/ { next }
        { sub(/^ +/, ""); print escape($0) }
        END { printf ".SH SEE ALSO\n.BR weft (1)\n" }' "$2" >"$out/$1.1"
}
help=$(mktemp)
trap 'rm -f "$help"' EXIT
"$weft" --help >"$help"
page weft "$help"
for verb in $("$weft" --help | sed -n '/^verbs/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    "$weft" "$verb" --help >"$help"
    page "weft-$verb" "$help"
done
for what in plan place gemm ceiling queue sim calibrate; do
    "$weft" bench $what --help >"$help"
    page "weft-bench-$what" "$help"
done
